"""Agreement of judges with the labeller and with each other, weighted back to the run's pairs.

A pair stands for ``population / decided`` pairs of its stratum, unsure ones taken as not judged; a
stratum in which nothing was decided is stood for by the others of its band. Intervals are Wilson's at
Kish's effective size, without correction for the finite population: rather too wide than too narrow.
"""

from __future__ import annotations

import itertools
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Literal

from ecoagent.labeling.review.judgements import KINDS, Judgement, JudgementFile
from ecoagent.labeling.review.rates import cohen_kappa, effective_size
from ecoagent.labeling.review.report import (
    Between,
    Disagreement,
    Group,
    Headline,
    JudgeScore,
    Kind,
    Rate,
    Rates,
    ReviewReport,
    SetScore,
)
from ecoagent.labeling.review.sample import SETS, ReviewItem, Sample, SetName, Stratum
from ecoagent.metrics.intervals import wilson

DECIMALS = 4
Answers = Mapping[str, str]
"""Answer by id of the pair."""
Weights = Mapping[str, float]
By = Literal["band", "kind", "retriever", "stratum"]


def score(sample: Sample, files: Sequence[JudgementFile]) -> ReviewReport:
    """Score judgements of a sample.

    Args:
        sample: what was judged.
        files: checked files, of any number of judges.
    """
    judgements = [j for f in files for j in f.judgements]
    by_judge: dict[tuple[str, str], list[Judgement]] = defaultdict(list)
    for judgement in judgements:
        by_judge[judgement.kind, judgement.judge.casefold()].append(judgement)
    ordered = [by_judge[k] for k in sorted(by_judge)]
    items = {i.id: i for i in sample.items}
    return ReviewReport(
        run=sample.run,
        sample=sample.digest,
        labels=sample.labels,
        seed=sample.seed,
        drawn=len(sample.items),
        decides_by=sample.decides_by,
        threshold=sample.threshold,
        margin=sample.margin,
        strata=sample.strata,
        left_out=sample.left_out,
        headlines=[
            _headline(sample, k, own) for k in _kinds() if (own := [j for j in ordered if j[0].kind == k])
        ],
        judges=[_judge(sample, own) for own in ordered],
        between=[_between(a, b) for a, b in itertools.combinations(ordered, 2)],
        disagreements=[
            Disagreement(
                **items[j.item].model_dump(include={"id", "set", "query_id", "tool_id", "kept", "score"}),
                judge=j.judge,
                kind=_kind(j.kind),
                answer=j.answer,
                note=j.note,
            )
            for own in ordered
            for j in sorted(own, key=lambda j: j.item)
            if j.answer != "unsure" and (j.answer == "yes") != items[j.item].kept
        ],
    )


def _kinds() -> tuple[Kind, ...]:
    return ("human", "model")


def _kind(text: str) -> Kind:
    if text not in KINDS:
        raise ValueError(f"judge of kind {text!r}")
    return "human" if text == "human" else "model"


def _judge(sample: Sample, own: Sequence[Judgement]) -> JudgeScore:
    return JudgeScore(
        judge=own[0].judge,
        kind=_kind(own[0].kind),
        files=sorted({j.file for j in own}),
        judged=len(own),
        unsure=sum(j.answer == "unsure" for j in own),
        not_judged=len(sample.items) - len(own),
        saw_verdict=sum(j.saw_verdict is True for j in own),
        sets=_sets(sample, {j.item: j.answer for j in own}),
    )


def _headline(sample: Sample, kind: Kind, judges: Sequence[Sequence[Judgement]]) -> Headline:
    votes: dict[str, Counter[str]] = defaultdict(Counter)
    for judgement in (j for own in judges for j in own):
        votes[judgement.item][judgement.answer] += 1
    answers = {item: majority(count) for item, count in votes.items()}
    split = sum(1 for c in votes.values() if c["yes"] == c["no"] > 0)
    return Headline(
        kind=kind, judges=[own[0].judge for own in judges], split=split, sets=_sets(sample, answers)
    )


def majority(votes: Counter[str]) -> str:
    """Answer most of those who decided gave; ``unsure`` where nobody did, or as many say yes as no."""
    if votes["yes"] == votes["no"]:
        return "unsure"
    return "yes" if votes["yes"] > votes["no"] else "no"


def _between(first: Sequence[Judgement], second: Sequence[Judgement]) -> Between:
    one = {j.item: j.answer == "yes" for j in first if j.answer != "unsure"}
    two = {j.item: j.answer == "yes" for j in second if j.answer != "unsure"}
    both = sorted(one.keys() & two.keys())
    a, b = [one[i] for i in both], [two[i] for i in both]
    return Between(
        first=first[0].judge,
        first_kind=_kind(first[0].kind),
        second=second[0].judge,
        second_kind=_kind(second[0].kind),
        pairs=len(both),
        agreement=_rate([(x == y, 1.0) for x, y in zip(a, b, strict=True)]),
        kappa=_rounded(cohen_kappa(a, b)),
    )


