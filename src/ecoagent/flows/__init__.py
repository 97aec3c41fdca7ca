"""Thin Prefect flows: one a stage, ``build`` and ``tail`` over them.

Flows are named by module (``ecoagent.flows.build:build``), never by path.
"""

from ecoagent.settings import quiet_environment

quiet_environment()  # Prefect reads its environment when it is imported
