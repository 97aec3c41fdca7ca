"""Ranking and dynamic metrics."""

from ecoagent.metrics.dynamic import (
    AdaptationForm,
    adaptation_steps,
    fault_selection_rate,
    post_fail_success_rate,
    success_peak,
)
from ecoagent.metrics.ranking import METRICS, TOOLRET_METRICS, Qrels, Ranking, RankingMetrics, evaluate_run

__all__ = [
    "METRICS",
    "TOOLRET_METRICS",
    "AdaptationForm",
    "Qrels",
    "Ranking",
    "RankingMetrics",
    "adaptation_steps",
    "evaluate_run",
    "fault_selection_rate",
    "post_fail_success_rate",
    "success_peak",
]
