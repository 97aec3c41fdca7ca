"""train/val/test by normalised query, stratified by source, and the cold split of unseen tools."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ecoagent.settings import GateError
from ecoagent.synthesis.plan import hash_rank

SPLITS = ("train", "val", "test")
COLD = "cold"


@dataclass(frozen=True)
class SplitItem:
    """A query to be put into a split: its id, the source it is stratified by, its gold tools."""

    query_id: str
    source: str
    golds: frozenset[str]


def allocate(total: int, shares: Sequence[float]) -> list[int]:
    """``total`` split by ``shares`` with the largest-remainder method; each share above zero gets
    at least one where there is enough.

    Ties of remainders go to the smaller share, so that small splits are not starved.
    """
    scale = sum(shares)
    exact = [total * share / scale if scale else 0.0 for share in shares]
    counts = [int(x + 1e-9) for x in exact]
    order = sorted(range(len(shares)), key=lambda k: (counts[k] - exact[k], shares[k]))
    for k in order[: total - sum(counts)]:
        counts[k] += 1
    return _none_empty(counts, shares)


def _none_empty(counts: list[int], shares: Sequence[float]) -> list[int]:
    wanted = [k for k, share in enumerate(shares) if share > 0]
    if sum(counts) >= len(wanted):
        for k in wanted:
            if counts[k] == 0:
                counts[max(wanted, key=lambda j: counts[j])] -= 1
                counts[k] = 1
    return counts


def allocate_strata(sizes: Mapping[str, int], shares: Sequence[float]) -> dict[str, list[int]]:
    """Counts per stratum and split: close to the shares in every stratum, and over all of them.

    Each stratum takes the whole part of its share; what is left of it goes to the splits that are
    furthest below their share over the strata so far.
    """
    scale = sum(shares) or 1.0
    result: dict[str, list[int]] = {}
    given, seen = [0] * len(shares), 0
    for stratum in sorted(sizes):
        size = sizes[stratum]
        counts = [int(size * share / scale + 1e-9) for share in shares]
        for _ in range(size - sum(counts)):
            below = [
                (seen + size) * share / scale - given[k] - counts[k] if share > 0 else float("-inf")
                for k, share in enumerate(shares)
            ]
            counts[max(range(len(shares)), key=lambda k: (round(below[k], 9), -shares[k]))] += 1
        result[stratum] = counts
        seen += size
        given = [a + b for a, b in zip(given, counts, strict=True)]
    wanted = [k for k, share in enumerate(shares) if share > 0]
    for k in wanted:
        if given[k] == 0 and seen >= len(wanted):
            rich = max(wanted, key=lambda j: given[j])
            donor = max(sorted(result), key=lambda s: result[s][rich])
            result[donor][rich] -= 1
            result[donor][k] += 1
            given[rich], given[k] = given[rich] - 1, 1
    return result


def cold_tools(sources: Mapping[str, str], fraction: float, *, seed: int) -> frozenset[str]:
    """Tools kept out of training: ``fraction`` of them, lowest hash first, over all sources in turn.

    Args:
        sources: source by tool id, for tools that have queries.
        fraction: share of tools; at least one is taken, and at least one left, where there are two.
        seed: the run's seed.
    """
    if fraction <= 0 or len(sources) < 2:
        return frozenset()
    by_source: defaultdict[str, list[str]] = defaultdict(list)
    for tool_id, source in sources.items():
        by_source[source].append(tool_id)
    counts = allocate_strata({s: len(ids) for s, ids in by_source.items()}, [fraction, 1 - fraction])
    return frozenset(
        tool_id
        for source, ids in by_source.items()
        for tool_id in sorted(ids, key=lambda i: hash_rank(seed, "cold", i))[: counts[source][0]]
    )


def split_queries(
    items: Sequence[SplitItem], shares: tuple[float, float, float], cold: frozenset[str], *, seed: int
) -> dict[str, str]:
    """Split of every query by id. A query whose golds include a cold tool is cold.

    Within a source the queries of lowest hash go to val, the next to test, the rest to train, so
    that one more query moves at most a few.

    Raises:
        GateError: a split with a share above zero, or the cold split, came out empty.
    """
    result = {item.query_id: COLD for item in items if item.golds & cold}
    by_source: defaultdict[str, list[str]] = defaultdict(list)
    for item in items:
        if item.query_id not in result:
            by_source[item.source].append(item.query_id)
    counts = allocate_strata({s: len(ids) for s, ids in by_source.items()}, shares)
    for source, ids in by_source.items():
        ranked = sorted(ids, key=lambda i: hash_rank(seed, "split", i))
        _, val, test = counts[source]
        for place, query in enumerate(ranked):
            result[query] = "val" if place < val else "test" if place < val + test else "train"
    _check(result, shares, cold, len(items))
    return result


def _check(
    result: Mapping[str, str], shares: tuple[float, float, float], cold: frozenset[str], total: int
) -> None:
    sizes = {name: sum(s == name for s in result.values()) for name in (*SPLITS, COLD)}
    for name, share in zip(SPLITS, shares, strict=True):
        if share > 0 and sizes[name] == 0:
            raise GateError(
                f"EcoAgent-Syn split {name!r} is empty: synthesis.splits gives it {share:.0%} of "
                f"{total - sizes[COLD]} queries ({total} in all, {sizes[COLD]} of them cold)",
                remedy="generate for more tools (synthesis.tools_per_catalog) or more lines "
                "(synthesis.queries_per_tool), or lower synthesis.cold_fraction",
            )
    if cold and sizes[COLD] == 0:
        raise GateError(
            f"EcoAgent-Syn split 'cold' is empty: no query of the {len(cold)} cold tools was kept",
            remedy="raise synthesis.cold_fraction or synthesis.tools_per_catalog",
        )
