"""The command line."""

from ecoagent.cli.app import main

__all__ = ["main"]
