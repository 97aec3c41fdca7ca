r"""Exact near-duplicate removal: Jaccard similarity of ``\w+`` token sets above a threshold.

Greedy in id order: a query is dropped if its similarity with a kept query is above the threshold.
The join is exact, not MinHash: let tokens be ordered by rarity and let o(x) be the least overlap
that a partner of x can have, floor(t |x|) + 1. Two similar sets share at least k = 2 tokens within
the first |x| - o(x) + k tokens of each, so an inverted index over pairs of those tokens finds every
partner (prefix filter, Chaudhuri et al. 2006; with k > 1 as in Wang et al. 2012). Comparisons are made in
integers, so that a similarity of exactly 0.7 is not above 0.7.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import combinations

MAX_PAIR_KEYS = 6_000_000
"""Above this many pair keys (very long queries) single tokens are indexed instead, to bound memory."""

Tokens = frozenset[str]


@dataclass(frozen=True)
class Duplicate:
    """A dropped query.

    Attributes:
        id: the dropped query.
        witness: smallest kept id that it is too similar to and that precedes it.
        similarity: their Jaccard similarity.
        near: all kept ids above the threshold, the witness first, later ones included.
    """

    id: str
    witness: str
    similarity: float
    near: tuple[str, ...]


@dataclass(frozen=True)
class Deduplicated:
    """Outcome of a deduplication: kept ids, sorted, and dropped queries by id."""

    kept: tuple[str, ...]
    dropped: tuple[Duplicate, ...]


def jaccard(a: Tokens, b: Tokens) -> float:
    """Size of the intersection over size of the union; two empty sets are equal, 1."""
    union = len(a | b)
    return len(a & b) / union if union else 1.0


class _Threshold:
    """``similarity > t`` in integers."""

    def __init__(self, threshold: float) -> None:
        exact = Fraction(str(threshold))
        self._num, self._den = exact.numerator, exact.denominator

    def least_overlap(self, size: int) -> int:
        """The least overlap a set of ``size`` has with any set similar to it."""
        return self._num * size // self._den + 1

    def above(self, a: Tokens, b: Tokens) -> bool:
        shared = len(a & b)
        union = len(a) + len(b) - shared
        return shared * self._den > self._num * union if union else self._num < self._den

    def partners(self, words: Tokens, candidates: set[int], sets: Mapping[int, Tokens]) -> list[int]:
        """The candidates whose sets are similar to ``words``, sorted."""
        size = len(words)
        low, high = self._num * size, self._den * size
        share, least = self._num + self._den, self._num
        return sorted(
            place
            for place in candidates
            # The smaller size over the larger bounds the similarity; then the overlap decides.
            if low < (other := len(sets[place])) * self._den
            and other * self._num < high
            and len(words & sets[place]) * share > least * (size + other)
        )


class _Index:
    """Inverted index over the rare tokens of kept queries."""

    def __init__(self, sets: Sequence[Tokens], threshold: _Threshold) -> None:
        frequency: Counter[str] = Counter()
        for words in sets:
            frequency.update(words)
        ordered = sorted(frequency, key=lambda w: (frequency[w], w))
        self._rank = {word: rank for rank, word in enumerate(ordered)}
        # Words of one query only come first in this order and can be shared with no other.
        self._lonely = sum(count == 1 for count in frequency.values())
        self._threshold = threshold
        sizes = Counter(len(words) for words in sets)
        keys = sum(n * self._prefix(size, 2) * (self._prefix(size, 2) - 1) // 2 for size, n in sizes.items())
        self._pairs = keys <= MAX_PAIR_KEYS
        self._places: defaultdict[int, list[int]] = defaultdict(list)

    def _prefix(self, size: int, k: int) -> int:
        return max(0, min(size, size - self._threshold.least_overlap(size) + k))

    def keys(self, words: Tokens) -> list[int]:
        """Keys a set is found by: pairs of rare tokens; single ones where an overlap of one may do."""
        ranks = sorted(self._rank[w] for w in words)
        size = len(ranks)
        found = []
        if self._pairs:
            width = len(self._rank)
            # Pair keys start above the single ones, so that the two kinds never meet.
            prefix = [rank for rank in ranks[: self._prefix(size, 2)] if rank >= self._lonely]
            found = [(a + 1) * width + b for a, b in combinations(prefix, 2)]
        if not self._pairs or self._threshold.least_overlap(size) == 1:
            found += ranks[: self._prefix(size, 1)]
        return found

    def candidates(self, keys: list[int]) -> set[int]:
        """Kept queries that share a key."""
        found: set[int] = set()
        for key in keys:
            places = self._places.get(key)
            if places:
                found.update(places)
        return found

    def add(self, place: int, keys: list[int]) -> None:
        """Make a kept query findable."""
        for key in keys:
            self._places[key].append(place)


def deduplicate(queries: Mapping[str, Tokens], threshold: float = 0.7) -> Deduplicated:
    """Drop every query whose Jaccard similarity with a kept one is above ``threshold``.

    Args:
        queries: token set (``ecoagent.schema.tokens``) by id.
        threshold: paper, Section 2: 0.7.
    """
    bound = _Threshold(threshold)
    ids = sorted(queries)
    # Equal sets share their fate; only the first of each is joined.
    first: dict[Tokens, int] = {}
    members: defaultdict[int, list[int]] = defaultdict(list)
    for place, identifier in enumerate(ids):
        members[first.setdefault(queries[identifier], place)].append(place)
    index = _Index(list(first), bound)
    kept: dict[int, Tokens] = {}
    dropped: dict[int, list[int]] = {}
    for words, place in first.items():
        keys = index.keys(words)
        near = bound.partners(words, index.candidates(keys), kept)
        if near:
            dropped[place] = near
        else:
            kept[place] = words
            index.add(place, keys)
    result: list[Duplicate] = []
    for place, before in dropped.items():
        words = queries[ids[place]]
        near_ids = tuple(ids[o] for o in bound.partners(words, index.candidates(index.keys(words)), kept))
        similarity = jaccard(words, kept[before[0]])
        result += [Duplicate(ids[m], near_ids[0], similarity, near_ids) for m in members[place]]
    same_is_above = bound.above(frozenset({""}), frozenset({""}))
    kept_ids = []
    for place in kept:
        kept_ids.append(ids[place])
        for twin in members[place][1:]:
            if same_is_above:
                result.append(Duplicate(ids[twin], ids[place], 1.0, (ids[place],)))
            else:
                kept_ids.append(ids[twin])
    return Deduplicated(tuple(sorted(kept_ids)), tuple(sorted(result, key=lambda d: d.id)))


def deduplicate_brute(queries: Mapping[str, Tokens], threshold: float = 0.7) -> Deduplicated:
    """The definition itself, every pair compared: for tests and the benchmark."""
    bound = _Threshold(threshold)
    kept: list[str] = []
    witnesses: dict[str, str] = {}
    for identifier in sorted(queries):
        words = queries[identifier]
        witness = next((other for other in kept if bound.above(words, queries[other])), None)
        if witness is None:
            kept.append(identifier)
        else:
            witnesses[identifier] = witness
    dropped = []
    for identifier, witness in witnesses.items():
        words = queries[identifier]
        near = tuple(other for other in kept if bound.above(words, queries[other]))
        dropped.append(Duplicate(identifier, witness, jaccard(words, queries[witness]), near))
    return Deduplicated(tuple(kept), tuple(dropped))