def _sets(sample: Sample, answers: Answers) -> list[SetScore]:
    return [
        _set(
            name,
            [i for i in sample.items if i.set == name],
            [s for s in sample.strata if s.set == name],
            answers,
        )
        for name in SETS
        if any(i.set == name and i.id in answers for i in sample.items)
    ]


def stratum_weights(items: Sequence[ReviewItem], strata: Sequence[Stratum], answers: Answers) -> Weights:
    """How many pairs of the run each decided pair stands for.

    Args:
        items: drawn pairs of one set.
        strata: strata of that set.
        answers: a pair that is unsure or absent counts as not judged.
    """
    decided = Counter(i.stratum for i in items if answers.get(i.id, "unsure") != "unsure")
    whole: Counter[str] = Counter()
    seen: Counter[str] = Counter()
    for stratum in strata:
        whole[stratum.band] += stratum.population
        if decided[stratum.key]:
            seen[stratum.band] += stratum.population
    size = {s.key: s.population for s in strata}
    return {
        i.id: size[i.stratum] / decided[i.stratum] * whole[i.band] / seen[i.band]
        for i in items
        if answers.get(i.id, "unsure") != "unsure"
    }


def _set(name: SetName, items: Sequence[ReviewItem], strata: Sequence[Stratum], answers: Answers) -> SetScore:
    weights = stratum_weights(items, strata, answers)
    decided = [i for i in items if i.id in weights]
    says = [answers[i.id] == "yes" for i in decided]
    population = sum(s.population for s in strata)
    bands = {i.band for i in decided}
    part: dict[By, Callable[[ReviewItem | Stratum], str]] = {
        "band": lambda x: x.band,
        "kind": lambda x: x.kind,
        "retriever": lambda x: x.retriever,
        "stratum": lambda x: f"{x.band} | {x.kind} | {x.retriever}",
    }
    groups = []
    for by, of in part.items():
        for value in sorted({of(s) for s in strata}):
            own = [i for i in items if of(i) == value]
            count = sum(s.population for s in strata if of(s) == value)
            groups.append(Group(by=by, name=value, rates=_rates(own, count, answers, weights)))
    return SetScore(
        set=name,
        rates=_rates(items, population, answers, weights),
        sample_agreement=_rate([(i.kept == yes, 1.0) for i, yes in zip(decided, says, strict=True)]),
        sample_kappa=_kappa([(i.kept, yes, 1.0) for i, yes in zip(decided, says, strict=True)]),
        covered=round(sum(s.population for s in strata if s.band in bands) / population, DECIMALS),
        groups=groups,
    )


def _rates(items: Sequence[ReviewItem], population: int, answers: Answers, weights: Weights) -> Rates:
    judged = [i for i in items if i.id in answers]
    rows = [(i.kept, answers[i.id] == "yes", weights[i.id]) for i in judged if i.id in weights]
    # Where the labeller says one thing only, the rates among the right and among the wrong tell nothing.
    both = len({kept for kept, _, _ in rows}) == 2
    return Rates(
        population=population,
        judged=len(judged),
        decided=len(rows),
        right=sum(yes for _, yes, _ in rows),
        unsure=_rate([(i.id not in weights, 1.0) for i in judged]),
        agreement=_rate([(kept == yes, w) for kept, yes, w in rows]),
        kappa=_kappa(rows),
        false_discovery=_rate([(not yes, w) for kept, yes, w in rows if kept]),
        false_omission=_rate([(yes, w) for kept, yes, w in rows if not kept]),
        false_positive=_rate([(kept, w) for kept, yes, w in rows if both and not yes]),
        false_negative=_rate([(not kept, w) for kept, yes, w in rows if both and yes]),
    )


def _rate(hits: Iterable[tuple[bool, float]]) -> Rate:
    """Weighted share of hits, with Wilson's interval at the effective size."""
    rows = list(hits)
    if not rows:
        return Rate()
    total = sum(w for _, w in rows)
    share = sum(w for hit, w in rows if hit) / total
    size = effective_size([w for _, w in rows])
    low, high = wilson(min(1.0, share), size)
    return Rate(
        share=round(share, DECIMALS), low=round(low, DECIMALS), high=round(high, DECIMALS), pairs=len(rows)
    )


def _kappa(rows: Sequence[tuple[bool, bool, float]]) -> float | None:
    """Kappa of labeller and judge; none where the labeller says one thing only (it would always be 0)."""
    if len({kept for kept, _, _ in rows}) < 2:
        return None
    first, second, weights = zip(*rows, strict=True)
    return _rounded(cohen_kappa(first, second, weights))


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, DECIMALS)
