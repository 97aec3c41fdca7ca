"""The flaw table: how many of the listed tools have which flaw, by source, with intervals (paper, Section 1).

Definitions. A tool counts under a flaw only where the flaw can be judged from what is at hand; ``tools``
is the number judged, ``unknown`` the number of listed tools that could not be.

``listed``: what a catalog offers as a tool. These are the kept tools and the rejects for ``no_description``,
``deprecated`` and ``dead_page`` (its page could not be read). Templates, abstract classes, aliases, classes
not exported and nodes a catalog hides from its own list are no tools of it and count nowhere.

- ``broken_link``: a documentation page, tool page or endpoint of the tool is dead, among tools of which at
  least one such address was found alive, dead or behind a login. Without checked links only pages read
  for the crawl itself are judged.
- ``missing_auth``: where a catalog declares authentication (CrewAI's env_vars, environment names in code,
  LlamaIndex's __init__, n8n's credentials) nothing is declared, and the tool calls an outside service that
  is not known to answer without a key; or its endpoint answered 401. A bare constructor field is no
  declaration. An n8n node without credentials says that it needs none and is not flawed. A tool without
  declaration and without a known endpoint is unknown, though some do need a key: a lower bound.
- ``empty_description``: the class or node has no text of its own; some make one up when they are started.
- ``deprecated``: the catalog says so.
- ``boilerplate``: the description would fit any service ("Consume X API"), or tools of three names share it.

The first four make a tool fail or impossible to choose: ``any_critical`` is any of them, ``any_named`` any
of the five. Other quality flags follow as minor rows.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, ValidationError

from ecoagent.metrics.intervals import wilson
from ecoagent.runs import canonical_json, read_json, table_groups, write_json
from ecoagent.schema import SOURCES, LinkRow, Record, RejectedTool, ToolRecord

CRITICAL = ("broken_link", "missing_auth", "empty_description", "deprecated")
NAMED = (*CRITICAL, "boilerplate")
FLAGS = ("duplicate", "non_english", "schema_mismatch", "short", "template", "wrong_looking")
"""Quality flags that are minor rows, by their own names."""
MINOR = ("broken_repository", *FLAGS)
TOTALS = ("any_critical", "any_named")
LISTED_REASONS = frozenset({"no_description", "deprecated"})
ALL_SOURCES = "all"
PAPER_CLAIM = "over 50% (Section 1: critical flaws like broken links and missing authentication)"

DEAD_REASONS = ("not_found", "gone", "soft_404", "no_such_host")
"""Reasons a page that could not be read is dead for; a timeout or a robots.txt says nothing of the kind."""
OPEN_SERVICES = (
    "duckduckgo.com",
    "eutils.ncbi.nlm.nih.gov",
    "export.arxiv.org",
    "hn.algolia.com",
    "images-api.nasa.gov",
    "r.jina.ai",
    "wikidata.org",
    "wikimedia.org",
    "wikipedia.org",
    "www.youtube.com",
)
"""Hosts, and what lies below them, that answer reading requests without a key, as they document."""

TABLE, WITH_LINKS = "flaws.json", "flaws_links.json"
_BITS = {"checked": 1, "dead": 2, "walled": 4, "repository_checked": 8, "repository_dead": 16}
_COLUMNS = (
    "id", "source", "description", "quality_flags", "auth", "auth_required", "endpoints", "docs_url",
    "url", "repository", "deprecated", "provenance",
)  # fmt: skip


class FlawRow(BaseModel):
    """One flaw in one source.

    Attributes:
        level: critical, minor, or total for rows over several flaws.
        source: source of the tools, or ``all``.
        tools: listed tools that were judged.
        flawed: those with the flaw.
        share: flawed / tools; ``None`` where nothing was judged.
        low: lower end of the 95% Wilson interval of the share.
        high: upper end.
        unknown: listed tools that could not be judged.
        note: what a reader has to know.
        paper_claim: what the paper says of the same figure.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    flaw: str
    level: Literal["critical", "minor", "total"]
    source: str
    tools: int
    flawed: int
    share: float | None = None
    low: float | None = None
    high: float | None = None
    unknown: int = 0
    note: str = ""
    paper_claim: str | None = None


