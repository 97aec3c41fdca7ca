"""The labelling stage: requests in, EcoAgent-Real out."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from ecoagent.labeling.calibrate import Calibration, find_calibration
from ecoagent.labeling.estimate import verification_cost
from ecoagent.labeling.prepare import (
    Prepared,
    duplicate_members,
    noted_tools,
    prepare,
    shard_count,
)
from ecoagent.labeling.requests import RequestSet, load_requests
from ecoagent.labeling.stats import agreement, hard_cases, in_words, pooling
from ecoagent.labeling.tables import RealTables, real_tables, verdict_rows
from ecoagent.labeling.verify import (
    Judged,
    ToolCard,
    prompt_name,
    prompt_sha256,
    verify_pairs,
)
from ecoagent.llm import (
    EngineCounters,
    counters_of,
    engine_record,
    open_engine,
    open_reference,
    unanswered_first,
)
from ecoagent.models import ModelStore
from ecoagent.prompts import prompt_marks
from ecoagent.retrieval.encoders import Encoder, load_encoder
from ecoagent.runs import (
    RunContext,
    Shard,
    ShardResult,
    Stage,
    StageReport,
    bucket,
    digest,
    read_jsonl,
    read_rows,
    write_json,
    write_jsonl,
    write_table,
)
from ecoagent.schema import (
    QrelRow,
    QueryRow,
    RejectRow,
    ResponseRow,
    ScoredTool,
    VerdictRow,
)
from ecoagent.settings import UserError

QUERIES_PER_SHARD = 50


class LabelStage(Stage):
    """Candidates, verification, deduplication, splits, and the report of yield and agreement."""

    name = "label"
    version = "2"
    sections = ("labeling", "llm")

    def __init__(self) -> None:
        # Reentrant: preparing reads the tools.
        self._lock = threading.RLock()
        self._memo: tuple[str, Prepared] | None = None
        self._read: tuple[Any, dict[str, ScoredTool]] | None = None
        self._before = EngineCounters()

    def inputs(self, ctx: RunContext) -> list[Path]:
        """The scored catalog."""
        return [ctx.paths.core / "tools.parquet"]

    def extra_key(self, ctx: RunContext) -> dict[str, Any]:
        """Prompt, request set, encoder, calibration and published responses."""
        labeling = ctx.settings.labeling
        reference = open_reference(ctx.settings.llm.reference)
        # First: a wrong name has no calibration either, and the name is what to tell.
        encoder = ModelStore(ctx.settings.models).digest(labeling.encoder)
        calibration = self._calibration(ctx)
        return {
            "prompt": prompt_marks()[prompt_name(labeling.verifier_form)],
            "requests": load_requests(labeling.queries).digest,
            "encoder": encoder,
            "calibration": digest(calibration.model_dump(mode="json")) if calibration else None,
            "reference": None if reference is None else reference.digest,
        }

    def plan(self, ctx: RunContext) -> list[Shard]:
        """The verified queries, by hash of their id."""
        self._before = counters_of(ctx.settings)
        ids = self._prepared(ctx).verified
        count = shard_count(len(ids), QUERIES_PER_SHARD)
        groups: dict[int, list[str]] = {n: [] for n in range(count)}
        for i in ids:
            groups[bucket(i, count)].append(i)
        return [Shard(f"{n:03d}-of-{count:03d}", tuple(sorted(g))) for n, g in groups.items() if g]

    def shard_content(self, ctx: RunContext, shard: Shard) -> Any:
        """Texts of the shard's queries and of the tools they are paired with."""
        prepared = self._prepared(ctx)
        pairs = prepared.pairs(shard.ids)
        wanted = {p.tool_id for p in pairs}
        return {
            "queries": {i: prepared.queries[i].text for i in shard.ids},
            "pairs": [[p.query_id, p.tool_id] for p in pairs],
            "tools": {i: repr(card) for i, card in self._cards(ctx, wanted).items()},
        }

    def shard_finished(self, directory: Path) -> bool:
        """Whether every question was answered: those that were not are asked again."""
        return all(row["status"] == "ok" for row in read_jsonl(directory / "responses.jsonl"))

    def run_shard(self, ctx: RunContext, shard: Shard, directory: Path) -> None:
        """Ask the verifier about the shard's pairs; writes verdicts.jsonl and responses.jsonl."""
        settings = ctx.settings
        prepared = self._prepared(ctx)
        pairs = [(p.query_id, p.tool_id) for p in prepared.pairs(shard.ids)]
        judged = verify_pairs(
            open_engine(settings, ctx.progress),
            pairs,
            {i: prepared.queries[i].text for i in shard.ids},
            self._cards(ctx, {tool for _, tool in pairs}),
            settings.labeling.verifier_form,
            max_tokens=settings.labeling.verifier_max_tokens,
        )
        write_jsonl(
            directory / "verdicts.jsonl",
            [
                {
                    "query_id": j.query_id,
                    "tool_id": j.tool_id,
                    "raw": j.raw,
                    "reason": j.reason,
                    "response_hash": j.response.request_hash,
                }
                for j in judged
            ],
        )
        by_hash = {j.response.request_hash: j.response for j in judged}
        write_jsonl(directory / "responses.jsonl", [by_hash[h] for h in sorted(by_hash)])

    def merge(self, ctx: RunContext, results: list[ShardResult]) -> StageReport:
        """Write EcoAgent-Real and what was said on the way.

        Raises:
            UserError: a split stays empty.
        """
        settings, core = ctx.settings, ctx.paths.core
        prepared, tools = self._prepared(ctx), self._tools(ctx)
        requests = load_requests(settings.labeling.queries)
        calibration = self._calibration(ctx)
        judged, responses = _read_shards(results)
        verdicts = verdict_rows(prepared, judged, settings.labeling, calibration)
        # Said before the splits may fail: an empty data set is explained by its yield.
        stats = self._stats(ctx, prepared, verdicts, responses, requests, calibration)
        for line in in_words(stats):
            ctx.progress.say(f"label: {line}")
        members = duplicate_members(tools)
        with unanswered_first(responses, settings.llm):
            real = real_tables(requests, prepared, verdicts, members, settings.labeling, settings.seed)
        stats |= _sizes(real)
        outputs = [
            write_table(core / "real_queries.parquet", real.queries, QueryRow),
            write_table(core / "real_qrels.parquet", real.qrels, QrelRow),
            write_table(core / "verdicts.parquet", verdicts, VerdictRow),
            write_table(core / "real_rejects.parquet", real.rejects, RejectRow),
            write_table(core / "real_responses.parquet", responses, ResponseRow),
            write_json(core / "label_stats.json", stats),
        ]
        return StageReport(
            outputs=outputs,
            rows={
                "real_queries": len(real.queries),
                "real_qrels": len(real.qrels),
                "verdicts": len(verdicts),
                "real_responses": len(responses),
            },
            rejects=dict(sorted(Counter(r.reason for r in real.rejects).items())),
            tokens={
                "in": sum(r.tokens_in for r in responses),
                "out": sum(r.tokens_out for r in responses),
            },
            summary={
                **{k: stats[k] for k in ("yield", "agreement", "verifier", "splits")},
                "incomplete": sum(r.status != "ok" for r in responses),
            },
            engine=engine_record(settings, self._before),
        )

    def estimate(self, ctx: RunContext) -> dict[str, Any]:
        """Upper bounds of verified pairs, tokens and minutes; nothing is encoded or asked."""
        labeling = ctx.settings.labeling
        requests = load_requests(labeling.queries).requests
        held_out = labeling.verifier_score == "calibrated"
        count = sum(1 for r in requests if not (held_out and r.fold == "calibration"))
        for cap in (ctx.settings.limit, labeling.max_verified):
            count = min(count, cap) if cap is not None else count
        pairs = count * (labeling.top_k + labeling.lexical_top_k)
        found = {
            "requests": len(requests),
            "verified_queries_at_most": count,
            "verified_pairs_at_most": pairs,
        }
        if not pairs or not self.inputs(ctx)[0].is_file():
            return found
        cards = [ToolCard.of(tool) for tool in self._tools(ctx)]
        cost = verification_cost(ctx.settings, cards, [r.text for r in requests], pairs)
        return found | {k if k == "speed" else f"{k}_at_most": v for k, v in cost.as_record().items()}

    def _calibration(self, ctx: RunContext) -> Calibration | None:
        """Calibration of this verifier; only a run that decides by it must have one."""
        labeling = ctx.settings.labeling
        model = ctx.settings.llm.model
        found = find_calibration(model, labeling.encoder, labeling.verifier_form, labeling.calibration)
        if found is None and labeling.verifier_score == "calibrated":
            raise UserError(
                f"no calibration of {model!r} behind {labeling.encoder!r} for the present prompt "
                f"verify_{labeling.verifier_form}",
                remedy="set labeling.verifier_score = raw, or calibrate and set labeling.calibration",
            )
        return found

    def _tools(self, ctx: RunContext) -> list[ScoredTool]:
        return list(self._catalog(ctx).values())

    def _catalog(self, ctx: RunContext) -> dict[str, ScoredTool]:
        """Tools by id: read once a process, since every shard looks some up."""
        path = self.inputs(ctx)[0]
        state = path.stat()
        stamp = (str(path.resolve()), state.st_mtime_ns, state.st_size)
        with self._lock:
            if self._read is None or self._read[0] != stamp:
                self._read = (stamp, {t.id: t for t in read_rows(path, ScoredTool)})
            return self._read[1]

    def _cards(self, ctx: RunContext, ids: Iterable[str]) -> dict[str, ToolCard]:
        tools = self._catalog(ctx)
        return {i: ToolCard.of(tools[i]) for i in sorted(ids)}

    def _prepared(self, ctx: RunContext) -> Prepared:
        """Candidates of the whole set: once a process, since shards share them."""
        settings = ctx.settings
        labeling = settings.labeling
        key = digest(
            [str(ctx.paths.root.resolve()), settings.model_dump(mode="json"), self.extra_key(ctx)]
            + [path.stat().st_mtime_ns for path in self.inputs(ctx)]
        )
        with self._lock:
            if self._memo is not None and self._memo[0] == key:
                return self._memo[1]
            tools, requests = self._tools(ctx), load_requests(labeling.queries)
            with ctx.progress.task(
                "label: encode", total=len(tools) + len(requests.requests), unit="texts"
            ) as task:
                prepared = prepare(
                    requests,
                    tools,
                    lambda: self._encoder(ctx),
                    top_k=labeling.top_k,
                    min_cosine=labeling.min_cosine,
                    lexical_top_k=labeling.lexical_top_k,
                    max_verified=labeling.max_verified,
                    limit=settings.limit,
                    hold_out_calibration=labeling.verifier_score == "calibrated",
                    seed=settings.seed,
                    on_batch=task.advance,
                )
            self._memo = (key, prepared)
            return prepared

    def _encoder(self, ctx: RunContext) -> Encoder:
        name = ctx.settings.labeling.encoder
        # The model's own pooling: GTE and MiniLM differ from DRAGON's CLS.
        return load_encoder(ModelStore(ctx.settings.models).path(name, ctx.progress), name=name, pooling=None)

    def _stats(
        self,
        ctx: RunContext,
        prepared: Prepared,
        verdicts: list[VerdictRow],
        responses: list[ResponseRow],
        requests: RequestSet,
        calibration: Calibration | None,
    ) -> dict[str, Any]:
        labeling = ctx.settings.labeling
        calibrated = labeling.verifier_score == "calibrated"
        by_query: dict[str, list[VerdictRow]] = {}
        for row in verdicts:
            if row.stage == "verifier":
                by_query.setdefault(row.query_id, []).append(row)
        judged = [v for rows in by_query.values() for v in rows]
        reasons = Counter(v.reason for v in judged if v.reason)
        with_candidates = set(prepared.verified) | set(prepared.waiting)
        empty = [i for i in prepared.queries if i not in with_candidates]
        stats: dict[str, Any] = {
            "yield": {
                "requests_read": prepared.requests_in,
                "queries_taken": len(prepared.queries),
                "queries_with_candidates": len(with_candidates),
                "candidate_pairs": len(prepared.candidates.kept),
                "queries_verified": len(prepared.verified),
                "pairs_verified": len(judged),
                "pairs_unreadable": sum(n for r, n in reasons.items() if r == "unparsable"),
                "pairs_failed": sum(n for r, n in reasons.items() if r.startswith("engine")),
                "pairs_kept": sum(v.kept for v in judged),
                "pairs_kept_by_retriever": dict(
                    sorted(Counter(v.retriever for v in judged if v.kept).items())
                ),
                "queries_kept": sum(any(v.kept for v in rows) for rows in by_query.values()),
                "queries_not_verified": len(prepared.waiting),
            },
            "pooling": pooling(judged),
            "rejected_before_verification": dict(sorted(Counter(r.reason for r in prepared.rejects).items())),
            "verifier": {
                "model": ctx.settings.llm.model,
                "encoder": labeling.encoder,
                "form": labeling.verifier_form,
                "decides_by": labeling.verifier_score,
                "min_cosine": labeling.min_cosine,
                "lexical_top_k": labeling.lexical_top_k,
                "threshold": labeling.verifier_threshold,
                "prompt_sha256": prompt_sha256(labeling.verifier_form),
                "calibration": calibration.model_dump(mode="json") if calibration else None,
            },
            "hard_cases": hard_cases(judged, labeling.verifier_threshold, calibrated=calibrated),
            "tokens": {
                "in": sum(r.tokens_in for r in responses),
                "out": sum(r.tokens_out for r in responses),
            },
            "agreement": None,
        }
        if requests.noted:
            members = duplicate_members(self._tools(ctx))
            noted = noted_tools(prepared.queries, members)
            stats["agreement"] = agreement(noted, by_query, empty)
            golds = {g for r in requests.requests for g in r.gold}
            # More than 0 on the whole catalog means that ids moved under the request set.
            stats["noted_tools"] = {"known": len(golds & set(members)), "absent": len(golds - set(members))}
        return stats


