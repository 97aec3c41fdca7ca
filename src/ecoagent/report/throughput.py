"""How fast the model answered in this run, from what the manifest holds of each stage's engine.

Nothing is made up: a stage whose answers were all stored has no speed, and a run written before
engines were recorded has none either.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import polars as pl

from ecoagent.audit import RunTables

ENGINE_TARGET = 0.95
"""Share of a stage's time that the engine should be at work."""

STAGES = {"synthesize": "Syn: generation", "label": "Real: verification"}
LIVE, PARTLY, REPLAYED, UNKNOWN, IDLE = "live", "partly replayed", "replayed", "not recorded", "not asked"


@dataclass(frozen=True)
class ThroughputRow:
    """One stage and its engine. Speeds are of live answers over the time the engine was at work.

    Attributes:
        state: live, partly replayed, replayed, not recorded, or not asked.
        tokens_out_per_s: generated tokens a second.
        tokens_in_per_s: prompt tokens a second.
        answers_per_s: responses a second.
        queries_per_s: accepted queries of live responses a second; Syn alone.
        engine_share: time of the engine over time of the stage.
        accepted: queries accepted, whatever their responses came from.
        per_1000_out: accepted queries per 1,000 generated tokens, stored responses included.
        per_1000: accepted queries per 1,000 tokens of prompts and responses.
    """

    stage: str
    engine: str
    model: str
    state: str
    live: int | None
    replayed: int | None
    failed: int | None
    stage_seconds: float | None
    engine_seconds: float | None
    tokens_out_per_s: float | None
    tokens_in_per_s: float | None
    answers_per_s: float | None
    queries_per_s: float | None
    engine_share: float | None
    accepted: int
    per_1000_out: float | None
    per_1000: float | None

    @property
    def meets_target(self) -> bool | None:
        """Whether the engine was at work for the share of time it should be; none where unknown."""
        return None if self.engine_share is None else self.engine_share >= ENGINE_TARGET


def throughput_rows(manifest: Mapping[str, Any], tables: RunTables) -> list[ThroughputRow]:
    """A row for each stage that asks a model, in the order of the pipeline."""
    syn = tables["syn_queries"]
    sets = {
        "synthesize": (syn, tables["syn_responses"], syn.filter(pl.col("origin") == "live").height),
        "label": (tables["real_queries"], tables["real_responses"], None),
    }
    found = manifest.get("stages", {})
    return [
        _row(name, found[name], queries.height, responses, fresh)
        for name, (queries, responses, fresh) in sets.items()
        if name in found
    ]


def _row(
    name: str, stage: Mapping[str, Any], accepted: int, responses: pl.DataFrame, fresh: int | None
) -> ThroughputRow:
    engine: Mapping[str, Any] = stage.get("engine") or {}
    live, replayed = engine.get("live"), engine.get("replayed")
    # A stage that found everything done asked nobody; what it costs is known from its responses alone.
    seconds = float(engine.get("seconds") or 0.0) if live else 0.0
    whole = stage.get("seconds")
    out, prompts = int(responses["tokens_out"].sum()), int(responses["tokens_in"].sum())
    models = sorted(set(responses["model"].to_list()))
    return ThroughputRow(
        stage=STAGES[name],
        engine=str(engine.get("engine") or ""),
        model=str(engine.get("model") or ", ".join(models) or "–"),
        state=_state(live, replayed),
        live=live,
        replayed=replayed,
        failed=engine.get("failed"),
        stage_seconds=whole,
        engine_seconds=seconds or None,
        tokens_out_per_s=_over(engine.get("tokens_out"), seconds),
        tokens_in_per_s=_over(engine.get("tokens_in"), seconds),
        answers_per_s=_over(live, seconds),
        queries_per_s=_over(fresh, seconds),
        engine_share=min(1.0, seconds / whole) if seconds and whole else None,
        accepted=accepted,
        per_1000_out=_over(1000 * accepted, out),
        per_1000=_over(1000 * accepted, out + prompts),
    )


def _state(live: int | None, replayed: int | None) -> str:
    if live is None:
        return UNKNOWN
    if not live:
        return REPLAYED if replayed else IDLE
    return PARTLY if replayed else LIVE


def _over(part: float | None, whole: float) -> float | None:
    return part / whole if part is not None and whole else None