class FlawTable(BaseModel):
    """All rows, flaw by flaw, each flaw's sources in the order of ``SOURCES`` and ``all`` last.

    Attributes:
        rows: the table.
        listed: number of listed tools.
        tools_digest: SHA-256 over the facts judged, links apart: equal for equal tables of tools.
        links: number of checked addresses; ``None`` where links were not checked.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    rows: tuple[FlawRow, ...]
    listed: int
    tools_digest: str
    links: int | None = None

    def row(self, flaw: str, source: str = ALL_SOURCES) -> FlawRow:
        """The row of one flaw and source.

        Raises:
            KeyError: there is none.
        """
        for row in self.rows:
            if row.flaw == flaw and row.source == source:
                return row
        raise KeyError((flaw, source))


Judged = dict[str, bool | None]
"""Flaw to whether a tool has it; ``None`` = cannot be known."""


@dataclass(frozen=True)
class _Facts:
    """What is judged of one candidate; ``reason`` is none for a kept tool."""

    id: str
    source: str
    described: bool
    flags: frozenset[str]
    auth: bool
    auth_required: str
    endpoints: tuple[str, ...]
    addresses: tuple[str | None, ...]
    deprecated: bool
    page_read: bool
    reason: str | None
    detail: str


def flaw_table(
    tools: Iterable[ToolRecord | Mapping[str, Any]],
    rejects: Iterable[RejectedTool | Mapping[str, Any]],
    links: Iterable[LinkRow] | None,
) -> FlawTable:
    """Judge every listed tool. Each argument is gone through once; no record is kept.

    Args:
        tools: kept tools, records or rows with at least the columns of ``iter_facts``.
        rejects: rejected candidates, the same with ``reason`` and ``detail``.
        links: checked addresses; none = they were not checked.
    """
    seen: dict[str, int] = {}
    addresses = 0
    for link in links or ():
        addresses += link.state != "unknown"
        _note_link(seen, link)
    counted = _Counts(checked=links is not None)
    hashed = hashlib.sha256()
    kept = (_facts(tool, kept=True) for tool in tools)
    dropped = (_facts(reject, kept=False) for reject in rejects)
    for facts in chain(kept, dropped):
        hashed.update((canonical_json(_digested(facts)) + "\n").encode("utf-8", "surrogatepass"))
        if _is_listed(facts):
            counted.add(facts.source, _judge(facts, seen.get(facts.id, 0)))
        elif facts.reason == "known_from_package" and facts.page_read and links is None:
            # The same tool is kept from its package; its page was read all the same.
            counted.add_page(facts.source)
    return FlawTable(
        rows=tuple(counted.rows()),
        listed=sum(counted.listed.values()),
        tools_digest=hashed.hexdigest(),
        links=addresses if links is not None else None,
    )


def iter_facts(path: Path, model: type[Record]) -> Iterator[dict[str, Any]]:
    """Rows of a table of tools or rejects with only the columns that are judged, one row group in memory.

    Raises:
        UserError: the file is missing, damaged, or lacks a column.
    """
    more = [n for n in ("reason", "detail") if n in model.model_fields]
    for group in table_groups(path, model, [*_COLUMNS, *more]):
        for batch in group.to_batches(max_chunksize=1000):
            yield from batch.to_pylist()


def write_flaws(out: Path, table: FlawTable) -> Path:
    """Write the table below a run's ``out`` folder: one name without checked links, another with them."""
    name = TABLE if table.links is None else WITH_LINKS
    return write_json(out / "results" / name, table.model_dump(mode="json"))


def load_flaws(out: Path) -> FlawTable | None:
    """The table of a run: the one with checked links, unless the tools have changed since; else none."""
    plain, linked = (_load(out / "results" / name) for name in (TABLE, WITH_LINKS))
    if linked is not None and (plain is None or plain.tools_digest == linked.tools_digest):
        return linked
    return plain


def _load(path: Path) -> FlawTable | None:
    try:
        return FlawTable.model_validate(read_json(path))
    except (OSError, ValueError, ValidationError):
        return None


def _note_link(seen: dict[str, int], link: LinkRow) -> None:
    if link.state == "unknown":
        return
    dead, bits = link.state == "dead", 0
    if any(kind != "repository" for kind in link.kinds):
        bits |= _BITS["checked"] | (_BITS["dead"] if dead else 0)
    if "repository" in link.kinds:
        bits |= _BITS["repository_checked"] | (_BITS["repository_dead"] if dead else 0)
    if "endpoint" in link.kinds and link.state == "auth_walled" and link.status == 401:
        bits |= _BITS["walled"]
    for tool in link.tool_ids:
        seen[tool] = seen.get(tool, 0) | bits


def _facts(found: Record | Mapping[str, Any], *, kept: bool) -> _Facts:
    row = found.model_dump() if isinstance(found, Record) else found
    provenance = row["provenance"]
    return _Facts(
        id=row["id"],
        source=row["source"],
        described=bool((row["description"] or "").strip()),
        flags=frozenset(row["quality_flags"] or ()),
        auth=bool(row["auth"]),
        auth_required=row["auth_required"],
        endpoints=tuple(e["url"] for e in row["endpoints"] or ()),
        addresses=(row["docs_url"], row["url"], row["repository"]),
        deprecated=bool(row["deprecated"]["state"]),
        page_read=provenance["backend"] == "http" and row["docs_url"] == provenance["path"],
        reason=None if kept else row["reason"],
        detail="" if kept else (row["detail"] or ""),
    )


def _digested(facts: _Facts) -> list[Any]:
    return [
        facts.id, facts.source, facts.described, sorted(facts.flags), facts.auth, facts.auth_required,
        facts.endpoints, facts.addresses, facts.deprecated, facts.reason, facts.detail,
    ]  # fmt: skip


