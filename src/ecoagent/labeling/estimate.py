"""What verifying pairs costs, before any pair is known."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ecoagent.labeling.verify import ToolCard, verification_request
from ecoagent.llm import CostEstimate, estimate_cost
from ecoagent.settings import Settings

ESTIMATED_ON = 200
"""Tools whose cards stand for the others."""


def verification_cost(
    settings: Settings, cards: Sequence[ToolCard], texts: Sequence[str], pairs: int
) -> CostEstimate:
    """Upper bound for ``pairs`` pairs: which of them are stored shows only once there are candidates.

    Args:
        settings: form of the question, engine and prices.
        cards: tools, at least one where ``pairs`` is above zero.
        texts: requests, likewise.
        pairs: how many pairs will be verified at most.
    """
    labeling = settings.labeling
    sample = [
        verification_request(
            str(n),
            texts[n % len(texts)],
            card,
            labeling.verifier_form,
            max_tokens=labeling.verifier_max_tokens,
        )
        for n, card in enumerate(cards[:ESTIMATED_ON] if pairs else ())
    ]
    nothing_stored = settings.llm.model_copy(update={"store": Path("-"), "reference": None})
    cost = estimate_cost(sample, settings.model_copy(update={"llm": nothing_stored}))
    return cost.scaled(pairs / max(1, len(sample)))
