"""What the steps of the simulation at scale share: its plan, its settings, rows spread over files."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from ecoagent.llm.stub import STUB_MODEL
from ecoagent.runs import iter_lines
from ecoagent.settings import Settings, load_settings
from ecoagent.synthesis.wording import INTENTS

Task, Made = TypeVar("Task"), TypeVar("Made")
TOOLS_A_GROUP, TOOLS_A_SHARD = 10, 200
TOOLS_A_POOL = 5172
FILES = 64
"""Pieces that queries are sorted in, by the first digits of their ids."""


@dataclass(frozen=True)
class Size:
    """How much is simulated: tools, intents asked for, lines a tool over them, processes."""

    tools: int
    intents: int = 3
    lines: int = 16
    workers: int = 1


def settings_of(folder: Path, size: Size) -> Settings:
    """The local profile with the stub's name, so that nothing made here can be published."""
    overrides = [
        f'outputs="{folder}"',
        'llm.engine="server"',
        f'llm.model="{STUB_MODEL}"',
        'llm.reference="none"',
        "synthesis.verify_queries=false",
        f"synthesis.intents={json.dumps(INTENTS[: size.intents])}",
        f"synthesis.queries_per_tool={size.lines}",
        f"synthesis.min_queries_per_tool={min(size.lines, 10)}",
    ]
    return load_settings("local", overrides=overrides, env={}, run="million")


def jsonl(path: Path) -> Iterator[dict[str, Any]]:
    """The rows of a JSON-lines file, one at a time; none if it is not there."""
    if path.is_file():
        yield from map(json.loads, iter_lines(path))


class Spread:
    """Appends rows to many files, a few thousand rows at a time."""

    def __init__(self, folder: Path, held: int = 20_000) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder, self._limit = folder, held
        self._rows: defaultdict[str, list[str]] = defaultdict(list)
        self._held = 0

    def add(self, name: str, row: Any) -> None:
        """Append ``row`` to the file ``name``."""
        self._rows[name].append(json.dumps(row, ensure_ascii=False, separators=(",", ":")))
        self._held += 1
        if self._held >= self._limit:
            self.flush()

    def flush(self) -> None:
        """Write what is held."""
        for name, rows in self._rows.items():
            with (self._folder / name).open("a", encoding="utf-8") as handle:
                handle.write("\n".join(rows) + "\n")
        self._rows.clear()
        self._held = 0


def each(work: Callable[[Task], Made], tasks: Iterable[Task], workers: int) -> Iterator[Made]:
    """``work`` on every task, in order; in processes of their own where there is more than one worker."""
    if workers == 1:
        yield from map(work, tasks)
        return
    with ProcessPoolExecutor(workers) as pool:
        yield from pool.map(work, tasks)