def _is_listed(facts: _Facts) -> bool:
    if facts.reason == "dead_page":
        # A page of a catalog that has one page a tool; a listing or a file of specifications is no tool.
        return facts.source in ("langchain", "crewai") and not (facts.addresses[0] or "").endswith(".json")
    return facts.reason is None or facts.reason in LISTED_REASONS


def _judge(facts: _Facts, link: int) -> Judged:
    """Every flaw of one listed tool."""
    if facts.reason == "dead_page":
        # Nothing but the address is known of it.
        dead = True if facts.detail.startswith(DEAD_REASONS) else None
        return dict.fromkeys((*NAMED, *MINOR)) | {"broken_link": dead}
    checked, repository = bool(link & _BITS["checked"]), bool(link & _BITS["repository_checked"])
    broken = bool(link & _BITS["dead"]) if checked else (False if facts.page_read else None)
    judged: Judged = {
        "broken_link": broken,
        "missing_auth": _lacks_auth(facts, walled=bool(link & _BITS["walled"])),
        "empty_description": not facts.described,
        "deprecated": facts.deprecated or facts.reason == "deprecated",
        "broken_repository": bool(link & _BITS["repository_dead"]) if repository else None,
    }
    # Flags of the text are set on kept tools only.
    flagged = ("boilerplate", *FLAGS)
    return judged | {name: name in facts.flags if facts.reason is None else None for name in flagged}


def _lacks_auth(facts: _Facts, *, walled: bool) -> bool | None:
    if facts.auth:
        return False
    if walled:
        return True
    if facts.auth_required != "unknown":
        return False
    if "missing_auth" not in facts.flags:
        return None
    return not all(_is_open(url) for url in facts.endpoints)


@lru_cache(maxsize=4096)
def _is_open(url: str) -> bool:
    try:
        host = urlsplit(url).hostname or ""
    except ValueError:
        return False
    return any(host == name or host.endswith("." + name) for name in OPEN_SERVICES)


class _Counts:
    """Counters by flaw and source."""

    def __init__(self, *, checked: bool) -> None:
        self.listed: Counter[str] = Counter()
        self._checked = checked
        self._tools: Counter[tuple[str, str]] = Counter()
        self._flawed: Counter[tuple[str, str]] = Counter()
        self._unknown: Counter[tuple[str, str]] = Counter()

    def add(self, source: str, judged: Judged) -> None:
        """Count one listed tool."""
        self.listed[source] += 1
        for flaw, state in judged.items():
            self._count(flaw, source, state)
        for flaw, parts in zip(TOTALS, (CRITICAL, NAMED), strict=True):
            states = {judged[part] for part in parts}
            self._count(flaw, source, True in states if states != {None} else None)

    def add_page(self, source: str) -> None:
        """Count a page that was read and whose tool is counted elsewhere as unknown."""
        self._tools["broken_link", source] += 1
        self._unknown["broken_link", source] -= 1

    def _count(self, flaw: str, source: str, state: bool | None) -> None:
        if state is None:
            self._unknown[flaw, source] += 1
        else:
            self._tools[flaw, source] += 1
            self._flawed[flaw, source] += state

    def rows(self) -> Iterator[FlawRow]:
        """All rows; a source without a listed tool has none."""
        present = [s for s in SOURCES if self.listed[s]]
        for flaw in (*NAMED, *TOTALS, *MINOR):
            for source in present:
                yield self._row(flaw, source, [source])
            yield self._row(flaw, ALL_SOURCES, present)

    def _row(self, flaw: str, name: str, sources: Sequence[str]) -> FlawRow:
        tools, flawed, unknown = (
            sum(counter[flaw, s] for s in sources) for counter in (self._tools, self._flawed, self._unknown)
        )
        share = low = high = None
        if tools:
            low, high = (round(v, 6) for v in wilson(flawed / tools, tools))
            share = round(flawed / tools, 6)
        return FlawRow(
            flaw=flaw,
            level="critical" if flaw in CRITICAL else ("total" if flaw in TOTALS else "minor"),
            source=name,
            tools=tools,
            flawed=flawed,
            share=share,
            low=low,
            high=high,
            unknown=max(unknown, 0),
            note=self._note(flaw, unknown),
            paper_claim=PAPER_CLAIM if flaw in TOTALS else None,
        )

    def _note(self, flaw: str, unknown: int) -> str:
        if flaw in ("broken_link", "broken_repository"):
            if not self._checked:
                return "links not checked: run `ecoagent audit-links`"
            return f"{unknown} without a checked link" if unknown > 0 else ""
        if flaw == "missing_auth" and unknown:
            return f"{unknown} neither declare authentication nor name an endpoint"
        if flaw in TOTALS and not self._checked:
            return "a lower bound: links not checked"
        if unknown:
            return f"{unknown} not judged"
        return ""
