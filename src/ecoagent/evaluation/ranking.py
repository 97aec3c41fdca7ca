"""Runs of the rankers of a run: on what each hangs, made once, and what could not be had."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from ecoagent.evaluation.datasets import load_core
from ecoagent.evaluation.offline import NotRun, Ranked, all_queries, check_rankers, judged_splits
from ecoagent.evaluation.train_stage import MODEL_LOCK, SIAMESE, model_folder
from ecoagent.models import ModelStore
from ecoagent.retrieval import RERANK_TOP, NotAvailable, RankedRun, RankerResources, find_ranker, first_stage
from ecoagent.retrieval.analysis import ANALYSIS_NOTES
from ecoagent.runs import RunContext, digest, sha256_file
from ecoagent.settings import Settings, UserError

_OWN_SETTINGS = {"query_encoder", "tool_encoder", "pooling", "max_length", "query_prefix", "tool_prefix"}
"""Settings of ``train`` that the run's own encoders are loaded with."""


class Rankings:
    """Runs of rankers over every judged query of a run.

    A ranker that others start from (the first stage of a reranker, the parts of a hybrid) is run once.
    """

    def __init__(self) -> None:
        self._digests: dict[str, str] = {}
        self._known: dict[str, RankedRun] = {}

    def standing(self, ctx: RunContext, name: str) -> dict[str, Any]:
        """What a ranker runs with here, or why it cannot: JSON-able, part of stage keys.

        Pulls nothing and asks no network: weights that may be fetched count as there.
        """
        settings, store = ctx.settings, ModelStore(ctx.settings.models)
        ranker = find_ranker(name)
        found: dict[str, Any] = {
            "declared": asdict(ranker.declared),
            "fault": ranker.fault(settings.train, settings.baselines, store),
            "parts": [self.standing(ctx, part) for part in ranker.parts(settings.train)],
        }
        if name == SIAMESE:
            found["siamese"] = settings.train.siamese.model_dump(mode="json")
        if ranker.lexical:
            found["analysis"] = settings.baselines.lexical
        if ranker.own:
            found["own"] = settings.train.model_dump(mode="json", include=_OWN_SETTINGS)
        if ranker.declared.kind == "endpoint":
            found["endpoint"] = [settings.baselines.base_url, settings.baselines.model]
        if found["fault"] is None:
            found["weights"] = {m: self._digest(store, m) for m in ranker.models(settings.train)}
        return found

    def _digest(self, store: ModelStore, name: str) -> str:
        # Some are sums over gigabytes, and keys are made several times.
        if name not in self._digests:
            self._digests[name] = store.digest(name)
        return self._digests[name]

    def find(self, ctx: RunContext, name: str, inputs: str) -> Ranked:
        """A ranker's run, ``evaluate.depth`` deep, or why there is none.

        Args:
            ctx: the run.
            name: the ranker.
            inputs: digest of the tables and the training behind it.

        Raises:
            UserError: one of the run's own encoders is missing.
        """
        settings = ctx.settings
        fault = find_ranker(name).fault(settings.train, settings.baselines, ModelStore(settings.models))
        if fault is not None:
            return NotRun(name, fault)
        try:
            return self._run_of(ctx, name, inputs).top(settings.evaluate.depth)
        except NotAvailable as error:
            return NotRun(name, error.message, again=True)

    def _run_of(self, ctx: RunContext, name: str, inputs: str) -> RankedRun:
        settings = ctx.settings
        key = digest([inputs, settings.limit, settings.evaluate.depth, self.standing(ctx, name)])
        with MODEL_LOCK:
            if key not in self._known:
                self._known[key] = self._made(ctx, name, inputs)
            return self._known[key]

    def _made(self, ctx: RunContext, name: str, inputs: str) -> RankedRun:
        settings = ctx.settings
        data = load_core(ctx.paths.core, need_pairs=False)
        queries = all_queries(judged_splits(data, settings.limit))
        ranker = find_ranker(name)
        resources = replace(resources_of(ctx), run_of=lambda part: self._run_of(ctx, part, inputs))
        depth = max(settings.evaluate.depth, RERANK_TOP)
        total = ranker.work(settings.train, queries, data.tools)
        if not total:
            return ranker.rank(resources, queries, data.tools, depth, None)
        unit = "pairs" if ranker.declared.kind == "reranker" else "texts"
        with ctx.progress.task(f"evaluate: {name}", total=total, unit=unit) as task:
            return ranker.rank(resources, queries, data.tools, depth, task.advance)


