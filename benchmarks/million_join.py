"""Exact greedy deduplication out of core: the result of ``retrieval.dedup`` with sets and keys on disk.

Pairs of a set's rare tokens (the same prefixes as there) go to files by hash; each file is sorted by
itself, and sets that share a key are compared. What stays in memory is one file, the vocabulary, a
few bytes a set, and the similar pairs found.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np

CHUNK = 200_000
"""Sets or candidate pairs handled at a time."""


class TokenSets:
    """Sets in order of their ids, as ranks of tokens on disk, the rarest token first."""

    def __init__(self, folder: Path) -> None:
        self._file = folder / "tokens.bin"
        self._handle = self._file.open("wb")
        self._known: dict[str, int] = {}
        self._counts: Counter[int] = Counter()
        self._sizes: list[np.ndarray] = []

    def add(self, sets: Iterable[frozenset[str]]) -> None:
        """Append sets."""
        flat: list[int] = []
        sizes: list[int] = []
        for words in sets:
            flat += [self._known.setdefault(w, len(self._known)) for w in words]
            sizes.append(len(words))
        self._counts.update(flat)
        np.asarray(flat, dtype=np.int32).tofile(self._handle)
        self._sizes.append(np.asarray(sizes, dtype=np.int32))

    def finish(self) -> tuple[np.ndarray, np.ndarray]:
        """(tokens as ranks, on disk; offsets of the sets)."""
        self._handle.close()
        sizes = np.concatenate(self._sizes or [np.zeros(0, np.int32)])
        offsets = np.concatenate([[0], np.cumsum(sizes, dtype=np.int64)])
        order = sorted(self._known, key=lambda w: (self._counts[self._known[w]], w))
        rank = np.empty(len(order), dtype=np.int32)
        rank[[self._known[w] for w in order]] = np.arange(len(order), dtype=np.int32)
        if not offsets[-1]:
            return np.zeros(0, np.int32), offsets
        tokens = np.memmap(self._file, dtype=np.int32, mode="r+")
        for start in range(0, len(sizes), CHUNK):
            stop = min(start + CHUNK, len(sizes))
            low, high = offsets[start], offsets[stop]
            part = rank[tokens[low:high]]
            owner = np.repeat(np.arange(stop - start), sizes[start:stop])
            tokens[low:high] = part[np.lexsort((part, owner))]
        return tokens, offsets


def _keys(tokens: np.ndarray, offsets: np.ndarray, t: Fraction, files: int, folder: Path) -> None:
    """Write (key, set) for every pair of tokens within a set's prefix, spread over files by key."""
    handles = [(folder / f"keys-{n:03d}.bin").open("wb") for n in range(files)]
    sizes = np.diff(offsets)
    for start in range(0, len(sizes), CHUNK):
        numbers = np.arange(start, min(start + CHUNK, len(sizes)))
        for size in np.unique(sizes[numbers]):
            here = numbers[sizes[numbers] == size]
            if not size:
                continue
            prefix = int(min(size, size - (t.numerator * int(size) // t.denominator + 1) + 2))
            rows = tokens[offsets[here][:, None] + np.arange(prefix)].astype(np.uint64)
            a, b = np.triu_indices(prefix, 1) if size > 1 else (np.array([0]), np.array([0]))
            keys = (rows[:, a] << np.uint64(32)) | rows[:, b]
            found = np.empty(keys.size, dtype=[("key", np.uint64), ("set", np.int32)])
            found["key"], found["set"] = keys.ravel(), np.repeat(here, len(a))
            place = (found["key"] * np.uint64(0x9E3779B97F4A7C15) >> np.uint64(40)) % np.uint64(files)
            for n in range(files):
                found[place == n].tofile(handles[n])
    for handle in handles:
        handle.close()


def _similar(pairs: np.ndarray, tokens: np.ndarray, offsets: np.ndarray, t: Fraction) -> np.ndarray:
    """The pairs whose Jaccard similarity is above the threshold, compared in integers."""
    sizes = np.diff(offsets)
    x, y = sizes[pairs[:, 0]], sizes[pairs[:, 1]]
    pairs = pairs[np.minimum(x, y) * t.denominator > np.maximum(x, y) * t.numerator]
    if not len(pairs):
        return pairs
    x, y = sizes[pairs[:, 0]], sizes[pairs[:, 1]]
    owner = np.repeat(np.arange(len(pairs)), x + y).astype(np.int64)
    width = x + y
    start = np.repeat(np.cumsum(width) - width, width)
    within = np.arange(len(owner)) - start
    left = within < np.repeat(x, width)
    place = np.where(
        left,
        np.repeat(offsets[pairs[:, 0]], width) + within,
        np.repeat(offsets[pairs[:, 1]] - x, width) + within,
    )
    mixed = np.sort((owner << 32) | tokens[place])
    shared = np.bincount(mixed[1:][mixed[1:] == mixed[:-1]] >> 32, minlength=len(pairs))
    return pairs[shared * t.denominator > t.numerator * (x + y - shared)]


def _candidates(path: Path) -> Iterable[np.ndarray]:
    """Pairs of sets with a key in common, the smaller number first."""
    found = np.fromfile(path, dtype=[("key", np.uint64), ("set", np.int32)])
    found = found[np.lexsort((found["set"], found["key"]))]
    heads = (
        np.flatnonzero(np.concatenate([[True], found["key"][1:] != found["key"][:-1]])) if len(found) else []
    )
    lengths = np.diff(np.concatenate([heads, [len(found)]])).astype(np.int64)
    # How many of its group stand before each entry: it is paired with all of them.
    before = np.arange(len(found)) - np.repeat(heads, lengths) if len(found) else np.zeros(0, np.int64)
    for low in range(0, len(found), CHUNK):
        count = before[low : low + CHUNK]
        later = np.repeat(np.arange(low, low + len(count)), count)
        back = np.arange(len(later)) - np.repeat(np.cumsum(count) - count, count) + 1
        for start in range(0, len(later), CHUNK):
            some = slice(start, start + CHUNK)
            yield np.stack([found["set"][later[some] - back[some]], found["set"][later[some]]], axis=1)


def join(
    tokens: np.ndarray, offsets: np.ndarray, threshold: float, folder: Path, files: int = 64
) -> dict[str, Any]:
    """Which sets a greedy pass in their order drops.

    Returns:
        ``dropped``: for each dropped set its kept neighbours, sorted; and counts of the work done.
    """
    t = Fraction(str(threshold))
    if t < Fraction(1, 2):
        raise ValueError("two shared tokens are sure only above a threshold of one half")
    _keys(tokens, offsets, t, files, folder)
    edges, compared, key_bytes = [], 0, 0
    for n in range(files):
        path = folder / f"keys-{n:03d}.bin"
        key_bytes += path.stat().st_size
        for pairs in _candidates(path):
            compared += len(pairs)
            similar = _similar(pairs, tokens, offsets, t)
            if len(similar):
                edges.append(np.unique(similar, axis=0))
        path.unlink()
    all_edges = np.unique(np.concatenate(edges), axis=0) if edges else np.zeros((0, 2), np.int32)
    neighbours: dict[int, list[int]] = {}
    for a, b in all_edges.tolist():
        neighbours.setdefault(a, []).append(b)
        neighbours.setdefault(b, []).append(a)
    gone: set[int] = set()
    for number in sorted(neighbours):
        if any(other < number and other not in gone for other in neighbours[number]):
            gone.add(number)
    dropped = {n: sorted(o for o in neighbours[n] if o not in gone) for n in sorted(gone)}
    return {"dropped": dropped, "compared": compared, "similar": len(all_edges), "key_bytes": key_bytes}
