"""Ranking and dynamic metrics."""

from ecoagent.metrics.dynamic import (
    AdaptationForm,
    adaptation_steps,
    fault_selection_rate,
    post_fail_success_rate,
    success_peak,
)

__all__ = [
    "AdaptationForm",
    "adaptation_steps",
    "fault_selection_rate",
    "post_fail_success_rate",
    "success_peak",
]
