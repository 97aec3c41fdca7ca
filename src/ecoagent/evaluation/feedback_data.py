"""What TR-Feedback is trained and judged on: tools, categories held out, queries by domain."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ecoagent.evaluation.datasets import EvalData, load_core
from ecoagent.feedback import (
    PROMPTS,
    Heard,
    IterationRow,
    ShownTool,
    categories_of,
    domain_of,
    hold_out,
    shown_tool,
)
from ecoagent.labeling.verify import ToolCard
from ecoagent.llm import StoredEngine, open_engine, open_reference
from ecoagent.prompts import prompt_marks
from ecoagent.retrieval import TextSet, TrainingRow
from ecoagent.runs import RunContext, read_jsonl, read_rows, write_json, write_jsonl
from ecoagent.schema import FeedbackRow, ResponseRow, ScoredTool
from ecoagent.settings import FeedbackSettings, Settings, UserError

LATENCY = "feedback_latency.json"
ROWS, RESPONSES = "rows.jsonl", "responses.jsonl"
MANY = 256
"""Queries of a batch where the engine batches by itself."""
DOMAIN_SPLITS: Mapping[str, tuple[tuple[str, str], ...]] = {
    "in_domain": (("syn", "test"),),
    "out_of_domain": (("syn", "test"), ("syn", "cold")),
    "real": (("real", "test"),),
}


@dataclass(frozen=True)
class FeedbackData:
    """Tables of a run with their categories."""

    data: EvalData
    categories: Mapping[str, str]
    """Tool to category."""
    held: frozenset[str]
    """Categories held out of training."""
    shown: Mapping[str, ShownTool]
    """Tools as the critic sees them."""

    def domain(self, query: str) -> str:
        """in_domain, out_of_domain or mixed, by the golds of a query."""
        return domain_of(self.data.golds[query], self.categories, self.held)

    def queries(self, domain: str, limit: int | None) -> TextSet:
        """Test queries of a domain that have a gold, the first ``limit`` by id, which is a hash."""
        found: dict[str, str] = {}
        for set_name, split in DOMAIN_SPLITS[domain]:
            part = self.data.judged(set_name, split)
            found |= {
                i: text
                for i, text in zip(part.ids, part.texts, strict=True)
                if domain == "real" or self.domain(i) == domain
            }
        ids = tuple(sorted(found)[:limit])
        return TextSet(ids, tuple(found[i] for i in ids))

    def seen(self, split: str, limit: int | None = None) -> TextSet:
        """Syn queries of a split whose golds are all of trained categories."""
        part = self.data.judged("syn", split)
        kept = [(i, t) for i, t in zip(part.ids, part.texts, strict=True) if self.domain(i) == "in_domain"][
            :limit
        ]
        return TextSet(tuple(i for i, _ in kept), tuple(t for _, t in kept))

    def mixed(self, domain: str) -> int:
        """Queries of a domain's splits left out because their golds are of both kinds."""
        if domain == "real":
            return 0
        return sum(
            self.domain(i) == "mixed" for split in DOMAIN_SPLITS[domain] for i in self.data.judged(*split).ids
        )

    def rows(self, settings: FeedbackSettings, texts: Mapping[str, Mapping[int, str]]) -> list[IterationRow]:
        """Training rows: those of rewritten queries first, then by query and tool.

        Args:
            settings: ``train_pairs`` is read.
            texts: query to its rewritten texts by iteration, without iteration 0.
        """
        data, queries = self.data, self.seen("train")
        tool_texts, found = data.tool_texts, []
        for query, text in zip(queries.ids, queries.texts, strict=True):
            groups = frozenset(data.groups[tool] for tool in data.golds[query])
            said = {0: text, **texts.get(query, {})}
            # One row a group: its copies are one tool, and the smallest id stands for them.
            golds = {data.groups[tool]: tool for tool in sorted(data.golds[query], reverse=True)}
            for group, tool in sorted(golds.items()):
                pair = TrainingRow(query, text, tool, tool_texts[tool], (), group, groups)
                found.append(IterationRow(pair, said))
        found.sort(key=lambda row: (row.pair.query_id not in texts, row.pair.query_id, row.pair.tool_id))
        return found[: settings.train_pairs]


