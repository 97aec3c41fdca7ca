"""A synthetic but complete run directory, written through the records, for tests of late stages.

Nothing here is real: names, texts and numbers are drawn from a seeded generator. Texts are random
words, so that no two queries come near the Jaccard limit.
"""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

from ecoagent.runs import Progress, RunContext, write_json, write_table
from ecoagent.schema import (
    SOURCES,
    Auth,
    AuthField,
    Deprecation,
    NormalizedTool,
    PairRow,
    Provenance,
    QrelRow,
    QueryRow,
    RejectedTool,
    RejectRow,
    ResponseRow,
    ScoredTool,
    VerdictRow,
    query_id,
    tool_text,
)
from ecoagent.settings import Settings, load_settings

_WORD_LIST = (
    "amber anchor apple arrow autumn badge basket beacon bicycle blanket bottle bridge bronze "
    "button cabin candle canyon carpet castle cedar cherry circle clover coffee copper coral "
    "cotton cradle crystal curtain daisy desert diamond dolphin dragon eagle ember engine "
    "fabric falcon feather ferry forest fossil fountain garden garnet ginger glacier granite "
    "harbor hazel helmet hollow honey iceberg island ivory jacket jasmine jungle kettle ladder "
    "lantern lavender lemon lily lobster magnet maple marble meadow mirror monsoon mountain "
    "nectar needle nickel oasis ocean olive onyx orchid oyster paddle palace panther parrot "
    "pebble pepper pillow planet plaza pocket prairie "
)
WORDS = _WORD_LIST.split()

LICENCES = {
    "langchain": "MIT",
    "crewai": "MIT",
    "llamaindex": "MIT",
    "n8n_official": "LicenseRef-Sustainable-Use",
    "n8n_community": "MIT",
}
WEIGHTS = {"langchain": 0.9, "crewai": 0.9, "llamaindex": 0.9, "n8n_official": 1.0, "n8n_community": 0.8}
HASH = "0123456789abcdef" * 4


RANKERS = ["tfidf", "bm25", "ada_002", "encoder", "toolllm", "hybrid", "rated_wo_contrastive", "rated"]
"""Rows of the offline table: two of them cannot run without settings of their own."""


def fixture_settings(outputs: Path, *overrides: str, **flags: Any) -> Settings:
    """Settings of the local profile with limits that fit the fixture."""
    base = ["audit.min_tools=10", "audit.min_queries=20", "llm.reference=none"]
    base += ["synthesis.queries_per_tool=12", "synthesis.min_queries_per_tool=10"]
    base += ["synthesis.max_attempts=2", "synthesis.verify_queries=false"]
    base += ['baselines.pull="none"']
    base += [f"evaluate.rankers={json.dumps(RANKERS)}"]
    return load_settings("local", overrides=[*base, *overrides], env={}, outputs=outputs, **flags)


def _sentence(rng: random.Random, count: int) -> str:
    return " ".join(rng.sample(WORDS, count))


