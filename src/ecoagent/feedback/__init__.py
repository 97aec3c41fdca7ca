"""TR-Feedback (Xu et al. 2024, arXiv 2406.17465): a language model criticises what was found, the query is
rewritten, and a retriever that knows the iteration searches again."""

from ecoagent.feedback.categories import categories_of, domain_of, hold_out
from ecoagent.feedback.critic import (
    PROMPTS,
    Assessment,
    ShownTool,
    fault_of,
    read_assessment,
    read_query,
    shown_tool,
)
from ecoagent.feedback.fusion import (
    FusedCandidates,
    Gate,
    fit_gate,
    fuse_runs,
    fused_candidates,
    score_gaps,
)
from ecoagent.feedback.loop import Feedback, Heard, OnHeard, run_feedback
from ecoagent.feedback.retriever import IterationRetriever, with_iteration
from ecoagent.feedback.training import (
    IterationRow,
    Rounds,
    iteration_loss,
    mine_negatives,
    train_iterations,
)

__all__ = [
    "PROMPTS",
    "Assessment",
    "Feedback",
    "FusedCandidates",
    "Gate",
    "Heard",
    "IterationRetriever",
    "IterationRow",
    "OnHeard",
    "Rounds",
    "ShownTool",
    "categories_of",
    "domain_of",
    "fault_of",
    "fit_gate",
    "fuse_runs",
    "fused_candidates",
    "hold_out",
    "iteration_loss",
    "mine_negatives",
    "read_assessment",
    "read_query",
    "run_feedback",
    "score_gaps",
    "shown_tool",
    "train_iterations",
    "with_iteration",
]
