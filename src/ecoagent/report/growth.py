"""Growth over time and the spread of tags: numbers only (paper, Figure 1)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import polars as pl

from ecoagent.runs import Kind, each_with_fields, read_object
from ecoagent.schema import SOURCES

GROWTH_FILE = "growth.json"
TOP_TAGS = 25


@dataclass(frozen=True)
class Snapshot:
    """The tools of one package on one day.

    Attributes:
        date: UTC date, YYYY-MM-DD.
        tools: id of each tool to whether it is reliable.
    """

    date: str
    tools: Mapping[str, bool]


@dataclass(frozen=True)
class MonthRow:
    """One source at the end of one month: ``total = total before + base + added - removed``.

    Attributes:
        month: YYYY-MM.
        source: source of the tools, or ``all``.
        total: tools there are.
        reliable: those of them that are reliable as they were described at the time.
        base: tools of packages that are seen for the first time, whose age is not known.
        added: tools that a package seen before did not have.
        removed: tools that a package no longer has.
        pinned: whether a dated release falls into the month; if not, the numbers are held.
    """

    month: str
    source: str
    total: int
    reliable: int
    base: int
    added: int
    removed: int
    pinned: bool


_MONTH: dict[str, Kind] = {
    "month": str,
    "source": str,
    **dict.fromkeys(("total", "reliable", "base", "added", "removed"), int),
    "pinned": bool,
}
"""A ``MonthRow`` as it is written."""


def months_between(first: str, last: str) -> list[str]:
    """Months from ``first`` to ``last``, both YYYY-MM and included."""
    year, month = int(first[:4]), int(first[5:7])
    found = []
    while (shown := f"{year:04d}-{month:02d}") <= last[:7]:
        found.append(shown)
        year, month = (year + 1, 1) if month == 12 else (year, month + 1)
    return found


def monthly(
    source: str,
    packages: Mapping[str, Sequence[Snapshot]],
    months: Sequence[str],
    *,
    first_is_base: bool = True,
) -> list[MonthRow]:
    """Rows of one source, from the first month in which one of its packages is known.

    Args:
        source: name of the source.
        packages: snapshots of each package, in any order.
        months: months to report, in order; what came before the first counts as its base.
        first_is_base: whether a package's first snapshot is its base (pinned releases), or its birth.
    """
    rows: list[MonthRow] = []
    before: dict[str, Mapping[str, bool]] = {}
    for month in months:
        base = added = removed = 0
        now: dict[str, Mapping[str, bool]] = {}
        pinned = False
        for name, snapshots in sorted(packages.items()):
            known = [s for s in sorted(snapshots, key=lambda s: s.date) if s.date[:7] <= month]
            pinned |= any(s.date[:7] == month for s in known)
            if not known:
                continue
            now[name] = known[-1].tools
            if name in before:
                added += len(now[name].keys() - before[name].keys())
                removed += len(before[name].keys() - now[name].keys())
            elif first_is_base or month == months[0]:
                base += len(now[name])
            else:
                added += len(now[name])
        before = now
        if now:
            tools = {t: ok for package in now.values() for t, ok in package.items()}
            rows.append(
                MonthRow(month, source, len(tools), sum(tools.values()), base, added, removed, pinned)
            )
    return rows


def summed(rows: Iterable[MonthRow]) -> list[MonthRow]:
    """All sources together, month by month."""
    found: dict[str, list[MonthRow]] = {}
    for row in rows:
        found.setdefault(row.month, []).append(row)
    return [
        MonthRow(
            month,
            "all",
            sum(r.total for r in own),
            sum(r.reliable for r in own),
            sum(r.base for r in own),
            sum(r.added for r in own),
            sum(r.removed for r in own),
            any(r.pinned for r in own),
        )
        for month, own in sorted(found.items())
    ]


def release_rows(packages: Mapping[str, Sequence[tuple[str, Snapshot]]]) -> list[dict[str, Any]]:
    """What each pinned release has, and what came and went since the pinned one before it.

    Args:
        packages: (version, snapshot) of each package's releases.
    """
    rows: list[dict[str, Any]] = []
    for name, releases in sorted(packages.items()):
        before: Mapping[str, bool] | None = None
        for version, snapshot in sorted(releases, key=lambda r: r[1].date):
            now = snapshot.tools
            rows.append(
                {
                    "package": name,
                    "version": version,
                    "date": snapshot.date,
                    "tools": len(now),
                    "reliable": sum(now.values()),
                    "added": [] if before is None else sorted(now.keys() - before.keys()),
                    "removed": [] if before is None else sorted(before.keys() - now.keys()),
                }
            )
            before = now
    return rows


def gini(counts: Sequence[int]) -> float:
    """Gini coefficient of the counts: 0 where all are equal, towards 1 where one has everything."""
    ordered, total = sorted(counts), sum(counts)
    if not total:
        return 0.0
    weighted = sum((2 * i - len(ordered) - 1) * c for i, c in enumerate(ordered, start=1))
    return weighted / (len(ordered) * total)


def tag_table(tools: pl.DataFrame, top: int = TOP_TAGS) -> dict[str, Any]:
    """How tags are spread over the tools.

    Args:
        tools: columns ``source`` and ``tags``; tags that differ in case only count as one.
        top: tags listed, the most frequent first.
    """
    uses: Counter[str] = Counter()
    by_source: dict[str, Counter[str]] = {}
    untagged: Counter[str] = Counter()
    for source, tags in tools.select("source", "tags").iter_rows():
        distinct = {t.strip().lower() for t in tags or [] if t.strip()}
        untagged[source] += not distinct
        uses.update(distinct)
        for tag in distinct:
            by_source.setdefault(tag, Counter())[source] += 1
    ranked = sorted(uses.items(), key=lambda kv: (-kv[1], kv[0]))
    total = sum(uses.values())
    return {
        "tools": tools.height,
        "untagged": sum(untagged.values()),
        "untagged_by_source": {
            s: [untagged[s], int((tools["source"] == s).sum())] for s in SOURCES if s in untagged
        },
        "distinct": len(uses),
        "uses": total,
        "used_once": sum(n == 1 for n in uses.values()),
        "top10_share": round(sum(n for _, n in ranked[:10]) / total, 4) if total else 0.0,
        "gini": round(gini(list(uses.values())), 4),
        "top": [
            {"tag": tag, "tools": n, "by_source": dict(sorted(by_source[tag].items()))}
            for tag, n in ranked[:top]
        ],
    }


def crawl_points(run: str, date: str, tools: pl.DataFrame) -> list[dict[str, Any]]:
    """Totals of one crawl by source, then of all; ``date`` is the day its tables were written."""
    rows = []
    for source in (*SOURCES, "all"):
        own = tools if source == "all" else tools.filter(pl.col("source") == source)
        if own.height:
            rows.append(
                {
                    "run": run,
                    "date": date,
                    "source": source,
                    "total": own.height,
                    "reliable": int(own["reliable"].sum()),
                }
            )
    return rows


def undated(tools: pl.DataFrame, dated: Iterable[str], why: Mapping[str, str]) -> list[dict[str, Any]]:
    """Sources of the run's tools that are not in the monthly table, and the reason for each."""
    known = set(dated)
    return [
        {
            "source": source,
            "tools": own.height,
            "reliable": int(own["reliable"].sum()),
            "why": why.get(source, "its package index gives no dates"),
        }
        for source in SOURCES
        if source not in known and (own := tools.filter(pl.col("source") == source)).height
    ]