def make_tools(count: int = 30) -> list[ScoredTool]:
    """Scored tools, ``count`` in all over the five sources; the last two form a duplicate group."""
    rows: list[ScoredTool] = []
    for i in range(count):
        source = SOURCES[i % len(SOURCES)]
        rng = random.Random(f"tool:{i}")
        catalog = "n8n" if source.startswith("n8n") else source
        identifier = f"{catalog}:pkg{i:02d}.{WORDS[i].title()}Tool"
        name, description = f"{WORDS[i]} {WORDS[i + 1]}", _sentence(rng, 8).capitalize() + "."
        r_cons, r_qual = round(rng.uniform(0.3, 0.95), 6), round(rng.uniform(0.2, 0.9), 6)
        r_static = 0.5 * r_cons + 0.3 * WEIGHTS[source] + 0.2 * r_qual
        rows.append(
            ScoredTool(
                id=identifier,
                source=source,
                name=name,
                display_name=name.title(),
                description=description,
                description_origin="class",
                kind="tool",
                granularity="tool",
                group_id=f"pkg{i:02d}",
                group_name=WORDS[i].title(),
                url=f"https://tools.example/{i}",
                version="1.0.0",
                auth=[
                    Auth(
                        type="env",
                        name="KEY",
                        fields=[AuthField(name="KEY", secret=True, required=True)],
                        origin="c",
                    )
                ],
                auth_required="yes",
                tags=["search"],
                deprecated=Deprecation(state=False),
                licence=LICENCES[source],
                provenance=Provenance(
                    artifact=f"pkg{i:02d}",
                    artifact_version="1.0.0",
                    sha256=HASH,
                    path="a.py",
                    backend="client",
                    parser_version="1",
                ),
                parameter_names=["text"],
                input_schema='{"type": "object"}',
                schema_origin="declared",
                language="en",
                provider=f"provider{i % 7}",
                duplicate_group=identifier,
                tool_text=tool_text(name, description, tags=["search"]),
                r_cons=r_cons,
                w_src=WEIGHTS[source],
                r_qual=r_qual,
                r_static=r_static,
                reliable=r_static >= 0.8,
            )
        )
    rows.sort(key=lambda t: t.id)
    rows[-1] = rows[-1].model_copy(update={"duplicate_group": rows[-2].id})
    return rows


def _query(set_name: str, rng: random.Random, **fields: Any) -> QueryRow:
    text = _sentence(rng, 9).capitalize() + "?"
    return QueryRow.model_validate(
        {
            "query_id": query_id(set_name, text),
            "text": text,
            "set": set_name,
            "language": "en",
            "licence": "CC-BY-4.0",
            **fields,
        }
    )


def _syn(tools: list[ScoredTool], per_tool: int) -> tuple[list[QueryRow], list[QrelRow], list[PairRow]]:
    queries, qrels, pairs = [], [], []
    asked = tools[:-2]
    cold = {t.id for t in asked[::9]}
    for t, tool in enumerate(asked):
        for i in range(per_tool):
            rng = random.Random(f"syn:{tool.id}:{i}")
            split = (
                "cold" if tool.id in cold else ("val" if i == 0 and t % 2 else "test" if i == 1 else "train")
            )
            intent = ("direct", "troubleshooting", "howto")[i % 3]
            query = _query(
                "syn",
                rng,
                intent=intent,
                source_tool_id=tool.id,
                split=split,
                origin="live",
                round_trip_rank=i + 1,
            )
            queries.append(query)
            qrels.append(QrelRow(query_id=query.query_id, tool_id=tool.id, grade=1, origin="generated"))
            others = [o.id for o in tools if o.duplicate_group != tool.duplicate_group and o.id not in cold]
            hard, rand = rng.sample(others, 2)
            pairs += [
                PairRow(query_id=query.query_id, tool_id=tool.id, label=1, score=0.7, split=split),
                PairRow(
                    query_id=query.query_id,
                    tool_id=hard,
                    label=0,
                    negative_type="hard",
                    score=0.4,
                    split=split,
                ),
                PairRow(
                    query_id=query.query_id,
                    tool_id=rand,
                    label=0,
                    negative_type="random",
                    score=0.1,
                    split=split,
                ),
            ]
    return queries, qrels, pairs


def _real(
    tools: list[ScoredTool], count: int
) -> tuple[list[QueryRow], list[QrelRow], list[VerdictRow], list[RejectRow]]:
    queries, qrels, verdicts, rejects = [], [], [], []
    for i in range(count):
        rng = random.Random(f"real:{i}")
        query = _query(
            "real",
            rng,
            query_type="multi" if i % 3 == 0 else "single",
            split="val" if i % 2 else "test",
            origin="written",
        )
        good, bad = rng.sample(tools, 2)
        kept = i % 4 != 3
        for tool, yes in ((good, kept), (bad, False)):
            verdicts.append(
                VerdictRow(
                    query_id=query.query_id,
                    tool_id=tool.id,
                    stage="verifier",
                    encoder_score=0.5,
                    verifier_raw=1.0 if yes else 0.0,
                    verifier_probability=0.9 if yes else 0.1,
                    kept=yes,
                    reason=None if yes else "below_threshold",
                    response_hash=HASH,
                )
            )
        if kept:
            queries.append(query)
            qrels.append(
                QrelRow(
                    query_id=query.query_id,
                    tool_id=good.id,
                    grade=1,
                    origin="verified",
                    encoder_score=0.5,
                    verifier_raw=1.0,
                    verifier_probability=0.9,
                )
            )
        else:
            rejects.append(
                RejectRow(id=query.query_id, stage="verifier", reason="no_tool_verified", detail=query.text)
            )
    return queries, qrels, verdicts, rejects


