"""Metadata reliability of tools (paper, Eq. 4-5)."""

from ecoagent.reliability.score import (
    ReliabilityScales,
    ReliabilityScores,
    ToolScore,
    combine,
    cosines,
    quality,
    score_tools,
    shown_name,
    source_weight,
)

__all__ = [
    "ReliabilityScales",
    "ReliabilityScores",
    "ToolScore",
    "combine",
    "cosines",
    "quality",
    "score_tools",
    "shown_name",
    "source_weight",
]
