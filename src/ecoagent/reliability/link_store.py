"""What addresses said, kept so that a check that ends early goes on where it was."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import asdict, replace
from pathlib import Path
from urllib.parse import urlsplit

from ecoagent.reliability.links import STATES, Result, Target
from ecoagent.runs import read_jsonl, read_rows, sweep, write_jsonl, write_table
from ecoagent.schema import LinkRow
from ecoagent.settings import UserError

PER_SHARD = 50
"""Results in one file; a killed check asks at most this many addresses again."""
SHARD_SECONDS = 20.0
"""A shard is closed after this time however few results it holds."""
OFFLINE_HOSTS = 20
"""So many hosts in a row without any answer may be the network's fault."""
FEW_HOSTS = 5
"""From this many hosts on a check in which nothing answered is put down to the network."""
SILENT = frozenset({"no_such_host", "connection", "timeout"})
"""Reasons that are seen without a network too."""


class LinkStore:
    """Results of a run: ``raw/links.parquet`` and, while a check is under way, files of ``raw/links/``.

    Results are written a few at a time, each file whole or not at all. A machine without network would find
    every link dead: while no host answers, results are held back, and where many hosts in a row give
    no answer after others did, it is unknown whether they are there.

    Args:
        raw: the run's folder.
        clock: seconds, for closing shards by time.
    """

    def __init__(self, raw: Path, *, clock: Callable[[], float]) -> None:
        self.table, self._folder, self._clock = raw / "links.parquet", raw / "links", clock
        self._pending: list[Result] = []
        self._held: list[Result] = []
        self._silent: set[str] = set()
        self._answered = False
        self._number, self._closed_at = 0, clock()

    def load(self) -> dict[str, Result]:
        """What is known of each address; of two results the later one.

        Raises:
            UserError: the table is damaged.
        """
        known: dict[str, Result] = {}
        if self.table.is_file():
            for row in self._rows():
                known[row.url] = Result(row.url, row.state, row.reason, row.status, row.checked_at)
        for path in sorted(self._folder.glob("shard-*.jsonl")):
            self._number = max(self._number, int(path.stem.removeprefix("shard-")))
            for found in _read_shard(path):
                if found.url not in known or known[found.url].checked_at <= found.checked_at:
                    known[found.url] = found
        return known

    def _rows(self) -> list[LinkRow]:
        try:
            return read_rows(self.table, LinkRow)
        except UserError as error:
            # No build makes this table anew.
            raise UserError(error.message, remedy="delete it; the next check asks anew") from error

    def add(self, result: Result) -> None:
        """Keep a result.

        Raises:
            UserError: nothing answered so far, of so many hosts that the network must be down.
        """
        if result.reason in SILENT:
            self._silent.add(urlsplit(result.url).netloc)
            self._held.append(result)
            if len(self._silent) < OFFLINE_HOSTS:
                return
            if not self._answered:
                raise self._offline()
            self._release()
        else:
            self._answered = True
            self._release()
            self._silent.clear()
            self._pending.append(result)
        if len(self._pending) >= PER_SHARD or self._clock() - self._closed_at >= SHARD_SECONDS:
            self.flush()

    def settle(self) -> None:
        """Write what is held back too, at the end of a check.

        Raises:
            UserError: nothing answered at all.
        """
        if not self._answered and len(self._silent) >= FEW_HOSTS:
            raise self._offline()
        self._release()
        self.flush()

    def _release(self) -> None:
        doubtful = len(self._silent) >= OFFLINE_HOSTS
        self._pending += [replace(r, state="unknown") if doubtful else r for r in self._held]
        self._held.clear()

    def flush(self) -> None:
        """Write what is pending."""
        if self._pending:
            self._number += 1
            path = self._folder / f"shard-{self._number:06d}.jsonl"
            write_jsonl(path, [asdict(r) for r in self._pending])
            self._pending.clear()
        self._closed_at = self._clock()

    def gather(self, targets: Iterable[Target]) -> list[LinkRow]:
        """Write the table of all known results of ``targets``, sorted by address, in place of the shards.

        Without any result there is no table.
        """
        known = self.load()
        asked = (t for t in targets if t.url in known)
        rows = [link_row(t, known[t.url]) for t in sorted(asked, key=lambda t: t.url)]
        if rows or self.table.is_file():
            write_table(self.table, rows, LinkRow)
        for path in self._folder.glob("shard-*.jsonl"):
            path.unlink()
        sweep(self._folder)
        return rows

    def _offline(self) -> UserError:
        return UserError(
            f"none of {len(self._silent)} hosts gave an answer; nothing is recorded of them",
            remedy="check this machine's network or proxy settings and run the same command again",
        )


def link_row(target: Target, result: Result) -> LinkRow:
    """The row of an address."""
    return LinkRow(
        url=target.url,
        host=target.host,
        kinds=list(target.kinds),
        tool_ids=list(target.tool_ids),
        state=result.state,
        reason=result.reason,
        status=result.status,
        checked_at=result.checked_at,
    )


def _read_shard(path: Path) -> list[Result]:
    """Results of a shard; a file somebody else damaged counts as not asked."""
    try:
        rows = [Result(**row) for row in read_jsonl(path)]
        return [r for r in rows if r.state in STATES and r.at()]
    except (TypeError, ValueError):
        return []
