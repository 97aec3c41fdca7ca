"""Settings of the dual encoder's training."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import Field, ValidationInfo, field_validator, model_validator

from ecoagent.settings.sections import Fraction, Section, knob
from ecoagent.settings.siamese import SiameseSettings


class TrainSettings(Section):
    """The dual encoder (Eq. 1-3); values of Section 4.1. What the paper has not is off by default."""

    query_encoder: str = Field("facebook/dragon-plus-query-encoder", description="f_Q.")
    tool_encoder: str = Field("facebook/dragon-plus-context-encoder", description="f_T.")
    towers: Literal["two", "one"] = Field(
        "two", description="Two that share no weights (Section 3.2.1), or one model for both sides."
    )
    pooling: Literal["cls", "mean"] = Field("cls", description="CLS (Section 3.2.1).")
    epochs: float = Field(1.0, gt=0, le=1000, description="Section 4.1.")
    batch_size: int = Field(8, ge=2, description="Section 4.1; of all processes together.")
    learning_rate: float = Field(1e-5, gt=0, description="Section 4.1.")
    warmup_steps: int | None = Field(1000, ge=0, description="Section 4.1.")
    warmup_ratio: Fraction | None = Field(None, description="Instead of warmup_steps where a run is short.")
    temperature: float = Field(0.05, gt=0, description="tau of Eq. 3 (Section 4.1).")
    max_length: int = Field(256, ge=8, description="Tokens (Section 4.1).")
    hard_negatives: int = Field(1, ge=0, description="Mined negatives per pair used in the loss.")
    mixed_precision: bool = Field(True, description="On a GPU only (Section 4.1).")
    cpu_bfloat16: bool = Field(
        False,
        description="Mixed precision on a CPU as well, if it multiplies bfloat16 itself: two to three times "
        "as fast.",
    )
    query_prefix: str = Field("", description="Same in training and evaluation.")
    tool_prefix: str = Field("", description="Same in training and evaluation.")
    processes: int = Field(
        1, ge=1, le=64, description="torchrun processes, one a GPU; a batch is shared out."
    )
    validate_every: float | None = Field(
        None,
        gt=0,
        description="Validate every so many steps, or below 1 that share of an epoch; none = at the ends.",
    )
    early_stopping: Literal["off", "MRR", "loss"] = Field(
        "off",
        description="Stop when this does not get better on Syn val, and keep the best weights; "
        "the paper trains one epoch.",
    )
    patience: int = Field(3, ge=1, description="Validations without a gain before a training stops early.")
    mask_false_negatives: bool = Field(
        False,
        description="A batch may hold a gold of another row's query, which then does not count against it.",
    )
    symmetric_weight: float = Field(
        0.0, ge=0, description="Weight of a tool-to-query term (not in the paper)."
    )
    distill_weight: float = Field(0.0, ge=0, description="Weight of a KL term to teacher scores.")
    distill_temperature: float = Field(1.0, gt=0, description="Teacher scores are divided by it.")
    teacher_scores: Path | None = knob(
        None, description="JSON lines with query_id, tool_id, score, for every pair used; for distill_weight."
    )
    checkpoint_every: int | None = knob(
        500, "Steps between checkpoints, from which a killed training goes on; none = no checkpoints.", ge=1
    )

    siamese: SiameseSettings = Field(
        SiameseSettings(), description="The siamese encoder, trained where `evaluate.rankers` names it."
    )

    @property
    def as_siamese(self) -> TrainSettings:
        """Settings the siamese encoder is trained with: these, with what ``siamese`` says in their place."""
        own = self.siamese.model_dump(exclude={"encoder", "expansion_weight"})
        encoder = self.siamese.encoder
        return self.model_copy(
            update={
                **own,
                "towers": "one",
                "query_encoder": encoder,
                "tool_encoder": encoder,
                "warmup_steps": None,
            }
        )

    @model_validator(mode="after")
    def _one_model(self) -> TrainSettings:
        if self.towers == "one" and self.query_encoder != self.tool_encoder:
            raise ValueError(
                "train.towers = 'one' takes one model: set train.query_encoder and train.tool_encoder alike"
            )
        return self

    @field_validator("early_stopping")
    @classmethod
    def _validated(cls, metric: str, info: ValidationInfo) -> str:
        if metric != "off" and info.data.get("validate_every", 1) is None:
            raise ValueError("nothing is validated on the way: set train.validate_every as well")
        return metric
