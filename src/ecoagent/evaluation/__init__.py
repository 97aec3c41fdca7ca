"""Evaluation: streams, the failure simulator and the tables."""

from ecoagent.evaluation.dynamic import DynamicRow, dynamic_table
from ecoagent.evaluation.significance import Interval, Summary, paired_interval, summarize
from ecoagent.evaluation.simulator import PermanentOutage, Scenario, SimulationLog, simulate
from ecoagent.evaluation.stream import Stream, StreamSource, failing_tools
from ecoagent.metrics import adaptation_steps, fault_selection_rate, post_fail_success_rate

__all__ = [
    "DynamicRow",
    "Interval",
    "PermanentOutage",
    "Scenario",
    "SimulationLog",
    "Stream",
    "StreamSource",
    "Summary",
    "adaptation_steps",
    "dynamic_table",
    "failing_tools",
    "fault_selection_rate",
    "paired_interval",
    "post_fail_success_rate",
    "simulate",
    "summarize",
]
