"""Stage ``synthesize``: scored tools to EcoAgent-Syn."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from ecoagent.labeling.calibrate import Calibration, find_calibration
from ecoagent.labeling.estimate import verification_cost
from ecoagent.labeling.verify import ToolCard, prompt_sha256
from ecoagent.llm import (
    EngineCounters,
    answered_by_reference,
    counters_of,
    engine_record,
    estimate_cost,
    open_engine,
    open_reference,
    unanswered_first,
)
from ecoagent.models import ModelStore
from ecoagent.prompts import prompt_marks
from ecoagent.reliability.sbert import load_sbert
from ecoagent.runs import (
    RunContext,
    Shard,
    ShardResult,
    Stage,
    StageReport,
    bucket,
    digest,
    read_json,
    read_jsonl,
    read_rows,
    write_json,
    write_jsonl,
    write_table,
)
from ecoagent.schema import (
    PairRow,
    QrelRow,
    QueryRow,
    RejectRow,
    ResponseRow,
    ScoredTool,
    catalog_of,
)
from ecoagent.synthesis.assemble import assemble
from ecoagent.synthesis.check import keep_verified, verify_queries
from ecoagent.synthesis.filters import Query, Rejected
from ecoagent.synthesis.generate import Coverage, ToolSource, as_row, generate
from ecoagent.synthesis.plan import (
    ToolFacts,
    by_group,
    choose_tools,
    facts_of,
    first_asks,
    lines_per_intent,
    live_tools,
    request_of,
)

TYPICAL_QUERY = (
    "Search the minutes of the last board meeting for the budget of the Oslo office and mail me that."
)
"""Stands for queries not yet written: 19 words and about 100 characters, as the median of 4,511 has."""


class SynthesizeStage(Stage):
    """Queries for the chosen tools, filtered, deduplicated, split, with negatives."""

    name: ClassVar[str] = "synthesize"
    version: ClassVar[str] = "3"
    sections: ClassVar[tuple[str, ...]] = ("synthesis", "llm", "flow")

    def __init__(self) -> None:
        self._before = EngineCounters()
        self._lock = threading.Lock()
        self._read: tuple[Any, dict[str, ScoredTool], dict[str, list[ScoredTool]]] | None = None

    def inputs(self, ctx: RunContext) -> list[Path]:
        """The scored tools."""
        return [ctx.paths.core / "tools.parquet"]

    def extra_key(self, ctx: RunContext) -> dict[str, Any]:
        """Digests of the prompts, of the weights, of published responses and of the calibration."""
        store, encoder = ModelStore(ctx.settings.models), ctx.settings.synthesis.encoder
        prompts = {k: v for k, v in prompt_marks().items() if k.startswith("synthesize_")}
        reference = open_reference(ctx.settings.llm.reference)
        calibration = self._calibration(ctx)
        return {
            "prompts": prompts,
            "encoder": {encoder: store.digest(encoder)},
            "reference": None if reference is None else reference.digest,
            "verifier": self._verifier(ctx),
            "calibration": None if calibration is None else digest(calibration.model_dump(mode="json")),
        }

    def plan(self, ctx: RunContext) -> list[Shard]:
        """One shard per catalog and hash bucket of about ``flow.tools_per_shard`` tools."""
        self._before = counters_of(ctx.settings)
        tools = self._tools(ctx)
        catalogs: dict[str, list[str]] = {}
        for tool_id in self._chosen(ctx, tools):
            catalogs.setdefault(catalog_of(tools[tool_id].source), []).append(tool_id)
        shards = []
        for catalog, ids in sorted(catalogs.items()):
            count = -(-len(ids) // ctx.settings.flow.tools_per_shard)
            for number in range(count):
                members = tuple(sorted(i for i in ids if bucket(i, count) == number))
                if members:
                    shards.append(Shard(f"{catalog}-{number:03d}", members))
        return shards

    def shard_content(self, ctx: RunContext, shard: Shard) -> Any:
        """Digest of what the shard's prompts and filters see: another tool's change redoes nothing."""
        live = self._live(ctx)
        seen = {i: [digest(as_plain(s)), i in live] for i, s in self._sources(ctx, shard.ids).items()}
        if not ctx.settings.synthesis.verify_queries:
            return seen
        # The verifier is told more of a tool than the generator: all operations, the group in any case.
        tools = self._tools(ctx)
        return {i: [*known, digest(vars(ToolCard.of(tools[i])))] for i, known in seen.items()}

    def estimate(self, ctx: RunContext) -> dict[str, Any]:
        """Requests, tokens and minutes of the first round, and at most what verifying its lines takes."""
        if not self.inputs(ctx)[0].is_file():
            return {"note": "known once `ecoagent score` has run"}
        settings = ctx.settings
        tools = self._tools(ctx)
        chosen = self._chosen(ctx, tools)
        sources = self._sources(ctx, tuple(chosen))
        asks = first_asks(chosen, settings.synthesis)
        live = self._live(ctx)
        requests = [
            request_of(
                a, sources[a.tool_id].facts, settings.synthesis, seed=settings.seed, live=a.tool_id in live
            )
            for a in asks
        ]
        cost = estimate_cost(requests, settings)
        # Published responses hold the verdicts of the tools whose lines they hold.
        published = answered_by_reference(settings.llm, requests)
        anew = sorted({a.tool_id for a, said in zip(asks, published, strict=True) if not said})
        found = {"tools": len(chosen), "generated_anew": len(anew), **cost.as_record()}
        if settings.synthesis.verify_queries and anew:
            lines = min(sum(lines_per_intent(settings.synthesis)), settings.synthesis.max_queries_per_tool)
            cards = [ToolCard.of(tools[i]) for i in anew]
            asked = verification_cost(settings, cards, [TYPICAL_QUERY], lines * len(cards)).as_record()
            # What the store answers cannot be told: the texts are not yet known.
            found |= {
                f"verification_{k}_at_most": v
                for k, v in asked.items()
                if k not in ("speed", "answered_by_the_store")
            }
        return found

    def run_shard(self, ctx: RunContext, shard: Shard, directory: Path) -> None:
        """Generate for the shard's tools; every line ends up accepted or rejected with a reason."""
        settings = ctx.settings
        engine = open_engine(settings, ctx.progress)
        made = generate(
            self._sources(ctx, shard.ids),
            engine,
            settings.synthesis,
            seed=settings.seed,
            live=self._live(ctx),
            label=f"synthesize {shard.key}",
        )
        unscored: dict[str, int] = {}
        if settings.synthesis.verify_queries:
            tools = self._tools(ctx)
            verified = verify_queries(
                engine,
                made.queries,
                {i: ToolCard.of(tools[i]) for i in shard.ids},
                settings.labeling.verifier_form,
                max_tokens=settings.labeling.verifier_max_tokens,
                label=f"round trip {shard.key}",
            )
            made.queries, refused = keep_verified(verified.queries, settings.synthesis.min_verifier_raw)
            made.rejects += refused
            made.responses += verified.responses
            for name, number in verified.stats.items():
                made.stats[name] = made.stats.get(name, 0) + number
            unscored = verified.unscored
        write_jsonl(directory / "lines.jsonl", map(as_row, made.queries))
        write_jsonl(directory / "rejects.jsonl", map(as_row, made.rejects))
        write_jsonl(directory / "responses.jsonl", made.responses)
        write_jsonl(directory / "coverage.jsonl", map(as_row, made.coverage))
        write_json(directory / "stats.json", made.stats)
        write_json(directory / "unscored.json", unscored)

    def shard_finished(self, directory: Path) -> bool:
        """Whether every request was answered: those that were not are asked again."""
        return all(row["status"] == "ok" for row in read_jsonl(directory / "responses.jsonl"))

    def merge(self, ctx: RunContext, results: list[ShardResult]) -> StageReport:
        """Deduplicate over all shards, judge, split, mine negatives, and write the tables."""
        lines: list[Query] = []
        rejects: list[Rejected] = []
        coverage: list[Coverage] = []
        responses: dict[str, ResponseRow] = {}
        tokens: Counter[str] = Counter()
        unscored: Counter[str] = Counter()
        unanswered = 0
        for result in results:
            folder = result.directory
            lines += [Query(**{**r, "flags": tuple(r["flags"])}) for r in read_jsonl(folder / "lines.jsonl")]
            rejects += [Rejected(**r) for r in read_jsonl(folder / "rejects.jsonl")]
            coverage += [Coverage(**r) for r in read_jsonl(folder / "coverage.jsonl")]
            for row in read_jsonl(folder / "responses.jsonl"):
                responses[row["request_hash"]] = ResponseRow.model_validate(row)
                unanswered += row["status"] != "ok"
            tokens.update(read_json(folder / "stats.json"))
            unscored.update(read_json(folder / "unscored.json"))
        with unanswered_first(responses.values(), ctx.settings.llm):
            encoder = load_sbert(ctx, ctx.settings.synthesis.encoder)
            calibration = self._calibration(ctx)
            tables = assemble(
                list(self._tools(ctx).values()),
                lines,
                rejects,
                coverage,
                (encoder.encode_queries, encoder.encode_documents),
                ctx.settings.synthesis,
                probability=None if calibration is None else calibration.probability,
                seed=ctx.settings.seed,
            )
        core = ctx.paths.core
        outputs = [
            write_table(core / "syn_queries.parquet", tables.queries, QueryRow),
            write_table(core / "syn_qrels.parquet", tables.qrels, QrelRow),
            write_table(core / "syn_pairs.parquet", tables.pairs, PairRow),
            write_table(core / "syn_rejects.parquet", tables.rejects, RejectRow),
            write_table(
                core / "syn_responses.parquet", [responses[h] for h in sorted(responses)], ResponseRow
            ),
            write_json(core / "syn_coverage.json", tables.coverage),
        ]
        return StageReport(
            outputs,
            rows={
                "queries": len(tables.queries),
                "qrels": len(tables.qrels),
                "pairs": len(tables.pairs),
                "responses": len(responses),
            },
            rejects=tables.summary["rejects_by_reason"],
            tokens=dict(sorted(tokens.items())),
            summary={
                **tables.summary,
                "unverified_by_reason": dict(sorted(unscored.items())),
                "incomplete": unanswered,
            },
            engine=engine_record(ctx.settings, self._before),
        )

    def _calibration(self, ctx: RunContext) -> Calibration | None:
        """The map from the verifier's score to a probability, where there is one for this verifier."""
        settings = ctx.settings
        if not settings.synthesis.verify_queries:
            return None
        labeling = settings.labeling
        return find_calibration(
            settings.llm.model, labeling.encoder, labeling.verifier_form, labeling.calibration
        )

    def _verifier(self, ctx: RunContext) -> list[Any] | None:
        """What the verifier is asked, where queries are verified."""
        labeling = ctx.settings.labeling
        if not ctx.settings.synthesis.verify_queries:
            return None
        return [labeling.verifier_form, labeling.verifier_max_tokens, prompt_sha256(labeling.verifier_form)]

    def _live(self, ctx: RunContext) -> frozenset[str]:
        """Tools generated anew, where there are published responses; without them everything is."""
        if ctx.settings.llm.reference is None:
            return frozenset()
        tools = self._tools(ctx)
        sources = {i: tools[i].source for i in self._chosen(ctx, tools)}
        return live_tools(sources, ctx.settings.synthesis.live_per_catalog, seed=ctx.settings.seed)

    def _tools(self, ctx: RunContext) -> dict[str, ScoredTool]:
        return self._catalog(ctx)[0]

    def _catalog(self, ctx: RunContext) -> tuple[dict[str, ScoredTool], dict[str, list[ScoredTool]]]:
        """The tools by id and by group: read once a process, since every shard looks at all of them."""
        path = self.inputs(ctx)[0]
        state = path.stat()
        stamp = (str(path.resolve()), state.st_mtime_ns, state.st_size)
        with self._lock:
            if self._read is None or self._read[0] != stamp:
                tools = {t.id: t for t in read_rows(path, ScoredTool)}
                self._read = (stamp, tools, by_group(tools.values()))
            return self._read[1:]

    def _chosen(self, ctx: RunContext, tools: dict[str, ScoredTool]) -> list[str]:
        settings = ctx.settings
        return choose_tools(
            list(tools.values()), settings.synthesis, seed=settings.seed, limit=settings.limit
        )

    def _sources(self, ctx: RunContext, ids: tuple[str, ...]) -> dict[str, ToolSource]:
        tools, groups = self._catalog(ctx)
        return tool_sources(tools, groups, ids)


def tool_sources(
    tools: Mapping[str, ScoredTool], groups: Mapping[str, Sequence[ScoredTool]], ids: Iterable[str]
) -> dict[str, ToolSource]:
    """What generation needs of some tools, by id."""
    return {i: _tool_source(tools[i], facts_of(tools[i], groups[tools[i].group_id])) for i in ids}


def _tool_source(tool: ScoredTool, facts: ToolFacts) -> ToolSource:
    """What generation needs of a tool; its leaking names are all forms it goes by."""
    names = dict.fromkeys((facts.name, tool.name, tool.display_name or tool.name))
    return ToolSource(facts, tool.description, tuple(names))


def as_plain(source: ToolSource) -> dict[str, Any]:
    """A tool's generation inputs as plain values, for digests."""
    return {"facts": vars(source.facts), "description": source.description, "names": source.names}
