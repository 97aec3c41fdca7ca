"""Runs and qrels in TREC format, readable by any evaluation tool with the values of our tables."""

from __future__ import annotations

from collections.abc import Mapping, Set
from pathlib import Path
from urllib.parse import quote

import numpy as np

from ecoagent.retrieval import RankedRun
from ecoagent.runs import write_text

_SAFE = "".join(chr(c) for c in range(33, 127) if chr(c) != "%")


def trec_query(query_id: str) -> str:
    """Query id with its ``q:`` prefix, white space percent-encoded."""
    return quote(query_id if query_id.startswith("q:") else f"q:{query_id}", safe=_SAFE)


def trec_tool(tool_id: str) -> str:
    """Tool id with its ``t:`` prefix, white space percent-encoded: fields are split at blanks."""
    return quote(f"t:{tool_id}", safe=_SAFE)


def write_qrels(path: Path, qrels: Mapping[str, Set[str]]) -> Path:
    """Write ``query 0 tool 1`` lines, sorted."""
    lines = [
        f"{trec_query(query)} 0 {trec_tool(tool)} 1"
        for query in sorted(qrels)
        for tool in sorted(qrels[query])
    ]
    return write_text(path, "".join(line + "\n" for line in lines))


def write_run(path: Path, run: RankedRun) -> Path:
    """Write ``query Q0 tool rank score name`` lines, queries sorted, best first.

    trec_eval holds scores in 32 bits and breaks ties by its own rule, so tied scores are set apart
    by the smallest 32-bit step: the order in the file is the order that was judged.
    """
    lines = []
    for index in sorted(range(len(run)), key=lambda i: run.query_ids[i]):
        last = np.float32(np.inf)
        ranking = run.ranking(index)
        for rank, (tool, score) in enumerate(zip(ranking.tool_ids, ranking.scores, strict=True), 1):
            last = min(np.float32(score), np.nextafter(last, np.float32(-np.inf)))
            lines.append(f"{trec_query(ranking.query_id)} Q0 {trec_tool(tool)} {rank} {last!s} {run.name}")
    return write_text(path, "".join(line + "\n" for line in lines))
