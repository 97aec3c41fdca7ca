"""r_static of Eq. 5 from its three signals: name-description consistency, source, documentation.

Everything here is pure: the SBERT encoder comes in as a function from texts to unit vectors.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from ecoagent.settings import ReliabilitySettings

Floats = npt.NDArray[np.float64]
Lengths = Sequence[int] | npt.NDArray[np.int64]
Embed = Callable[[list[str]], npt.NDArray[Any]]
"""Texts to (n, d) vectors."""

_SCALE_FLOOR = 1e-9
"""Added to a scale, so that a catalog whose texts all have one length scores 0.5, not NaN."""

_PLATFORM_WEIGHTS: tuple[tuple[str, float], ...] = (
    ("official", 1.0),
    ("langchain", 0.9),
    ("crewai", 0.9),
    ("llamaindex", 0.9),
    ("n8n", 0.8),
)
_OTHER_WEIGHT = 0.6
"""Paper, Section 3.3: 1.0 official listing, 0.9 LangChain, CrewAI, LlamaIndex, 0.8 n8n, else 0.6."""


def source_weight(source: str, mode: Literal["listing", "literal"] = "listing") -> float:
    """w_src of Eq. 5.

    Args:
        source: source of a tool; matched by part, without regard to case.
        mode: ``listing`` takes n8n's own nodes for an official listing (1.0); ``literal`` gives every
            n8n tool the paper's 0.8.
    """
    lowered = source.lower()
    if mode == "literal" and "n8n" in lowered:
        return 0.8
    return next((weight for part, weight in _PLATFORM_WEIGHTS if part in lowered), _OTHER_WEIGHT)


def cosines(first: npt.NDArray[Any], second: npt.NDArray[Any]) -> Floats:
    """Row-wise cosine of two (n, d) arrays, shape (n,); a zero vector has cosine 0 (Eq. 4)."""
    a, b = np.asarray(first, dtype=np.float64), np.asarray(second, dtype=np.float64)
    norms = np.linalg.norm(a, axis=1) * np.linalg.norm(b, axis=1)
    dots: Floats = np.einsum("ij,ij->i", a, b)
    result: Floats = np.divide(dots, norms, out=np.zeros_like(dots), where=norms > 0)
    return result


@dataclass(frozen=True)
class ReliabilityScales:
    """The ruler documentation lengths are measured by; kept with a run for tools that come later.

    Attributes:
        description_median: median length of descriptions, characters.
        description_scale: population standard deviation of the same.
        tags_median: median length of tags joined by a blank, characters.
        tags_scale: population standard deviation of the same.
        tools: number of tools it was measured on.
    """

    description_median: float
    description_scale: float
    tags_median: float
    tags_scale: float
    tools: int

    @classmethod
    def measure(cls, description_lengths: Lengths, tag_lengths: Lengths) -> ReliabilityScales:
        """Medians and scales of a catalog; an empty one gives zeros."""
        if not len(description_lengths):
            return cls(0.0, 0.0, 0.0, 0.0, 0)
        desc, tag = np.asarray(description_lengths, float), np.asarray(tag_lengths, float)
        return cls(
            float(np.median(desc)), float(desc.std()), float(np.median(tag)), float(tag.std()), len(desc)
        )

    def score_new(
        self,
        name_vector: npt.NDArray[Any],
        description_vector: npt.NDArray[Any],
        *,
        source: str,
        description: str,
        tags: Sequence[str],
        settings: ReliabilitySettings | None = None,
    ) -> ToolScore:
        """Score one tool that was not in the catalog, by the catalog's ruler.

        Args:
            name_vector: (d,) SBERT vector of the tool's display name, else its name.
            description_vector: (d,) SBERT vector of its description.
            source: where it is listed.
            description: its description.
            tags: its tags.
            settings: weights and threshold; the paper's if none.
        """
        chosen = settings or ReliabilitySettings()
        cons = cosines(np.atleast_2d(name_vector), np.atleast_2d(description_vector))
        src = np.array([source_weight(source, chosen.source_weights)])
        qual = quality([len(description)], [len(" ".join(tags))], self, chosen.quality_weights)
        static = combine(cons, src, qual, chosen.weights)
        return ToolScore(
            float(cons[0]),
            float(src[0]),
            float(qual[0]),
            float(static[0]),
            bool(static[0] >= chosen.threshold),
        )


@dataclass(frozen=True)
class ToolScore:
    """The score of one tool; fields as the columns of ``tools``."""

    r_cons: float
    w_src: float
    r_qual: float
    r_static: float
    reliable: bool


@dataclass(frozen=True)
class ReliabilityScores:
    """Scores of a catalog, each array of shape (n,) in the order of the tools."""

    r_cons: Floats
    w_src: Floats
    r_qual: Floats
    r_static: Floats
    reliable: npt.NDArray[np.bool_]
    scales: ReliabilityScales

    def row(self, i: int) -> dict[str, Any]:
        """Columns of tool ``i`` as plain values."""
        return {
            "r_cons": float(self.r_cons[i]),
            "w_src": float(self.w_src[i]),
            "r_qual": float(self.r_qual[i]),
            "r_static": float(self.r_static[i]),
            "reliable": bool(self.reliable[i]),
        }


def quality(
    description_lengths: Lengths,
    tag_lengths: Lengths,
    scales: ReliabilityScales,
    weights: tuple[float, float] = (0.6, 0.4),
) -> Floats:
    """r_qual = logistic(0.6 z_desc + 0.4 z_tag), z = (length - median) / scale; shape (n,)."""
    desc, tag = np.asarray(description_lengths, float), np.asarray(tag_lengths, float)
    z_desc = (desc - scales.description_median) / (scales.description_scale + _SCALE_FLOOR)
    z_tag = (tag - scales.tags_median) / (scales.tags_scale + _SCALE_FLOOR)
    # Halved tanh is the logistic function without overflow for long texts.
    return np.asarray(0.5 * (1.0 + np.tanh(0.5 * (weights[0] * z_desc + weights[1] * z_tag))))


def combine(
    r_cons: Floats, w_src: Floats, r_qual: Floats, weights: tuple[float, float, float] = (0.5, 0.3, 0.2)
) -> Floats:
    """Eq. 5, clipped to [0, 1]; shape (n,)."""
    total = weights[0] * r_cons + weights[1] * w_src + weights[2] * r_qual
    return np.asarray(np.clip(total, 0.0, 1.0))


def score_tools(
    names: Sequence[str],
    descriptions: Sequence[str],
    tags: Sequence[Sequence[str]],
    sources: Sequence[str],
    embed: Embed,
    settings: ReliabilitySettings | None = None,
) -> ReliabilityScores:
    """Score a catalog by Eq. 4-5; all arguments have one entry per tool.

    Args:
        names: display name, else name.
        descriptions: functional descriptions.
        tags: tags; their length counts them joined by a blank.
        sources: where each is listed.
        embed: SBERT, texts to (n, d) vectors.
        settings: weights and threshold; the paper's if none.
    """
    chosen = settings or ReliabilitySettings()
    if not names:
        nothing = np.zeros(0)
        return ReliabilityScores(
            nothing, nothing, nothing, nothing, nothing.astype(bool), ReliabilityScales.measure([], [])
        )
    vectors = embed([*names, *descriptions])
    cons = cosines(vectors[: len(names)], vectors[len(names) :])
    return score_signals(
        cons, [len(d) for d in descriptions], [len(" ".join(t)) for t in tags], sources, chosen
    )


def score_signals(
    r_cons: Floats,
    description_lengths: Lengths,
    tag_lengths: Lengths,
    sources: Sequence[str],
    settings: ReliabilitySettings,
) -> ReliabilityScores:
    """Eq. 5 from cosines already computed; shapes (n,), lengths in characters."""
    scales = ReliabilityScales.measure(description_lengths, tag_lengths)
    weights = {s: source_weight(s, settings.source_weights) for s in set(sources)}
    src = np.array([weights[s] for s in sources], dtype=float)
    qual = quality(description_lengths, tag_lengths, scales, settings.quality_weights)
    static = combine(r_cons, src, qual, settings.weights)
    return ReliabilityScores(r_cons, src, qual, static, static >= settings.threshold, scales)


def shown_name(name: str, display_name: str | None) -> str:
    """The name Eq. 4 compares with the description: the one shown to people, else the agent's."""
    return display_name or name