def _read_shards(results: Iterable[ShardResult]) -> tuple[dict[tuple[str, str], Judged], list[ResponseRow]]:
    judged: dict[tuple[str, str], Judged] = {}
    responses: dict[str, ResponseRow] = {}
    for result in results:
        for row in read_jsonl(result.directory / "responses.jsonl"):
            response = ResponseRow(**row)
            responses[response.request_hash] = response
        for row in read_jsonl(result.directory / "verdicts.jsonl"):
            said = Judged(
                row["query_id"], row["tool_id"], row["raw"], row["reason"], responses[row["response_hash"]]
            )
            judged[said.query_id, said.tool_id] = said
    return judged, [responses[h] for h in sorted(responses)]


def _sizes(real: RealTables) -> dict[str, Any]:
    splits = Counter(q.split for q in real.queries)
    golds: dict[str, set[str]] = {}
    split_of = {q.query_id: q.split for q in real.queries}
    for row in real.qrels:
        golds.setdefault(split_of[row.query_id], set()).add(row.tool_id)
    shared = len(golds.get("val", set()) & golds.get("test", set()))
    return {
        "splits": {k: splits[k] for k in sorted(splits)},
        "query_types": dict(sorted(Counter(f"{q.split}:{q.query_type}" for q in real.queries).items())),
        "gold_tools": {k: len(golds[k]) for k in sorted(golds)},
        "gold_tools_in_val_and_test": shared,
    }
