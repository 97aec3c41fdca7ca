"""The labeller judged before it is trusted: the chain run on a set whose right tools are known.

Queries are drawn in a stratified order (``judge_sample``) and judged in batches until enough pairs were
judged and kept, for every encoder. The pairs that any encoder proposes are verified once and serve all.
Whatever the verifier has answered is in the store of responses: an interrupted run goes on where it was.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ecoagent.labeling.calibrate import Calibration, auc, find_calibration
from ecoagent.labeling.candidates import CandidatePair, find_candidates
from ecoagent.labeling.judge_report import (
    STAGES,
    LabellerReport,
    QueryCounts,
    StageName,
    StratumReport,
    stage_counts,
)
from ecoagent.labeling.judge_sample import LabelledQuery, LabelledSet, draw_order, weights
from ecoagent.labeling.verify import UNPARSABLE, Judged, prompt_sha256, verify_pairs
from ecoagent.llm import AsksModel, open_engine
from ecoagent.models import ModelStore
from ecoagent.retrieval.encoders import Encoder
from ecoagent.retrieval.stored import stored_encoder
from ecoagent.runs import Progress
from ecoagent.settings import Settings, UserError

PAIRS = 1000
KEPT = 385
"""Kept pairs that hold the half-width of precision at 5 points, whatever its value."""
MOST = 4
"""Pairs verified at most, as a multiple of the pairs wanted to be judged or kept."""
FIRST = 50
"""Queries of the first batch."""
BATCH = (10, 200)
"""Queries a later batch, at least and at most: in a large one, more pairs share a tool and its prompt."""
Pair = tuple[str, str]


@dataclass(frozen=True)
class Chain:
    """A labelling chain, but for what all chains of a run share.

    Attributes:
        min_cosine: candidates of the encoder below it are dropped.
        cosine_from: where it comes from, in words.
        calibration: map from raw score to probability; none = raw scores only.
    """

    encoder: str
    min_cosine: float
    cosine_from: str
    calibration: Calibration | None


@dataclass(frozen=True)
class ChainPair:
    """A proposed pair and what the chain made of it."""

    candidate: CandidatePair
    passed: bool
    raw: float | None
    probability: float | None
    kept: bool
    reason: str | None
    right: bool


@dataclass(frozen=True)
class Evaluation:
    """Outcome for one chain.

    Attributes:
        pairs: all proposed pairs, by query and tool.
    """

    report: LabellerReport
    pairs: tuple[ChainPair, ...]


def chain_of(settings: Settings, name: str, min_cosine: float | None = None) -> Chain:
    """The chain behind an encoder.

    Its cosine is the one given, else that of the settings if it is their encoder, else the one proposed by
    its calibration. An encoder without a calibration borrows the map of the settings' encoder: the map is
    of the verifier's score, and the report says whose it is.

    Raises:
        UserError: calibrated scores decide and there is no calibration; or there is no cosine.
    """
    labeling, model = settings.labeling, settings.llm.model
    own = find_calibration(model, name, labeling.verifier_form, labeling.calibration)
    found = own or find_calibration(model, labeling.encoder, labeling.verifier_form, labeling.calibration)
    if found is None and labeling.verifier_score == "calibrated":
        raise UserError(
            f"no calibration of {model!r} behind {name!r} or {labeling.encoder!r} for the present prompt "
            f"verify_{labeling.verifier_form}",
            remedy="set labeling.verifier_score = raw, or calibrate and set labeling.calibration",
        )
    if min_cosine is not None:
        return Chain(name, min_cosine, "given", found)
    if name == labeling.encoder:
        return Chain(name, labeling.min_cosine, "settings", found)
    if own is not None:
        return Chain(name, own.min_cosine, "calibration", found)
    raise UserError(
        f"no cosine is known for {name!r}",
        remedy=f"give --encoder {name}@COSINE; `ecoagent label --propose-cosine --encoder {name} "
        f"--like {labeling.encoder}@{labeling.min_cosine}` proposes one",
    )


def evaluate_labeller(
    labelled: LabelledSet,
    settings: Settings,
    chains: Sequence[Chain] | None = None,
    *,
    pairs: int = PAIRS,
    kept: int = KEPT,
    max_pairs: int | None = None,
    engine: AsksModel | None = None,
    encoder_of: Callable[[str], Encoder] | None = None,
    progress: Progress | None = None,
) -> list[Evaluation]:
    """Judge chains that differ in their encoder on one sample of a labelled set.

    Args:
        chains: none = that of the settings.
        pairs: pairs to judge, of each chain.
        kept: of these to be kept, of each chain.
        max_pairs: pairs put to the verifier at most, all chains together; none = four times those wanted.
        engine: none = the one of the settings.
        encoder_of: encoder by name; none = those of the weights store, vectors kept.

    Raises:
        UserError: no chain, or one twice.
    """
    chains = list(chains or [chain_of(settings, settings.labeling.encoder)])
    names = [c.encoder for c in chains]
    if len(set(names)) != len(names):
        raise UserError("an encoder is given twice", remedy="give each encoder once")
    run = _Run(
        labelled,
        settings,
        chains,
        engine or open_engine(settings, progress),
        {n: encoder_of(n) if encoder_of else stored_encoder(settings, n, progress) for n in names},
        progress or Progress(quiet=True),
    )
    most = MOST * max(pairs, kept) if max_pairs is None else max_pairs
    run.judge(pairs, kept, most)
    return [run.evaluation(chain, pairs, kept, most) for chain in chains]


class _Run:
    """The sample as it grows: drawn queries, their candidates by encoder, the verdicts."""

    def __init__(
        self,
        labelled: LabelledSet,
        settings: Settings,
        chains: Sequence[Chain],
        engine: AsksModel,
        encoders: Mapping[str, Encoder],
        progress: Progress,
    ) -> None:
        self.labelled, self.settings, self.chains = labelled, settings, chains
        self.engine, self.encoders, self.progress = engine, encoders, progress
        self.drawn: list[LabelledQuery] = []
        self.judged: dict[Pair, Judged] = {}
        self.proposed: dict[str, dict[str, list[tuple[CandidatePair, bool]]]] = {n: {} for n in encoders}
        self.counts = {c.encoder: Counter[str]() for c in chains}

    def judge(self, pairs: int, kept: int, most: int) -> None:
        """Draw and judge until every chain has its pairs, the set ends, or the budget does."""
        order = draw_order(self.labelled, self.settings.seed)[: self.settings.limit]
        while len(self.drawn) < len(order):
            wanted = self._queries_wanted(pairs, kept)
            if not wanted:
                return
            batch = order[len(self.drawn) : len(self.drawn) + wanted]
            self._propose(batch)
            fits = self._within(batch, most)
            self._verify(fits)
            self.progress.say(self._state(pairs, kept))
            if len(fits) < len(batch):
                self.progress.say(f"stopped at {len(self.judged):,} of at most {most:,} verified pairs")
                return

    def _queries_wanted(self, pairs: int, kept: int) -> int:
        """Size of the next batch, by what a query gave so far; 0 = every chain has enough."""
        if not self.drawn:
            return FIRST
        least, most = BATCH
        wanted = 0
        for count in self.counts.values():
            for what, aim in (("judged", pairs), ("kept", kept)):
                lacking = aim - count[what]
                if lacking > 0:
                    per_query = count[what] / max(1, len(self.drawn))
                    wanted = max(wanted, math.ceil(lacking / per_query) if per_query else most)
        return min(most, max(least, wanted)) if wanted else 0

    def _propose(self, batch: Sequence[LabelledQuery]) -> None:
        labeling = self.settings.labeling
        texts = {q.id: q.text for q in batch}
        for chain in self.chains:
            total = len(set(texts.values())) + len({text for _, text in self.labelled.tools})
            with self.progress.task(f"encode by {chain.encoder}", total=total, unit="texts") as task:
                found = find_candidates(
                    self.encoders[chain.encoder],
                    texts,
                    self.labelled.tools,
                    top_k=labeling.top_k,
                    min_cosine=chain.min_cosine,
                    lexical_top_k=labeling.lexical_top_k,
                    on_batch=task.advance,
                )
            by_query = self.proposed[chain.encoder]
            for passed, some in ((True, found.kept), (False, found.below)):
                for pair in some:
                    by_query.setdefault(pair.query_id, []).append((pair, passed))

    def _to_verify(self, query: str) -> set[Pair]:
        return {
            (query, pair.tool_id)
            for proposed in self.proposed.values()
            for pair, passed in proposed.get(query, [])
            if passed
        }

    def _within(self, batch: Sequence[LabelledQuery], most: int) -> list[LabelledQuery]:
        """The queries of a batch, in order, whose pairs the budget holds."""
        room, fits = most - len(self.judged), []
        for query in batch:
            room -= len(self._to_verify(query.id))
            if room < 0:
                break
            fits.append(query)
        return fits

    def _verify(self, batch: Sequence[LabelledQuery]) -> None:
        labeling = self.settings.labeling
        wanted = sorted(pair for q in batch for pair in self._to_verify(q.id))
        answers = verify_pairs(
            self.engine,
            wanted,
            {q.id: q.text for q in batch},
            dict(self.labelled.cards),
            labeling.verifier_form,
            max_tokens=labeling.verifier_max_tokens,
            label="judge",
        )
        self.judged |= {(j.query_id, j.tool_id): j for j in answers}
        self.drawn += batch
        for chain in self.chains:
            rows = [row for q in batch for row in self._rows(chain, q) if row.passed]
            self.counts[chain.encoder].update(judged=len(rows), kept=sum(r.kept for r in rows))

    def _state(self, pairs: int, kept: int) -> str:
        shown = "; ".join(
            f"{name}: {c['judged']:,} of {pairs:,} pairs judged, {c['kept']:,} of {kept:,} kept"
            for name, c in self.counts.items()
        )
        return f"{len(self.drawn):,} queries, {len(self.judged):,} pairs verified; {shown}"

    def _rows(self, chain: Chain, query: LabelledQuery) -> list[ChainPair]:
        labeling = self.settings.labeling
        rows = []
        for pair, passed in self.proposed[chain.encoder].get(query.id, []):
            right = pair.tool_id in query.gold
            if not passed:
                rows.append(ChainPair(pair, False, None, None, False, "below_min_cosine", right))
                continue
            said = self.judged[pair.query_id, pair.tool_id]
            probability = (
                chain.calibration.probability(said.raw)
                if chain.calibration is not None and said.raw is not None
                else None
            )
            score = probability if labeling.verifier_score == "calibrated" else said.raw
            keeps = score is not None and score >= labeling.verifier_threshold
            rows.append(ChainPair(pair, True, said.raw, probability, keeps, said.reason, right))
        return sorted(rows, key=lambda r: r.candidate.tool_id)

    def evaluation(self, chain: Chain, pairs: int, kept: int, most: int) -> Evaluation:
        """The report of one chain over all drawn queries."""
        settings, labelled = self.settings, self.labelled
        labeling = settings.labeling
        by_query = {q.id: self._rows(chain, q) for q in sorted(self.drawn, key=lambda q: q.id)}
        rows = [row for some in by_query.values() for row in some]
        judged = [r for r in rows if r.passed]
        count = self.counts[chain.encoder]
        share_of = weights(labelled, self.drawn)
        sizes = {name: len(queries) for name, queries in labelled.strata().items()}
        covered = sum(sizes[name] for name in share_of)
        strata = [
            _stratum(
                name,
                sizes[name],
                share_of.get(name, 0.0),
                [q for q in self.drawn if q.stratum == name],
                by_query,
            )
            for name in sizes
        ]
        drawn = len(self.drawn)
        report = LabellerReport(
            collection=labelled.name,
            kind=labelled.kind,
            licence=labelled.licence,
            collection_digest=labelled.digest,
            tools=len(labelled.tools),
            engine=settings.llm.engine,
            model=settings.llm.model,
            encoder=chain.encoder,
            encoder_digest=_digest_of(settings, chain.encoder),
            form=labeling.verifier_form,
            prompt_sha256=prompt_sha256(labeling.verifier_form),
            decides_by=labeling.verifier_score,
            threshold=labeling.verifier_threshold,
            min_cosine=chain.min_cosine,
            cosine_from=chain.cosine_from,
            top_k=labeling.top_k,
            lexical_top_k=labeling.lexical_top_k,
            calibration=_map_of(chain.calibration),
            seed=settings.seed,
            pairs_wanted=pairs,
            kept_wanted=kept,
            max_pairs=most,
            reached=count["judged"] >= pairs and count["kept"] >= kept,
            judged_pairs=count["judged"],
            kept_pairs=count["kept"],
            unreadable=sum(r.reason == UNPARSABLE for r in judged),
            failed=sum(r.reason is not None and r.reason.startswith("engine") for r in judged),
            auc_raw=_auc([(r.right, r.raw) for r in judged]),
            auc_cosine=_auc([(r.right, r.candidate.cosine) for r in judged if r.raw is not None]),
            pool=len(labelled.queries),
            left_out=dict(labelled.left_out),
            strata=strata,
            sample=_stratum("sample", covered, covered / drawn if drawn else 0.0, self.drawn, by_query),
            weighted=_stratum("weighted", covered, 1.0, self.drawn, by_query, share_of),
            by_retriever=_by_retriever(judged),
        )
        return Evaluation(report, tuple(rows))


def _stratum(
    name: str,
    population: int,
    weight: float,
    drawn: Sequence[LabelledQuery],
    pairs: Mapping[str, Sequence[ChainPair]],
    weighted: Mapping[str, float] | None = None,
) -> StratumReport:
    left: dict[StageName, Callable[[ChainPair], bool]] = {
        "candidates": lambda row: True,
        "cosine": lambda row: row.passed,
        "verifier": lambda row: row.kept,
        "deduplication": lambda row: row.kept,
    }
    stages = []
    for stage in STAGES:
        counts = []
        for query in drawn:
            rows = [row for row in pairs[query.id] if left[stage](row)]
            counts.append(
                QueryCounts(
                    query.stratum,
                    len(rows),
                    sum(row.right for row in rows),
                    len(query.gold),
                    counted=stage != "deduplication" or query.unique,
                )
            )
        stages.append(stage_counts(stage, counts, weighted))
    return StratumReport(
        name=name, population=population, sampled=len(drawn), weight=round(weight, 4), stages=stages
    )


def _by_retriever(judged: Iterable[ChainPair]) -> dict[str, dict[str, int]]:
    found: dict[str, Counter[str]] = {}
    for row in judged:
        found.setdefault(row.candidate.retriever, Counter()).update(
            judged=1, right=int(row.right), kept=int(row.kept), kept_right=int(row.kept and row.right)
        )
    return {name: dict(found[name]) for name in sorted(found)}


def _map_of(calibration: Calibration | None) -> dict[str, Any] | None:
    if calibration is None:
        return None
    fitted_on = {"model", "form", "encoder", "lexical_top_k", "requests", "requests_digest", "pairs"}
    fitted = {"method", "slope", "intercept", "knots_x", "knots_y"}
    return calibration.model_dump(mode="json", include=fitted_on | fitted)


def _auc(scored: Sequence[tuple[bool, float | None]]) -> float | None:
    known = [(right, score) for right, score in scored if score is not None]
    if len({right for right, _ in known}) < 2:
        return None
    return auc([right for right, _ in known], [score for _, score in known])


def _digest_of(settings: Settings, encoder: str) -> str:
    return ModelStore(settings.models).digest(encoder)
