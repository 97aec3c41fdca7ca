"""Results of commands of their own, read leniently: the judged labeller, and reviews by people or models."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import resources
from typing import Any

from ecoagent.report.encoder_ablation import encoder_of, read_encoder_ablation
from ecoagent.runs import read_json

SHIPPED = "data/labeller.json"
"""In ``ecoagent.labeling``: reports of the labeller as the local profile uses it."""
SHIPPED_ROUND_TRIP = "data/round_trip.json"
"""In ``ecoagent.evaluation``: the round-trip ablation of the reference build."""
SHIPPED_ENCODER_ABLATION = "data/encoder_ablation.json"
"""In ``ecoagent.evaluation``, where it was measured for the release: the encoder ablation of that build."""
STAGE_WORDS = {
    "candidates": "candidates",
    "cosine": "after the cosine",
    "verifier": "after the verifier",
    "deduplication": "after deduplication",
}


def shipped_labeller(model: str) -> dict[str, Any] | None:
    """The shipped reports of a verifier; None where there are none."""
    with resources.as_file(resources.files("ecoagent.labeling").joinpath(SHIPPED)) as path:
        reports = [r for r in read_json(path)["reports"] if r["model"] == model]
    return {"reports": reports} if reports else None


def shipped_round_trip(encoders: list[str]) -> dict[str, Any] | None:
    """The shipped round-trip ablation; None where it was measured with other towers."""
    with resources.as_file(resources.files("ecoagent.evaluation").joinpath(SHIPPED_ROUND_TRIP)) as path:
        content: dict[str, Any] = read_json(path)
    return content if content["encoders"] == encoders else None


def shipped_encoder_ablation(encoder: str) -> dict[str, Any] | None:
    """The shipped encoder ablation; None where there is none, or it was measured with another model."""
    with resources.as_file(resources.files("ecoagent.evaluation").joinpath(SHIPPED_ENCODER_ABLATION)) as path:
        content = read_encoder_ablation(path)
    return content if content is not None and encoder_of(content) == encoder else None


def labeller_tables(content: Any) -> list[dict[str, Any]]:
    """Reports of ``labeller.json``: a heading, facts, and rows by stage, weighted whole and stratum."""
    reports = content.get("reports", []) if isinstance(content, Mapping) else content
    return [_labeller(r) for r in reports or [] if isinstance(r, Mapping)]


def _labeller(report: Mapping[str, Any]) -> dict[str, Any]:
    who = f"{report.get('model', '?')} ({report.get('engine', '?')}, form {report.get('form', '?')})"
    sample = _mapping(report.get("sample"))
    rows = [_stage(STAGE_WORDS.get(s.get("stage", ""), s.get("stage", "?")), s) for s in _stages(sample)]
    whole = _stages(_mapping(report.get("weighted")))
    strata = [s for s in map(_mapping, report.get("strata") or []) if s.get("sampled")]
    if whole and len({s.get("weight") for s in strata}) > 1:
        rows.append(_stage("weighted to the whole set", whole[-1]))
    if len(strata) > 1:
        rows += [_stage(f"stratum {s.get('name', '?')}", _stages(s)[-1]) for s in strata if _stages(s)]
    return {
        "title": f"{report.get('collection', '?')}: {who}, candidates by {report.get('encoder', '?')}",
        "cut": f"Cosine of at least {_shown(report.get('min_cosine'))}, {report.get('decides_by', '?')} "
        f"score of at least {_shown(report.get('threshold'))}",
        "facts": {
            "Pairs judged": report.get("judged_pairs"),
            "kept": report.get("kept_pairs"),
            "unreadable": report.get("unreadable"),
            "failed": report.get("failed"),
        },
        "enough": report.get("reached"),
        "auc": report.get("auc_raw"),
        "auc_cosine": report.get("auc_cosine"),
        "rows": rows,
    }


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _stages(part: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return [s for s in part.get("stages") or [] if isinstance(s, Mapping)]


def _stage(name: str, stage: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "name": name,
        "queries": stage.get("queries"),
        "pairs": stage.get("pairs"),
        "right": stage.get("right"),
        **{k: share(stage.get(k), "value") for k in ("precision", "recall", "answered")},
    }


def share(value: Any, key: str) -> dict[str, Any] | None:
    """A share with its interval, ``{"value", "low", "high"}``; None where there was nothing to count."""
    if isinstance(value, int | float):
        return {"value": float(value), "low": None, "high": None}
    found = _mapping(value)
    if found.get(key) is None:
        return None
    return {"value": found[key], "low": found.get("low"), "high": found.get("high")}


def _shown(value: Any) -> str:
    return f"{value:g}" if isinstance(value, int | float) else "?"


RATES = (
    ("agreement", "Agreement"),
    ("false_discovery", "Kept, judged wrong"),
    ("false_omission", "Rejected, judged right"),
    ("false_positive", "False positives"),
    ("false_negative", "False negatives"),
    ("unsure", "Unsure"),
)


def review_section(content: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """``review.json`` as the page shows it; people and models in rows of their own."""
    if not content:
        return None
    rows = []
    for headline in map(_mapping, content.get("headlines") or []):
        for score in map(_mapping, headline.get("sets") or []):
            rates = _mapping(score.get("rates"))
            rows.append(
                {
                    "kind": headline.get("kind", "?"),
                    "judges": [str(j) for j in headline.get("judges") or []],
                    "set": score.get("set", "?"),
                    "judged": rates.get("judged"),
                    "kappa": rates.get("kappa"),
                    "rates": [share(rates.get(key), "share") for key, _ in RATES],
                    "groups": [
                        {
                            "name": f"{g.get('by', '?')} {g.get('name', '?')}",
                            "judged": _mapping(g.get("rates")).get("judged"),
                            "kappa": _mapping(g.get("rates")).get("kappa"),
                            "rates": [share(_mapping(g.get("rates")).get(key), "share") for key, _ in RATES],
                        }
                        for g in map(_mapping, score.get("groups") or [])
                    ],
                }
            )
    return {
        "columns": [words for _, words in RATES],
        "rows": rows,
        "between": list(map(_mapping, content.get("between") or [])),
        "human": any(r["kind"] == "human" for r in rows),
        "drawn": content.get("drawn"),
        "disagreements": len(content.get("disagreements") or []),
    }
