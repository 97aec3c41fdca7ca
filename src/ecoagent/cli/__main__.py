"""``python -m ecoagent.cli``."""

from ecoagent.cli.app import main

main()
