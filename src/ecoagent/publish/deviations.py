"""Where a run's settings differ from the paper's, found by comparing them with the defaults."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ecoagent.settings import Settings
from ecoagent.settings.sections import Section

PAPER_SECTIONS = ("crawl", "reliability", "llm", "synthesis", "labeling", "train", "evaluate")
"""Sections whose defaults are the paper's constants."""


@dataclass(frozen=True)
class Deviation:
    """One setting that is not the paper's."""

    key: str
    paper: str
    run: str
    says: str


@dataclass(frozen=True)
class ModelRole:
    """A model that ran, and the one the paper ran in its place."""

    role: str
    model: str
    paper: str

    @property
    def shown(self) -> str:
        """``X`` where it is the paper's own, else ``X in the Y role``: never Y alone."""
        return self.model if self.model == self.paper else f"{self.model} in the {self.paper} role"


def _shown(value: Any) -> str:
    if isinstance(value, tuple | list):
        return ", ".join(_shown(v) for v in value) or "none"
    return "none" if value is None else f"{value:g}" if isinstance(value, float) else str(value)


def deviations(settings: Settings) -> list[Deviation]:
    """Settings that differ from their defaults, which are the paper's.

    Performance knobs are left out, and sections within sections: the paper has no such part.
    """
    paper = Settings()
    found = []
    for section in PAPER_SECTIONS:
        ours, theirs = getattr(settings, section), getattr(paper, section)
        for name, field in type(ours).model_fields.items():
            extra = field.json_schema_extra
            if isinstance(extra, dict) and extra.get("knob"):
                continue
            if isinstance(getattr(ours, name), Section):
                continue
            if getattr(ours, name) != getattr(theirs, name):
                found.append(
                    Deviation(
                        f"{section}.{name}",
                        _shown(getattr(theirs, name)),
                        _shown(getattr(ours, name)),
                        field.description or "",
                    )
                )
    if settings.limit is not None:
        found.append(Deviation("limit", "none", str(settings.limit), "Items per stage."))
    return found


def model_roles(settings: Settings) -> list[ModelRole]:
    """The models a run names for each role of the paper."""
    paper = Settings()
    return [
        ModelRole(
            "Name-description consistency (Eq. 4)", settings.reliability.encoder, paper.reliability.encoder
        ),
        ModelRole("Query generator", settings.llm.model, paper.llm.model),
        ModelRole("Miner of hard negatives", settings.synthesis.encoder, paper.synthesis.encoder),
        ModelRole("Candidate encoder of Real", settings.labeling.encoder, paper.labeling.encoder),
        ModelRole("Verifier of Real", settings.llm.model, paper.llm.model),
        ModelRole("Query tower of the dual encoder", settings.train.query_encoder, paper.train.query_encoder),
        ModelRole("Tool tower of the dual encoder", settings.train.tool_encoder, paper.train.tool_encoder),
    ]
