"""The environment of every test: quiet libraries, no spinning threads."""

from ecoagent.settings import quiet_environment

quiet_environment()
