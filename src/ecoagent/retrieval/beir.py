"""Folders in BEIR's layout: corpus.jsonl, queries.jsonl, qrels/*.tsv."""

from __future__ import annotations

from pathlib import Path

from ecoagent.retrieval.rows import read_table
from ecoagent.settings import UserError

QRELS_HEADER = "query-id"


def is_beir(folder: Path) -> bool:
    """Whether a folder holds queries in BEIR's layout."""
    return (folder / "queries.jsonl").is_file()


def qrels_files(folder: Path) -> dict[str, Path]:
    """Judgement files by split."""
    return {file.stem: file for file in sorted((folder / "qrels").glob("*.tsv"))}


def read_qrels(path: Path) -> list[tuple[str, str, str]]:
    """(where, query, document) of every row with a score above 0.

    Raises:
        UserError: a row has fewer than three cells, or its score is not a number.
    """
    rows = []
    for where, line, (query, document, score, *_rest) in read_table(path, 3, quoted=False):
        if line == 1 and query == QRELS_HEADER:
            continue
        try:
            value = float(score)
        except ValueError as error:
            raise UserError(
                f"{where}: score {score!r} is not a number", remedy="write query-id, corpus-id and score"
            ) from error
        if value > 0:
            rows.append((f"qrels/{where}", query, document))
    return rows