def _by(rows: list[Any], *keys: str) -> list[Any]:
    return sorted(rows, key=lambda r: tuple(getattr(r, k) for k in keys))


def _response() -> ResponseRow:
    return ResponseRow(
        request_hash=HASH,
        model="stand-in",
        sampling='{"seed":0}',
        prompt_sha256=HASH,
        text="1. a line",
        tokens_in=100,
        tokens_out=20,
        finish_reason="stop",
        status="ok",
    )


def offline_results() -> dict[str, Any]:
    """Table 1 of an imagined run, in the form the evaluation writes."""
    rows = []
    labels = [("tfidf", "TF-IDF"), ("bm25", "BM25"), ("encoder", "MiniLM, untrained"), ("rated", "RATED")]
    for s, (set_name, split) in enumerate((("syn", "test"), ("syn", "cold"), ("real", "test"))):
        for i, (ranker, label) in enumerate(labels):
            base = 0.2 + 0.05 * i + 0.02 * s
            metrics = {"MRR": base, "Recall@1": base - 0.1, "Recall@5": base + 0.2, "nDCG@10": base + 0.05}
            rows.append(
                {
                    "set": set_name,
                    "split": split,
                    "ranker": ranker,
                    "label": label,
                    "model": "all-MiniLM-L6-v2" if i > 1 else "none",
                    "n_queries": 20 + s,
                    "metrics": metrics,
                    "intervals": {"MRR": [base - 0.06, base + 0.07]},
                }
            )
    return {"rows": rows, "notes": ["Rankings are cut after 100 tools."]}


POLICIES = {
    "static": "Static",
    "blacklist": "Health-check Blacklist",
    "retry": "Retry (k = 3)",
    "global_mab": "w/ Global MAB",
    "rated": "RATED",
}


def dynamic_results() -> dict[str, Any]:
    """Table 2 of an imagined run, in the form the evaluation writes."""
    rows, series = [], []
    for rate in (0.2, 0.3):
        for i, (policy, label) in enumerate(POLICIES.items()):
            success, fault = 0.3 + 0.05 * i - rate / 4, 0.4 - 0.08 * i + rate / 4
            rng = random.Random(f"{policy}:{rate}")
            rows.append(
                {
                    "set": "syn",
                    "split": "test",
                    "ranker": "rated",
                    "ranker_label": "RATED",
                    "policy": policy,
                    "label": label,
                    "rate": rate,
                    "seeds": 10,
                    "distinct_golds": 25,
                    "failing": 5,
                    "underpowered": True,
                    "metrics": {"SR": {"mean": success, "sd": 0.01}, "FSR": {"mean": fault, "sd": 0.02}},
                    "AS": {"median": None if i == 0 else 320.0 - 40 * i, "failed": 10 if i == 0 else i % 3},
                    "executions_per_step": 1.4 if policy == "retry" else 1.0,
                }
            )
            series.append(
                {
                    "policy": policy,
                    "label": label,
                    "rate": rate,
                    "bin_steps": 100,
                    "onset": 2000,
                    "success": [0.55 + rng.uniform(-0.02, 0.02) for _ in range(20)]
                    + [success + rng.uniform(-0.02, 0.02) for _ in range(80)],
                    "fault": [0.0] * 20 + [max(0.0, fault + rng.uniform(-0.02, 0.02)) for _ in range(80)],
                }
            )
    return {"rows": rows, "series": series, "notes": ["SR and FSR are shares of steps."]}


