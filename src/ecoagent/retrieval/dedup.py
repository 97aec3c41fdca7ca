r"""Exact near-duplicate removal: Jaccard similarity of token sets above a threshold.

Tokens are those of ``ecoagent.schema.tokens``: the text in Unicode NFKC, lower case, white space folded,
outer punctuation dropped, then the *set* of its ``\w+`` runs; an apostrophe or a hyphen parts two tokens,
an underscore does not, word order and repeats do not count. Two empty sets are equal.

Greedy in the order of ids: a query is dropped if its similarity with a kept query is above the threshold,
so the canonical query of a group is the one of smallest id, whatever order queries arrive in.

The join is exact, not MinHash. Sets of a and b tokens are similar if they share need(a + b) of them or
more. Let tokens be ordered by rarity. Two similar sets share a token within the first a - need(2a) + 1
tokens of the smaller and the first b - o(b) + 1 of the larger, where o(b) is the least overlap that any
partner of it can have (prefix filter: Chaudhuri et al. 2006; the short prefix of the smaller set: Xiao et
al. 2008, PPJoin). Sparse matrix products of a block of queries with the kept ones find the pairs that do;
hashed bitmaps, which never differ in more places than the sets do, rule out most of them; what is left
is counted token by token. A few sets, as the lines of one tool, are compared pair by pair. All comparisons
are made in integers, so that a similarity of exactly 0.7 is not above 0.7.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import sparse

BLOCK = 2048
"""Queries compared with the kept ones at a time; kept ones are indexed anew after each block."""
PRODUCTS = 4_000_000
"""Multiplications of one sparse product, and so the pairs held at a time: bounds memory."""
WORDS = 4
"""64-bit words of a bitmap."""
FEW = 40
"""Queries up to which comparing every pair takes less time than laying out the join."""

Tokens = frozenset[str]
Ints = npt.NDArray[np.int64]


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


def _exact(threshold: float) -> Fraction:
    """The threshold as written: 0.7 is seven tenths."""
    if not 0 <= threshold <= 1:
        raise ValueError(f"a Jaccard threshold lies between 0 and 1, not at {threshold}")
    return Fraction(str(threshold))


def _above(a: Tokens, b: Tokens, threshold: Fraction) -> bool:
    shared = len(a & b)
    union = len(a) + len(b) - shared
    return shared * threshold.denominator > threshold.numerator * union if union else threshold < 1


def _prefixes(ranks: Ints, starts: Ints, lengths: Ints, useful: npt.NDArray[np.bool_]) -> Any:
    """The first ``lengths`` tokens of each set, as rows of a sparse 0/1 matrix over all tokens."""
    rows = np.repeat(np.arange(len(lengths)), np.diff(starts))
    taken = (np.arange(len(ranks)) - starts[rows] < lengths[rows]) & useful[ranks]
    ones = np.ones(int(taken.sum()), dtype=np.int32)
    return sparse.csr_matrix((ones, (rows[taken], ranks[taken])), shape=(len(lengths), len(useful)))


class _Join:
    """Pairs of similar sets.

    Args:
        sets: distinct sets.
        threshold: exact.
    """

    def __init__(self, sets: Sequence[Tokens], threshold: Fraction) -> None:
        self._sets = sets
        self._sizes: Ints = np.fromiter(map(len, sets), np.int64, len(sets))
        longest = int(self._sizes.max(initial=0))
        # s / (n - s) > t, n the sum of the sizes, is s > t n / (1 + t).
        num, both = threshold.numerator, threshold.numerator + threshold.denominator
        self._need: Ints = np.array([num * n // both + 1 for n in range(2 * longest + 1)], dtype=np.int64)
        any_partner = np.array([num * n // threshold.denominator + 1 for n in range(longest + 1)])
        places: dict[str, int] = {}
        flat: Ints = np.fromiter(
            (places.setdefault(word, len(places)) for words in sets for word in words),
            np.int64,
            int(self._sizes.sum()),
        )
        frequency = np.bincount(flat, minlength=len(places))
        rank: Ints = np.empty(len(places), dtype=np.int64)
        rank[np.argsort(frequency, kind="stable")] = np.arange(len(places))
        starts: Ints = np.concatenate([[0], np.cumsum(self._sizes)])
        rows = np.repeat(np.arange(len(sets)), self._sizes)
        self._bits = _bitmaps(flat, rows, len(sets))
        width = max(1, len(places))
        ranks = np.sort(rows * width + rank[flat]) - rows * width
        # A token of one set only is shared with none.
        useful = np.sort(frequency) > 1
        long = self._sizes - any_partner[self._sizes] + 1
        short = self._sizes - self._need[2 * self._sizes] + 1
        self._long = _prefixes(ranks, starts, long, useful)
        self._short = _prefixes(ranks, starts, short, useful)

    def similar(self, i: int, j: int) -> bool:
        """Whether two sets, not both empty, are similar."""
        a, b = self._sets[i], self._sets[j]
        return len(a & b) >= int(self._need[len(a) + len(b)])

    def candidates(self, rows: Ints, others: Ints) -> Iterator[tuple[Ints, Ints]]:
        """Pairs of a row and an unequal other that may be similar, some rows at a time.

        Every similar pair is among them, once; pairs come sorted by row, then by other.
        """
        if not len(rows) or not len(others):
            return
        to_long, to_short = self._long[others].T.tocsr(), self._short[others].T.tocsr()
        work = self._short[rows] @ np.diff(to_long.indptr) + self._long[rows] @ np.diff(to_short.indptr)
        piece = np.cumsum(work) // PRODUCTS
        for part in np.split(rows, np.flatnonzero(np.diff(piece)) + 1):
            one = self._possible(part, others, self._short[part] @ to_long, larger=True)
            two = self._possible(part, others, self._long[part] @ to_short, larger=False)
            places, js = np.concatenate([one[0], two[0]]), np.concatenate([one[1], two[1]])
            order = np.lexsort((js, places))
            yield part[places[order]], js[order]

    def _possible(self, part: Ints, others: Ints, product: Any, *, larger: bool) -> tuple[Ints, Ints]:
        """What a product found and sizes and bitmaps allow: places in ``part``, other sets."""
        places = np.repeat(np.arange(len(part)), np.diff(product.indptr))
        columns = product.indices
        own, their = self._sizes[part], self._sizes[others]
        a, b = own[places], their[columns]
        need = self._need[a + b]
        fits = np.flatnonzero(((b >= a) if larger else (b < a)) & (np.minimum(a, b) >= need))
        places, js = places[fits], others[columns[fits]]
        apart = (a + b)[fits] - 2 * need[fits]
        differ = np.zeros(len(fits), dtype=np.int64)
        for word in self._bits:
            differ += np.bitwise_count(word[part[places]] ^ word[js])
        left = (differ <= apart) & (part[places] != js)
        return places[left], js[left]


def _bitmaps(flat: Ints, rows: Ints, count: int) -> list[npt.NDArray[np.uint64]]:
    """``WORDS`` words a set; each token sets one bit, which bit by its number."""
    bit = flat % (64 * WORDS)
    found = []
    for word in range(WORDS):
        own = bit // 64 == word
        bits = np.zeros(count, dtype=np.uint64)
        np.bitwise_or.at(bits, rows[own], np.uint64(1) << (bit[own] % 64).astype(np.uint64))
        found.append(bits)
    return found


def _keep(join: _Join, count: int) -> npt.NDArray[np.bool_]:
    """Which of the sets a greedy pass in their order keeps."""
    kept = np.zeros(count, dtype=bool)
    for start in range(0, count, BLOCK):
        rows: Ints = np.arange(start, min(start + BLOCK, count))
        out: set[int] = set()
        for ours, theirs in join.candidates(rows, np.flatnonzero(kept[:start])):
            for i, j in zip(ours.tolist(), theirs.tolist(), strict=True):
                if i not in out and join.similar(i, j):
                    out.add(i)
        free: Ints = np.array([i for i in rows.tolist() if i not in out], dtype=np.int64)
        kept[free] = True
        # Within the block a row is compared with earlier rows that were kept, in turn.
        for ours, theirs in join.candidates(free, free):
            earlier = theirs < ours
            ours, theirs = ours[earlier], theirs[earlier]
            found, firsts = np.unique(ours, return_index=True)
            for i, js in zip(found.tolist(), np.split(theirs, firsts)[1:], strict=True):
                kept[i] = not any(join.similar(i, j) for j in js[kept[js]].tolist())
    return kept


def deduplicate(queries: Mapping[str, Tokens], threshold: float = 0.7) -> Deduplicated:
    """Drop every query whose Jaccard similarity with a kept one is above ``threshold``.

    Args:
        queries: token set (``ecoagent.schema.tokens``) by id.
        threshold: paper, Section 2: 0.7.

    Raises:
        ValueError: the threshold is not between 0 and 1.
    """
    exact = _exact(threshold)
    if len(queries) <= FEW:
        return deduplicate_brute(queries, threshold)
    ids = sorted(queries)
    if exact == 1:
        return Deduplicated(tuple(ids), ())
    # Equal sets share their fate; only the first of each is joined.
    members: defaultdict[Tokens, list[str]] = defaultdict(list)
    for identifier in ids:
        members[queries[identifier]].append(identifier)
    sets = list(members)
    names = [same[0] for same in members.values()]
    join = _Join(sets, exact)
    kept = _keep(join, len(sets))
    near: defaultdict[int, list[int]] = defaultdict(list)
    for ours, theirs in join.candidates(np.flatnonzero(~kept), np.flatnonzero(kept)):
        for i, j in zip(ours.tolist(), theirs.tolist(), strict=True):
            if join.similar(i, j):
                near[i].append(j)
    dropped: list[Duplicate] = []
    for i, same in enumerate(members.values()):
        if kept[i]:
            dropped += [Duplicate(twin, same[0], 1.0, (same[0],)) for twin in same[1:]]
        else:
            similarity = jaccard(sets[i], sets[near[i][0]])
            around = tuple(names[j] for j in near[i])
            dropped += [Duplicate(twin, around[0], similarity, around) for twin in same]
    dropped.sort(key=lambda d: d.id)
    return Deduplicated(tuple(sorted(names[i] for i in np.flatnonzero(kept))), tuple(dropped))


def deduplicate_brute(queries: Mapping[str, Tokens], threshold: float = 0.7) -> Deduplicated:
    """The definition itself, every pair compared: for a few queries, and for tests and the benchmark."""
    exact = _exact(threshold)
    kept: list[str] = []
    witnesses: dict[str, str] = {}
    for identifier in sorted(queries):
        words = queries[identifier]
        witness = next((other for other in kept if _above(words, queries[other], exact)), None)
        if witness is None:
            kept.append(identifier)
        else:
            witnesses[identifier] = witness
    dropped = []
    for identifier, witness in witnesses.items():
        words = queries[identifier]
        near = tuple(other for other in kept if _above(words, queries[other], exact))
        dropped.append(Duplicate(identifier, witness, jaccard(words, queries[witness]), near))
    return Deduplicated(tuple(kept), tuple(dropped))