def tables(ctx: RunContext) -> list[Path]:
    """Tables of the run that are read."""
    names = ["syn_qrels", "syn_queries", "tools"]
    if (ctx.paths.core / "real_queries.parquet").is_file():
        names += ["real_qrels", "real_queries"]
    return [*(ctx.paths.core / f"{name}.parquet" for name in names)]


def load_feedback(ctx: RunContext) -> FeedbackData:
    """The tables of a run, with categories and what is held out.

    Raises:
        UserError: a table is missing, or no category is left to train on.
    """
    settings = ctx.settings.feedback
    data = load_core(ctx.paths.core, need_pairs=False)
    tools = read_rows(ctx.paths.core / "tools.parquet", ScoredTool)
    categories = categories_of(tools, settings.category)
    held = hold_out(categories, settings.held_out, ctx.settings.seed)
    if len(held) == len(set(categories.values())):
        raise UserError("every category is held out of training", remedy="lower feedback.held_out")
    shown = {t.id: shown_tool(ToolCard.of(t), settings.description_words) for t in tools}
    return FeedbackData(data, categories, held, shown)


def prompts_and_reference(settings: Settings) -> dict[str, Any]:
    """The part of a stage key that its questions make."""
    marks, reference = prompt_marks(), open_reference(settings.llm.reference)
    return {
        "prompts": {name: marks[name] for name in PROMPTS},
        "reference": None if reference is None else reference.digest,
    }


def critics_of(settings: Settings) -> tuple[str, ...]:
    """Critic models, in the order of the result."""
    return settings.feedback.critics or (settings.llm.model,)


def with_critic(settings: Settings, critic: str) -> Settings:
    """The settings with another model behind the engine."""
    return settings.model_copy(update={"llm": settings.llm.model_copy(update={"model": critic})})


def critic_engine(ctx: RunContext, critic: str) -> StoredEngine:
    """The engine of a critic. Its own progress line is off: questions come in small batches."""
    engine = open_engine(with_critic(ctx.settings, critic), ctx.progress)
    engine.progress = None
    return engine


def batch_of(settings: Settings) -> int:
    """Queries whose turns follow each other: as many as the engine holds conversations of."""
    llm = settings.llm
    if llm.engine == "vllm":
        return MANY
    return llm.concurrency * max(1, len(llm.base_urls) + bool(llm.base_url))


def write_feedback(directory: Path, rows: Sequence[FeedbackRow], responses: Sequence[ResponseRow]) -> None:
    """q_t and answers of a shard."""
    write_jsonl(directory / ROWS, rows)
    write_jsonl(directory / RESPONSES, responses)


def read_feedback(directory: Path) -> tuple[list[FeedbackRow], list[ResponseRow]]:
    """What ``write_feedback`` wrote."""
    return (
        [FeedbackRow.model_validate(row) for row in read_jsonl(directory / ROWS)],
        [ResponseRow.model_validate(row) for row in read_jsonl(directory / RESPONSES)],
    )


def answered(directory: Path) -> bool:
    """Whether every question of a shard was answered: those that were not are put again."""
    path = directory / RESPONSES
    return not path.is_file() or all(row["status"] == "ok" for row in read_jsonl(path))


class Timer:
    """Adds up what the loop took, by critic and iteration, over all calls on a run.

    Times differ from run to run, so they stand in ``raw/`` and not among the results. Stored answers take no
    part: a replay leaves the file as it was.
    """

    def __init__(self, ctx: RunContext, critic: str) -> None:
        self._path, self._critic = ctx.paths.raw / LATENCY, critic

    def __call__(self, heard: Heard) -> None:
        """Count a batch, and write."""
        if not heard.asked and not heard.searched:
            return
        content = read_latency(self._path)
        name = "asked" if heard.asked else "searched"
        own = content.setdefault(self._critic, {}).setdefault(str(heard.iteration), {})
        seconds = heard.seconds if heard.asked else heard.search_s
        own[name] = own.get(name, 0) + (heard.asked or heard.searched)
        own[f"{name}_s"] = round(own.get(f"{name}_s", 0.0) + seconds, 4)
        if heard.asked:
            own["queries"] = own.get("queries", 0) + heard.queries
        write_json(self._path, content)


def read_latency(path: Path) -> dict[str, Any]:
    """The times so far; empty where there are none, or the file is damaged: they can be measured again."""
    try:
        found = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}
