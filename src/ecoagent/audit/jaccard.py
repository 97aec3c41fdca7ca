"""Exact Jaccard join used by the audit, by prefix filtering."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping

from ecoagent.schema import tokens


def near_pairs(texts: Mapping[str, str], threshold: float) -> Iterator[tuple[str, str, float]]:
    """Pairs of texts whose token sets have a Jaccard similarity above ``threshold``.

    Two sets can only be that near if they share one of their rarest tokens, so that only sets
    meeting in such a prefix are compared; the result is that of comparing all pairs.

    Args:
        texts: id to text, in the order in which the earlier id of a pair is the witness.
        threshold: similarity that must be passed, in [0, 1).

    Yields:
        (later id, earlier id, similarity), at most one per later id: its first witness.
    """
    sets = {key: tokens(text) for key, text in texts.items()}
    frequency = Counter(t for s in sets.values() for t in s)
    index: dict[str, list[str]] = defaultdict(list)
    for key, words in sets.items():
        ordered = sorted(words, key=lambda t: (frequency[t], t))
        # Above the threshold at most this many of the rarest tokens can be missing from the other set.
        prefix = ordered[: len(ordered) - int(threshold * len(ordered)) + 1]
        near: list[tuple[str, float]] = []
        for other in dict.fromkeys(o for t in prefix for o in index[t]):
            common = len(words & sets[other])
            similarity = common / (len(words) + len(sets[other]) - common)
            if similarity > threshold:
                near.append((other, similarity))
        if near:
            witness, similarity = near[0]
            yield key, witness, similarity
        for token in prefix:
            index[token].append(key)
