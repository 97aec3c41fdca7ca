"""The index of a run's tools: built from its tables, extended by tools that came later, searched by text.

Nothing is trained: a new tool is encoded by the run's encoder, and its r_static (Eq. 5) is measured by the
ruler that was stored with the run, so that it is scored as the tools it joins.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ecoagent.evaluation.new_tools import NewTool
from ecoagent.evaluation.ranking import resources_of
from ecoagent.models import ModelStore
from ecoagent.reliability.score import ReliabilityScales
from ecoagent.retrieval import (
    Encoder,
    Hit,
    Recall,
    StoredEncoder,
    ToolIndex,
    load_index,
    save_index,
    store_folder,
    stored_encoder,
)
from ecoagent.retrieval.stored import keep_vectors
from ecoagent.runs import (
    RunContext,
    read_object,
    read_rows,
    read_table,
    sha256_file,
    write_table,
)
from ecoagent.schema import Record
from ecoagent.settings import UserError

FOLDER = "index"
TOOLS = "tools.parquet"
_SCORES = ("r_cons", "w_src", "r_qual", "r_static")
_DIGITS = 6
_SAME_SCORE = 1e-5


class IndexedTool(Record):
    """A tool of the index."""

    id: str
    tool_text: str
    r_cons: float | None = None
    w_src: float | None = None
    r_qual: float | None = None
    r_static: float | None = None
    added: bool = False


@dataclass(frozen=True)
class IndexReport:
    """What a build or an addition did.

    Attributes:
        tools: tools in the index now.
        added: tools that were not in it.
        changed: tools that were in it with another text or score.
        encoded: texts that no store held.
        encode_s: seconds for vectors, loading the model included.
        update_s: seconds for the index, the graph included.
        save_s: seconds for the files.
        store_bytes: what the stored vectors of this encoder take.
        recall: of the graph; none where search is exact.
    """

    tools: int
    added: int
    changed: int
    encoded: int
    encode_s: float
    update_s: float
    save_s: float
    store_bytes: int
    encoder: str
    recall: Recall | None = None


@dataclass(frozen=True)
class Found:
    """A tool that answers a request."""

    hit: Hit
    tool: IndexedTool


class RunIndex:
    """The index under ``<run>/index``. The encoder is the run's trained one, else the untrained."""

    def __init__(self, ctx: RunContext) -> None:
        self.ctx = ctx
        self.folder = ctx.paths.root / FOLDER
        self.encoder = run_encoder(ctx)

    def build(self) -> IndexReport:
        """Index every tool of the run anew; tools added to an earlier index are not kept."""
        table = read_table(self.ctx.paths.core / TOOLS, ("id", "tool_text", *_SCORES))
        tools = [
            IndexedTool(**row) for row in table.select("id", "tool_text", *_SCORES).iter_rows(named=True)
        ]
        if not tools:
            raise UserError("the run has no tools", remedy="build it with other catalogs")
        started = time.monotonic()
        vectors = self._encode([tool.tool_text for tool in tools])
        encoded = time.monotonic()
        index = ToolIndex(vectors.shape[1], self.ctx.settings.index)
        index.add([tool.id for tool in tools], vectors)
        recall = self._recall(index, build=True)
        return self._finish(index, tools, len(tools), 0, recall, (started, encoded, time.monotonic()))

    def add(self, new: Sequence[NewTool]) -> IndexReport:
        """Put tools in, or in the place of those of the same id; only texts no store holds are encoded.

        Raises:
            UserError: there is no index yet, or it was built with another encoder.
        """
        index, tools = self._load()
        started = time.monotonic()
        scored = self._scored(new)
        fresh = [tool for tool in scored if not _same(tools.get(tool.id), tool)]
        vectors = self._encode([tool.tool_text for tool in fresh])
        encoded = time.monotonic()
        added = sum(tool.id not in tools for tool in fresh)
        if fresh:
            index.add([tool.id for tool in fresh], vectors)
        recall = self._recall(index, build=False)
        kept = [*(tools | {tool.id: tool for tool in fresh}).values()]
        times = (started, encoded, time.monotonic())
        return self._finish(index, kept, added, len(fresh) - added, recall, times)

    def remove(self, ids: Sequence[str]) -> int:
        """Take tools out; returns how many are left.

        Raises:
            UserError: one is not in the index.
        """
        index, tools = self._load()
        index.remove(sorted(set(ids)))
        self._save(index, [tool for tool in tools.values() if tool.id in index])
        return len(index)

    def search(self, texts: Sequence[str], k: int) -> list[list[Found]]:
        """The ``k`` nearest tools of each request now; requests are not kept."""
        index, tools = self._load()
        vectors = self.encoder.encode_unkept(texts)
        return [[Found(hit, tools[hit.id]) for hit in row] for row in index.search_many(vectors, k)]

    # -- inside --------------------------------------------------------------------------------

    def _encode(self, texts: list[str]) -> Any:
        count = len(set(texts))
        with self.ctx.progress.task("index: tools encoded", total=count, unit="texts") as task:
            return self.encoder.encode_documents(texts, task.advance)

    def _load(self) -> tuple[ToolIndex, dict[str, IndexedTool]]:
        loaded = load_index(self.folder, self.ctx.settings.index)
        if loaded.about.get("identity") != self.encoder.identity:
            raise UserError(
                f"the index of run {self.ctx.paths.root.name!r} was built with another encoder "
                f"({loaded.about.get('encoder')}) or on another machine",
                remedy="build it anew with `ecoagent index build`",
            )
        if TOOLS not in loaded.extra:
            raise UserError(f"{self.folder} lacks its table of tools", remedy="run `ecoagent index build`")
        if loaded.about.get("tools") != sha256_file(self.ctx.paths.core / TOOLS):
            self.ctx.progress.say(
                "index: the run's tools were made anew since; `ecoagent index build` takes them"
            )
        rows = read_rows(loaded.extra[TOOLS], IndexedTool, remedy="run `ecoagent index build`")
        return loaded.index, {row.id: row for row in rows}

    def _save(self, index: ToolIndex, tools: Iterable[IndexedTool]) -> None:
        ordered = sorted(tools, key=lambda tool: tool.id)
        save_index(
            index,
            self.folder,
            about={
                "encoder": self.encoder.name,
                "identity": self.encoder.identity,
                "tools": sha256_file(self.ctx.paths.core / TOOLS),
            },
            extra={TOOLS: lambda path: write_table(path, ordered, IndexedTool)},
        )

    def _finish(
        self,
        index: ToolIndex,
        tools: Sequence[IndexedTool],
        added: int,
        changed: int,
        recall: Recall | None,
        times: tuple[float, float, float],
    ) -> IndexReport:
        started, encoded, updated = times
        self._save(index, tools)
        return IndexReport(
            tools=len(index),
            added=added,
            changed=changed,
            encoded=self.encoder.encoded,
            encode_s=round(encoded - started, 3),
            update_s=round(updated - encoded, 3),
            save_s=round(time.monotonic() - updated, 3),
            store_bytes=self.encoder.size().bytes,
            encoder=self.encoder.name,
            recall=recall,
        )

    def _recall(self, index: ToolIndex, *, build: bool) -> Recall | None:
        """Recall of the graph on the run's own queries, where the index is large enough to have one."""
        chosen = self.ctx.settings.index
        if len(index) <= chosen.exact_limit:
            return None
        if build:
            index.build_graph()
        path = self.ctx.paths.core / "syn_queries.parquet"
        texts = read_table(path, ("text",))["text"].sort().to_list() if path.is_file() else []
        if not texts:
            return None
        step = max(1, len(texts) // chosen.sample)
        return index.graph_recall(self.encoder.encode_queries(texts[::step][: chosen.sample]))

    def _scored(self, new: Sequence[NewTool]) -> list[IndexedTool]:
        """The tools with the scores of the run's ruler."""
        told = [tool for tool in new if tool.name is not None and tool.description is not None]
        scores: dict[str, Mapping[str, float]] = {}
        if told:
            settings = self.ctx.settings.reliability
            sbert = stored_encoder(self.ctx.settings, settings.encoder, self.ctx.progress, pooling="mean")
            texts = [str(tool.name) for tool in told] + [str(tool.description) for tool in told]
            vectors, ruler = sbert.encode_documents(texts), read_ruler(self.ctx)
            for tool, name, description in zip(told, vectors, vectors[len(told) :], strict=False):
                found = ruler.score_new(
                    name,
                    description,
                    source=tool.source,
                    description=str(tool.description),
                    tags=tool.tags,
                    settings=settings,
                )
                scores[tool.id] = {key: round(getattr(found, key), _DIGITS) for key in _SCORES}
        return [
            IndexedTool.model_validate(
                {"id": t.id, "tool_text": t.tool_text, "added": True, **scores.get(t.id, {})}
            )
            for t in new
        ]


def _same(old: IndexedTool | None, new: IndexedTool) -> bool:
    """Whether an addition changes nothing; a text alone takes no score away."""
    if old is None or old.tool_text != new.tool_text:
        return False
    if new.r_static is None or old.r_static is None:
        return new.r_static is None
    return abs(old.r_static - new.r_static) < _SAME_SCORE


def run_encoder(ctx: RunContext, among: Sequence[str] = ("siamese", "rated")) -> StoredEncoder:
    """An encoder of the run behind its stored vectors: the first that is trained, else the untrained one.

    That the siamese encoder is the better one is measured by ``ecoagent ablate encoder``.

    Args:
        ctx: the run.
        among: rankers whose encoders will do, the best first.
    """
    settings, store, resources = ctx.settings.train, ModelStore(ctx.settings.models), resources_of(ctx)
    trained = {"siamese": resources.siamese, "rated": resources.trained}
    which, folder = next(
        ((name, trained[name]) for name in among if trained[name] is not None), ("encoder", None)
    )
    if folder is not None:
        files = sorted(p for p in folder.rglob("*") if p.is_file())
        weights: Any = {p.relative_to(folder).as_posix(): sha256_file(p) for p in files}
    else:
        weights = {n: store.digest(n) for n in (settings.query_encoder, settings.tool_encoder)}
        weights |= settings.model_dump(include={"pooling", "max_length", "query_prefix", "tool_prefix"})
    if which == "siamese" and settings.siamese.expansion_weight > 0:
        weights["expansion"] = settings.siamese.expansion_weight

    def load() -> Encoder:
        return resources.encoder_of(which)

    names = {
        "siamese": "siamese encoder",
        "rated": "trained towers",
        "encoder": " + ".join(dict.fromkeys((settings.query_encoder, settings.tool_encoder))),
    }
    return keep_vectors(names[which], weights, store_folder(ctx.settings), load)


def read_ruler(ctx: RunContext) -> ReliabilityScales:
    """The scales that lengths of documentation were measured by in this run.

    Raises:
        UserError: they are missing or damaged.
    """
    fields = ReliabilityScales.__dataclass_fields__
    remedy = f"run `ecoagent score --run {ctx.paths.root.name}` first"
    found = read_object(
        ctx.paths.core / "reliability_scales.json", dict.fromkeys(fields, (int, float)), remedy=remedy
    )
    return ReliabilityScales(**{name: found[name] for name in fields})
