"""The environment of every test: quiet libraries, no spinning threads, no test judged by its time."""

from hypothesis import settings

from ecoagent.settings import quiet_environment

quiet_environment()

# A busy machine is no fault of an example.
settings.register_profile("untimed", settings.default, deadline=None)
settings.load_profile("untimed")