def ranker_keys(ctx: RunContext, names: Sequence[str]) -> dict[str, str]:
    """What identifies each ranker's weights and settings: ``Rankings.standing``, and the towers it trained.

    Raises:
        UserError: a ranker is unknown, or is RATED's and this run has no trained towers; one of the
            run's own encoders is missing.
    """
    check_rankers(names)
    rankings = Rankings()
    trained: dict[str, Any] = {}
    keys = {}
    for name in names:
        content: dict[str, Any] = {"standing": rankings.standing(ctx, name)}
        kind = find_ranker(name).declared.kind
        if find_ranker(name).trained:
            if kind not in trained:
                # The siamese encoder may be missing: then its row says so.
                trained[kind] = _files(model_folder(ctx, SIAMESE)) if kind == SIAMESE else _trained(ctx, name)
            content["trained"] = trained[kind]
        keys[name] = digest(content)
    return keys


def _trained(ctx: RunContext, ranker: str) -> dict[str, str]:
    folder = model_folder(ctx)
    if not folder.is_dir():
        raise UserError(
            f"run {ctx.settings.run_name!r} has no trained towers, and ranker {ranker!r} needs them",
            remedy="run `ecoagent train` first, name the run with --run, or leave the trained rankers out: "
            """--set 'evaluate.rankers=["tfidf", "bm25", "encoder"]'""",
        )
    return _files(folder)


def _files(folder: Path) -> dict[str, str]:
    return {
        p.relative_to(folder).as_posix(): sha256_file(p) for p in sorted(folder.rglob("*")) if p.is_file()
    }


def resources_of(ctx: RunContext) -> RankerResources:
    """What rankers of a run draw on: the store's weights, the towers it trained, its endpoint."""
    store = ModelStore(ctx.settings.models)
    trained, siamese = model_folder(ctx), model_folder(ctx, SIAMESE)
    return RankerResources(
        ctx.settings.train,
        lambda name: store.path(name, ctx.progress),
        trained if trained.is_dir() else None,
        ctx.settings.baselines,
        siamese=siamese if siamese.is_dir() else None,
    )


def faults(settings: Settings) -> dict[str, str]:
    """Rankers asked for that cannot run here, and why, as far as settings and the store say."""
    store = ModelStore(settings.models)
    found = {
        name: find_ranker(name).fault(settings.train, settings.baselines, store)
        for name in settings.evaluate.rankers
    }
    return {name: fault for name, fault in found.items() if fault}


def ranking_notes(settings: Settings, missing: list[NotRun]) -> list[str]:
    """What a reader of the table has to know of rankers that start from others, or did not run."""
    names = settings.evaluate.rankers
    composed = [find_ranker(name) for name in names if find_ranker(name).parts(settings.train)]
    notes = [f"{ranker.label(settings.train)}: {ranker.declared.notes}" for ranker in composed]
    if composed:
        first = find_ranker(first_stage(settings.train)).label(settings.train)
        notes.append(f"The dense first stage is {first}.")
    notes += lexical_notes(settings, names)
    if missing:
        notes.append(f"{len(missing)} of {len(names)} rankers were not run; their rows say why.")
    return notes


def lexical_notes(settings: Settings, names: Iterable[str]) -> list[str]:
    """How rankers that go by words, or start from one that does, make them; none where there is none."""
    rankers = [find_ranker(name) for name in names]
    parts = [find_ranker(part) for ranker in rankers for part in ranker.parts(settings.train)]
    if not any(ranker.lexical for ranker in (*rankers, *parts)):
        return []
    analysis = settings.baselines.lexical
    return [f"Words of TF-IDF and BM25 (baselines.lexical = {analysis}): {ANALYSIS_NOTES[analysis]}"]
