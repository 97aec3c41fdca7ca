"""Fill withheld text in from the user's own crawl, checked against the published hashes."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from ecoagent.publish.layout import hub_schema
from ecoagent.publish.records import UPSTREAM_TEXT, PublishedTool, text_digest
from ecoagent.runs import temporary_sibling
from ecoagent.settings import UserError


@dataclass(frozen=True)
class Rehydrated:
    """What became of the withheld records."""

    filled: int
    missing: tuple[str, ...]
    """Ids the user's crawl does not hold."""
    changed: tuple[str, ...]
    """Ids whose text in the user's crawl has another hash: another version of the package."""

    def as_dict(self) -> dict[str, Any]:
        """The counts, and an example of each kind that was not filled."""
        return {
            "filled": self.filled,
            "not in your crawl": len(self.missing),
            "of another version": len(self.changed),
            "first not filled": next(iter((*self.missing, *self.changed)), None),
        }

    def __str__(self) -> str:
        text = f"{self.filled} filled"
        if self.missing:
            text += f", {len(self.missing)} not in your crawl (first {self.missing[0]})"
        if self.changed:
            text += f", {len(self.changed)} of another version (first {self.changed[0]})"
        return text


def rehydrate(
    dataset_dir: Path, tools_table: Path, *, out: Path | None = None, dry_run: bool = False
) -> Rehydrated:
    """Fill the withheld tools of a published data set.

    Args:
        dataset_dir: data set in Hub layout, published under ``withhold``.
        tools_table: ``core/tools.parquet`` of the user's own run over the same artifacts.
        out: folder for the filled copy, which must not exist; in place if none.
        dry_run: count only, write nothing.

    Raises:
        UserError: a file is missing, ``out`` exists, or nothing could be filled although text is withheld.
    """
    shards = sorted((dataset_dir / "tools").glob("*.parquet"))
    if not shards:
        raise UserError(f"{dataset_dir} holds no tools/*.parquet", remedy="give a folder in Hub layout")
    if not tools_table.is_file():
        raise UserError(
            f"{tools_table} is missing", remedy="crawl, normalize and score a run of your own first"
        )
    known: dict[str, dict[str, Any]] = {row["id"]: row for row in pq.read_table(tools_table).to_pylist()}
    if out is not None and out.exists():
        raise UserError(f"{out} exists already", remedy="name a folder that does not exist")
    filled, missing, changed = 0, [], []
    rewritten: dict[Path, list[dict[str, Any]]] = {}
    for path in shards:
        rows = pq.read_table(path).to_pylist()
        before = filled
        for row in rows:
            if not row["text_withheld"]:
                continue
            own = known.get(row["id"])
            if own is None:
                missing.append(row["id"])
            elif text_digest(own) != row["text_sha256"]:
                changed.append(row["id"])
            else:
                row.update({name: own[name] for name in UPSTREAM_TEXT}, text_withheld=False)
                filled += 1
        if filled > before:
            rewritten[path] = rows
    result = Rehydrated(filled, tuple(missing), tuple(changed))
    if not filled and (missing or changed):
        raise UserError(
            f"no withheld text of {dataset_dir} could be filled: {result}",
            remedy="crawl the artifact versions that the data set's card names",
        )
    if not dry_run:
        _write(dataset_dir, out, rewritten)
    return result


def _write(dataset_dir: Path, out: Path | None, rewritten: dict[Path, list[dict[str, Any]]]) -> None:
    if out is None:
        for path, rows in rewritten.items():
            _rewrite(path, rows)
        return
    out.parent.mkdir(parents=True, exist_ok=True)
    temporary = temporary_sibling(out)
    shutil.copytree(dataset_dir, temporary)
    try:
        for path, rows in rewritten.items():
            _rewrite(temporary / path.relative_to(dataset_dir), rows)
        temporary.rename(out)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _rewrite(path: Path, rows: list[dict[str, Any]]) -> None:
    table = pa.Table.from_pylist(rows, schema=hub_schema(PublishedTool))
    temporary = temporary_sibling(path)
    try:
        pq.write_table(table, temporary, compression="zstd", row_group_size=10_000, write_page_index=True)
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