def label_stats() -> dict[str, Any]:
    """Agreement with noted tools of an imagined run."""
    part = {
        "queries": 16,
        "pairs_kept": 12,
        "pairs_right": 9,
        "precision": 0.75,
        "recall_of_candidates": 0.8182,
        "recall_of_noted": 0.5,
        "f1": 0.7826,
    }
    counted = {
        "requests_read": 20,
        "queries_verified": 16,
        "pairs_verified": 32,
        "pairs_kept": 12,
        "queries_kept": 12,
    }
    groups = {"single": part, "none": {"queries": 2, "precision": None}}
    return {"yield": counted, "agreement": {"all": part, "by_query_type": groups}}


def training_record() -> dict[str, Any]:
    """Record of an imagined training."""
    rng = random.Random("losses")
    return {
        "pairs": 320,
        "losses": [1.6 * 0.97**i + rng.uniform(0, 0.15) for i in range(60)],
        "validation": {
            "untrained": {"loss": 1.2, "MRR": 0.31},
            "trained": {"loss": 0.8, "MRR": 0.42},
            "queries": 12,
        },
    }


def write_fixture_run(
    settings: Settings, *, tools: int = 30, per_tool: int = 4, real: int = 16
) -> RunContext:
    """Write ``core/`` and ``out/results`` of a whole run; returns its context."""
    ctx = RunContext.create(settings, Progress())
    core, out = ctx.paths.core, ctx.paths.out
    scored = make_tools(tools)
    write_table(core / "tools.parquet", scored, ScoredTool)
    plain = [{k: v for k, v in t.model_dump().items() if k in NormalizedTool.model_fields} for t in scored]
    write_table(core / "tools_normalized.parquet", plain, NormalizedTool)
    rejected = scored[0].model_dump(include=set(RejectedTool.model_fields)) | {
        "id": "crewai:GhostTool",
        "source": "crewai",
        "description": "",
        "stage": "crawl",
        "reason": "template",
        "detail": "no default name",
    }
    write_table(core / "tool_rejects.parquet", [rejected], RejectedTool)
    scales = {"description": {"median": 60.0, "sd": 20.0}, "tags": {"median": 6.0, "sd": 3.0}}
    write_json(core / "reliability_scales.json", scales)
    queries, qrels, pairs = _syn(scored, per_tool)
    write_table(core / "syn_queries.parquet", _by(queries, "query_id"), QueryRow)
    write_table(core / "syn_qrels.parquet", _by(qrels, "query_id", "tool_id"), QrelRow)
    write_table(core / "syn_pairs.parquet", _by(pairs, "query_id", "tool_id"), PairRow)
    dropped = [
        RejectRow(
            id=f"syn-{i}",
            stage="filter",
            reason=("too_short", "name_leak", "near_duplicate")[i % 3],
            detail=_sentence(random.Random(i), 4),
        )
        for i in range(9)
    ]
    write_table(core / "syn_rejects.parquet", dropped, RejectRow)
    write_table(core / "syn_responses.parquet", [_response()], ResponseRow)
    write_json(core / "syn_coverage.json", {})
    real_queries, real_qrels, verdicts, rejects = _real(scored, real)
    write_table(core / "real_queries.parquet", _by(real_queries, "query_id"), QueryRow)
    write_table(core / "real_qrels.parquet", _by(real_qrels, "query_id", "tool_id"), QrelRow)
    write_table(core / "verdicts.parquet", _by(verdicts, "query_id", "tool_id"), VerdictRow)
    write_table(core / "real_rejects.parquet", _by(rejects, "id"), RejectRow)
    write_table(core / "real_responses.parquet", [_response()], ResponseRow)
    write_json(core / "label_stats.json", label_stats())
    write_json(core / "training.json", training_record())
    write_json(out / "results" / "offline.json", offline_results())
    write_json(out / "results" / "dynamic.json", dynamic_results())
    return ctx
