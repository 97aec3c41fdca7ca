"""The sample to be judged: strata, how many of each, and which pairs, by hash."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Literal, TypeAlias

from pydantic import Field

from ecoagent.runs import digest, sha256_text
from ecoagent.schema import Record
from ecoagent.settings import UserError

SetName = Literal["real", "syn"]
SETS: tuple[SetName, ...] = ("real", "syn")
Band = Literal["kept", "near_kept", "near_rejected", "rejected", "doubted"]
BANDS: dict[str, tuple[float, str]] = {
    "kept": (3.0, "kept, clear of the cut-off"),
    "near_kept": (2.0, "kept, near the cut-off"),
    "near_rejected": (2.0, "rejected, near the cut-off"),
    "rejected": (3.0, "rejected, clear of the cut-off"),
    "doubted": (2.0, "kept, though the verifier is well below the cut-off (Syn)"),
}
"""Share of the sample each band asks for, and what it is; near bands are small, so this oversamples them."""
SAMPLE_VERSION = 1


class ReviewItem(Record):
    """One pair to judge, and what the labeller made of it."""

    id: str = Field(description="r-<12 hex> of set, query and tool: the same in every sample.")
    set: SetName
    query_id: str
    tool_id: str
    query: str = Field(description="Text of the request.")
    tool_name: str
    tool_group: str | None = None
    tool_source: str
    tool_description: str
    tool_parameters: list[str] = Field(default_factory=list)
    tool_operations: list[str] = Field(default_factory=list)
    kept: bool = Field(description="Whether the labeller kept the pair.")
    score: float | None = Field(default=None, description="Verifier's score the decision rests on.")
    cosine: float | None = Field(default=None, description="Cosine of the labelling encoder.")
    band: Band
    kind: str = Field(description="Query type (real) or intent (syn).")
    retriever: str = Field(description="Which retrievers proposed the pair; generated for syn.")

    @property
    def stratum(self) -> tuple[str, str, str, str]:
        """Set, band, kind, retriever."""
        return self.set, self.band, self.kind, self.retriever


class Stratum(Record):
    """How many pairs of the run are alike in set, band, kind and retriever, and how many were drawn."""

    set: SetName
    band: Band
    kind: str
    retriever: str
    population: int
    sampled: int

    @property
    def key(self) -> tuple[str, str, str, str]:
        """Set, band, kind, retriever."""
        return self.set, self.band, self.kind, self.retriever


class Sample(Record):
    """What is to be judged. ``digest`` travels in every file, so that judgements find back to it."""

    version: int = SAMPLE_VERSION
    run: str = Field(description="Name of the run.")
    seed: int
    digest: str = Field(description="s-<16 hex> over everything but the run's name.")
    labels: dict[str, str] = Field(
        description="SHA-256 over the labels of each set the sample is drawn from."
    )
    decides_by: str = Field(description="raw or calibrated: score that is compared with the cut-off.")
    threshold: float
    margin: float = Field(description="This near to the cut-off counts as near.")
    items: list[ReviewItem] = Field(description="In the order they are shown.")
    strata: list[Stratum]
    left_out: dict[str, dict[str, int]] = Field(
        description="Pairs of the run that no judgement stands for, by set and reason."
    )

    def computed_digest(self) -> str:
        """The digest these contents have."""
        return f"s-{digest(self.model_dump(mode='json', exclude={'digest', 'run'}))[:16]}"


def item_id(set_name: str, query_id: str, tool_id: str) -> str:
    """Id of a pair; the leading letters keep spreadsheets from reading a number."""
    return f"r-{digest([set_name, query_id, tool_id])[:12]}"


def allocate(n: int, sizes: Sequence[int], weights: Sequence[float]) -> list[int]:
    """``n`` places over groups: in proportion to the weights, none beyond its size, one each if that fits.

    By highest averages (Sainte-Laguë), ties to the first.
    """
    given = [0] * len(sizes)
    filled = [i for i, size in enumerate(sizes) if size > 0]
    if len(filled) <= n:
        for i in filled:
            given[i] = 1
    for _ in range(min(n, sum(sizes)) - sum(given)):
        free = [i for i in filled if given[i] < sizes[i]]
        best = max(free, key=lambda i: (weights[i] / (2 * given[i] + 1), -i))
        given[best] += 1
    return given


Key: TypeAlias = tuple[str, str, str, str]


def places(population: Mapping[Key, int], n: int) -> dict[Key, int]:
    """How many of ``n`` pairs each stratum gets: equal parts of the sets, ``BANDS`` in a set, then by size.

    Args:
        population: pairs of each stratum.
        n: size of the sample.
    """
    sets = [s for s in SETS if any(key[0] == s for key in population)]
    by_set = allocate(
        n, [sum(c for k, c in population.items() if k[0] == s) for s in sets], [1.0] * len(sets)
    )
    wanted: dict[Key, int] = {}
    for set_name, given in zip(sets, by_set, strict=True):
        bands = [b for b in BANDS if any(k[:2] == (set_name, b) for k in population)]
        sizes = [sum(c for k, c in population.items() if k[:2] == (set_name, b)) for b in bands]
        for band, share in zip(bands, allocate(given, sizes, [BANDS[b][0] for b in bands]), strict=True):
            keys = sorted(k for k in population if k[:2] == (set_name, band))
            counts = [population[k] for k in keys]
            wanted |= dict(zip(keys, allocate(share, counts, [float(c) for c in counts]), strict=True))
    return wanted


def smallest_whole(strata: Sequence[Stratum]) -> int:
    """The smallest sample that has a pair of every stratum; larger ones have too."""
    population: dict[Key, int] = {s.key: s.population for s in strata if s.population}

    def whole(n: int) -> bool:
        return all(places(population, n).values())

    low = high = len(population)
    while not whole(high):
        low, high = high + 1, min(2 * high, sum(population.values()))
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if whole(middle) else (middle + 1, high)
    return high


def draw_sample(
    pairs: Sequence[ReviewItem],
    n: int,
    *,
    seed: int,
    run: str,
    labels: Mapping[str, str],
    decides_by: str,
    threshold: float,
    margin: float,
    left_out: Mapping[str, Mapping[str, int]] | None = None,
) -> Sample:
    """Draw ``n`` pairs: equal parts of the sets, over bands by ``BANDS``, in a band by size of the stratum.

    Args:
        pairs: every pair of the run that may be judged.
        n: size of the sample; all pairs if there are fewer.
        seed: with the pair's id, all that decides who is drawn and in which order pairs are shown.

    Raises:
        UserError: there is no pair.
    """
    if not pairs:
        raise UserError(
            "the run has no pair to judge",
            remedy="label it first (`ecoagent label`), or look at its yield in core/label_stats.json",
        )
    population = Counter(p.stratum for p in pairs)
    wanted = places(population, n)
    drawn: list[ReviewItem] = []
    taken: Counter[tuple[str, str, str, str]] = Counter()
    for pair in sorted(pairs, key=lambda p: (sha256_text(f"{seed}:draw:{p.id}"), p.id)):
        if taken[pair.stratum] < wanted[pair.stratum]:
            taken[pair.stratum] += 1
            drawn.append(pair)
    # Another hash: the order shown tells nothing of the stratum.
    drawn.sort(key=lambda p: (sha256_text(f"{seed}:show:{p.id}"), p.id))
    sample = Sample(
        run=run,
        seed=seed,
        digest="",
        labels=dict(labels),
        decides_by=decides_by,
        threshold=threshold,
        margin=margin,
        items=drawn,
        strata=[
            Stratum.model_validate(
                dict(zip(("set", "band", "kind", "retriever"), key, strict=True))
                | {"population": population[key], "sampled": taken[key]}
            )
            for key in sorted(population)
        ],
        left_out={s: dict(sorted(reasons.items())) for s, reasons in sorted((left_out or {}).items())},
    )
    return sample.model_copy(update={"digest": sample.computed_digest()})
