"""Settings of the siamese encoder: one model for queries and tools, trained beside the paper's two towers."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from ecoagent.settings.sections import Fraction, Section


class SiameseSettings(Section):
    """One encoder on both sides, not in the paper; see ``ecoagent ablate encoder`` for what each choice does.

    What is not named here (validation on the way, checkpoints, processes) is as in ``train``.
    """

    encoder: str = Field("all-MiniLM-L6-v2", description="Model it starts from.")
    pooling: Literal["cls", "mean"] = Field("mean", description="As the model it starts from was made with.")
    epochs: float = Field(1.0, gt=0, le=1000, description="Passes over the training pairs.")
    batch_size: int = Field(16, ge=2, description="Pairs of a step, of all processes together.")
    learning_rate: float = Field(5e-5, gt=0, description="Highest, after the warm-up.")
    warmup_ratio: Fraction = Field(0.1, description="Share of the steps.")
    temperature: float = Field(0.05, gt=0, description="tau of Eq. 3.")
    max_length: int = Field(128, ge=8, description="Tokens.")
    hard_negatives: int = Field(1, ge=0, description="Mined negatives per pair used in the loss.")
    mask_false_negatives: bool = Field(
        True, description="A tool of the batch that is a gold of the query does not count against it."
    )
    query_prefix: str = Field("", description="Same in training and evaluation.")
    tool_prefix: str = Field("", description="Same in training and evaluation.")
    expansion_weight: float = Field(
        0.0,
        ge=0,
        description="Added to a tool's vector: this times the mean vector of its training queries. Tools "
        "without any then fall behind those that have some.",
    )
