"""What ``ecoagent crawl`` does beside running the stage: digests, the lock file, the table of packages."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ecoagent.cli.options import print_json
from ecoagent.cli.show import show_estimates, show_rows
from ecoagent.runs import Progress, RunContext, file_lock
from ecoagent.settings import Settings, UserError

if TYPE_CHECKING:
    from ecoagent.crawlers import Pin, Pinned
    from ecoagent.crawlers.table import Package

_SILENT = 2
PIN = re.compile(r"(?P<source>\w+):(?P<name>@?[^@=\s]+)(?:==|@)(?P<version>[^@=\s]+)")


def check(ctx: RunContext, digests: Path) -> int:
    """Compare crawled candidates with a file of digests; prints the differences and the closing line."""
    from ecoagent.crawlers import check_digests, iter_candidates

    report = check_digests(iter_candidates(ctx.paths.raw), digests)
    for line in report.lines():
        Progress().say(line)
    return 0


def rewrite_lock(
    settings: Settings,
    pins: Sequence[str],
    *,
    force: bool = False,
    with_pages: bool = False,
    dry_run: bool = False,
    as_json: bool = False,
) -> int:
    """Fetch what is selected and write its hashes to the lock file of the settings.

    What is selected are the packages of ``crawl.table`` where there is one, else the entries of the
    lock file or of the shipped one.

    Args:
        settings: ``crawl.lock`` is the file written.
        pins: further versions, ``SOURCE:NAME==VERSION`` or ``SOURCE:NAME@VERSION``.
        force: fetch also what is in the lock file and in the store.
        with_pages: also pin snapshots of documentation that the lock file does not hold yet.
        dry_run: say what it would cost, fetch nothing.
        as_json: print the result as JSON.

    Raises:
        UserError: no file to write to was named, a pin has another form, or nothing could be pinned.
    """
    from ecoagent.crawlers import ArtifactStore, npm_times, pin_all

    path = settings.crawl.lock
    if path is None:
        raise UserError("--update-lock needs a file to write", remedy="give --lock FILE")
    wanted = [*_selected(settings, path, with_pages=with_pages)]
    for text in pins:
        one = parse_pin(text)
        wanted = [p for p in wanted if p.name != one.name]
        wanted.append(one)
    store = ArtifactStore.of(settings.crawl, settings.http)
    if dry_run:
        _show({"update-lock": _cost(wanted, settings, path, force=force)}, as_json)
        return 0
    times = None if settings.crawl.backend == "http" else _times(npm_times.publication_times)
    with file_lock(path, settings.crawl.artifact_dir):
        pinned = pin_all(path, wanted, store, force=force, times=times, say=Progress().say)
    _show_pinned(pinned, path, as_json)
    return 0


def parse_pin(text: str) -> Pin:
    """A pin as written on the command line.

    Raises:
        UserError: it has another form, or names no source.
    """
    from ecoagent.crawlers import Pin
    from ecoagent.schema import SOURCES

    found = PIN.fullmatch(text)
    source = next((s for s in SOURCES if found and s == found["source"]), None)
    if found is None or source is None:
        raise UserError(
            f"--pin {text!r} is not SOURCE:NAME==VERSION",
            remedy=f"write e.g. --pin n8n_community:n8n-nodes-mcp@0.1.37; sources: {', '.join(SOURCES)}",
        )
    return Pin(source, found["name"], found["version"])


def _selected(settings: Settings, path: Path, *, with_pages: bool) -> list[Pin]:
    """What the settings ask to be pinned: packages first, then pages."""
    from ecoagent.crawlers import Pin, load_lock, selected
    from ecoagent.crawlers.table import chosen, load_table
    from ecoagent.crawlers.web.sources import SNAPSHOTS, names_for

    crawl = settings.crawl
    wanted: list[Pin] = []
    pages: set[str] = set()
    if crawl.table is not None:
        if crawl.backend != "http":
            rows = chosen(
                load_table(crawl.table),
                crawl.catalogs,
                n8n_official=crawl.n8n_official,
                limit=settings.limit,
            )
            rows = [r for r in rows if not crawl.packages or r.package in crawl.packages]
            wanted = [Pin(r.source, r.package, r.version, r.licence or None) for r in rows]
    elif not (with_pages and crawl.backend == "http"):
        known = load_lock(path if path.is_file() else None)
        for entry in selected(known, crawl, limit=settings.limit):
            if entry.ecosystem == "http":
                pages.add(entry.name)
            else:
                wanted.append(Pin(entry.source, entry.name, entry.version, entry.licence))
    if with_pages and crawl.backend != "client":
        pages |= {n for n in names_for(crawl.catalogs) if not crawl.packages or n in crawl.packages}
    for name in sorted(pages):
        kind = SNAPSHOTS[name]
        wanted.append(Pin(kind.source, name, "", kind.licence, "pages", kind.index(settings.http)))
    return wanted


def _times(ask: Any) -> Any:
    """Times of publication; an index that does not tell them for two packages is not asked on."""
    from ecoagent.crawlers.npm_times import DatesUnknownError

    silent: list[str] = []

    def times(name: str) -> Mapping[str, str]:
        if len(silent) >= _SILENT:
            return {}
        try:
            return dict(ask(name))
        except DatesUnknownError as error:
            silent.append(name)
            if len(silent) == _SILENT:
                Progress().say(f"pin: dates are left empty: {error.message}")
            return {}

    return times


def _cost(wanted: Sequence[Pin], settings: Settings, path: Path, *, force: bool) -> dict[str, Any]:
    from ecoagent.crawlers import ArtifactStore, load_lock
    from ecoagent.crawlers.costs import Wanted, cost_of

    store = ArtifactStore.of(settings.crawl, settings.http)
    locked = load_lock(path).artifacts if path.is_file() else ()
    known = {(e.source, e.name): e for e in (*load_lock().artifacts, *locked)}
    present = {(e.source, e.name): e for e in locked if not store.missing([e])}
    asked: list[Wanted] = []
    for pin in wanted:
        entry = present.get((pin.source, pin.name))
        kept = entry is not None and pin.version in ("", entry.version)
        if kept and pin.kind == "package" and not force:
            continue
        size = known[(pin.source, pin.name)].size if (pin.source, pin.name) in known else None
        asked.append(Wanted(pin.ecosystem, pin.name, size, dated=True))
    cost = cost_of(asked, settings.http)
    return {
        "state": "would run",
        "packages": sum(p.kind == "package" for p in wanted),
        "snapshots": sum(p.kind == "pages" for p in wanted),
        "in_store": len(wanted) - len(asked),
        "client_calls": cost.client_calls,
        "requests": cost.requests,
        "download_mb": round(cost.megabytes, 2),
        "minutes": round(cost.seconds / 60, 2),
    }


def _show(planned: dict[str, dict[str, Any]], as_json: bool) -> None:
    print_json(planned) if as_json else show_estimates(planned)


def _show_pinned(pinned: Pinned, path: Path, as_json: bool) -> None:
    fresh = {(e.ecosystem, e.name) for e in pinned.fetched}
    if as_json:
        print_json(
            {
                "lock": str(path),
                "fetched": [e.spec for e in pinned.fetched],
                "reused": [e.spec for e in pinned.reused],
                "left_out": dict(sorted(pinned.failed.items())),
            }
        )
    else:
        show_rows(
            f"locked in {path}",
            [
                {
                    "source": e.source,
                    "artifact": e.spec,
                    "sha256": e.sha256[:16],
                    "bytes": e.size,
                    "fetched": (e.ecosystem, e.name) in fresh,
                }
                for e in pinned.lock.artifacts
            ],
        )
    say = Progress().say
    left = "" if not pinned.failed else f", {len(pinned.failed)} left out: {', '.join(sorted(pinned.failed))}"
    say(
        f"update-lock: {len(pinned.fetched)} fetched, {len(pinned.reused)} already there, "
        f"{len(pinned.lock.artifacts)} in {path}{left}"
    )


def discover(settings: Settings, *, dry_run: bool = False, as_json: bool = False) -> int:
    """Append packages not yet in the table: of n8n's verified list and, if set, of npm's search.

    Args:
        settings: ``crawl.table`` is the file written, made if it is not there.
        dry_run: say what it would cost, ask nothing.
        as_json: print the result as JSON.

    Raises:
        UserError: no file to write to was named, or a list cannot be read.
    """
    from ecoagent.crawlers.table import SHIPPED_WORD, added, load_table, save_table
    from ecoagent.crawlers.web.client import PoliteClient
    from ecoagent.crawlers.web.n8n_verified import NAME
    from ecoagent.crawlers.web.sources import requests_of

    path = settings.crawl.table
    if path is None or str(path) == SHIPPED_WORD:
        raise UserError("--discover needs a table to write", remedy="give --table FILE")
    known = load_table(path) if path.is_file() else []
    http = settings.http
    if dry_run:
        pages, megabytes = requests_of([NAME])
        seconds = pages / http.requests_per_second
        plan = {"state": "would run", "requests": pages, "download_mb": megabytes, "minutes": seconds / 60}
        if http.npm_search:
            plan["estimate"] = f"at least {pages} requests, and one for each 250 packages of the npm search"
        _show({"discover": plan}, as_json)
        return 0
    say = Progress().say
    with PoliteClient(http, say=say) as client:
        found = [*_verified(client, settings)]
        if http.npm_search:
            found += _searched(client, settings)
    fresh = added(known, found)
    save_table(path, [*known, *fresh])
    if as_json:
        print_json({"table": str(path), "found": len(found), "added": [p.package for p in fresh]})
    say(f"discover: {len(found)} packages found, {len(fresh)} new in {path}, {len(known) + len(fresh)} rows")
    return 0


def _verified(client: Any, settings: Settings) -> list[Package]:
    from ecoagent.crawlers.table import Package
    from ecoagent.crawlers.web import n8n_verified

    pages = n8n_verified.collect(client, settings.http, Progress().say)
    found: dict[str, Package] = {}
    for listed in n8n_verified.entries(pages):
        if n8n_verified.is_npm_name(listed.package):
            row = Package("n8n_community", listed.package, listed.version or "", seen_in="n8n")
            found.setdefault(listed.package, row)
    return list(found.values())


def _searched(client: Any, settings: Settings) -> list[Package]:
    from ecoagent.crawlers.table import Package
    from ecoagent.crawlers.web import npm_search

    row = Package("n8n_community", "", seen_in="npm")
    found = npm_search.search(client, settings.http, Progress().say)
    return [replace(row, package=f.name, version=f.version) for f in found]