def as_rows(rows: Iterable[MonthRow]) -> list[dict[str, Any]]:
    """Rows as plain dictionaries, columns in the order of the class."""
    return [asdict(r) for r in rows]


def load_growth(out: Path) -> dict[str, Any] | None:
    """``out/results/growth.json`` of a run; ``None`` if ``ecoagent growth`` was not run on it.

    Raises:
        UserError: the file is damaged.
    """
    path = out / "results" / GROWTH_FILE
    return read_growth(path) if path.is_file() else None


def read_growth(path: Path) -> dict[str, Any]:
    """A ``growth.json``.

    Raises:
        UserError: the file is missing, damaged, or lacks what is shown of it.
    """
    parts: dict[str, dict[str, Kind]] = {
        "all": _MONTH,
        "rows": _MONTH,
        "crawls": {"run": str, "date": str, "source": str, "total": int, "reliable": int},
        "undated": {"source": str, "tools": int, "reliable": int, "why": str},
    }
    remedy = "run `ecoagent growth --force` on the run"
    found = read_object(path, dict.fromkeys(parts, list) | {"notes": list, "dates_from": str}, remedy=remedy)
    for part, own in parts.items():
        each_with_fields(path, found[part], own, within=part, remedy=remedy)
    return found


def growth_section(content: Mapping[str, Any] | None, tools: pl.DataFrame) -> dict[str, Any]:
    """What the report says of growth and tags.

    Args:
        content: ``growth.json``, or none if growth was not measured; the tags are there all the same.
        tools: the run's tools, columns ``source`` and ``tags``.
    """
    tags = tag_table(tools)
    crawls = (content or {}).get("crawls", [])
    runs = sorted({(c["date"], c["run"]) for c in crawls})
    return {
        "content": content,
        "months": [r for r in (content or {}).get("all", []) if r["pinned"]],
        "crawls": [
            next(c for c in crawls if (c["date"], c["run"], c["source"]) == (day, run, "all"))
            for day, run in runs
        ],
        "tags": tags,
        "once_share": tags["used_once"] / tags["distinct"] if tags["distinct"] else None,
        "untagged_share": tags["untagged"] / tags["tools"] if tags["tools"] else None,
    }
