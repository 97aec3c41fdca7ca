"""A published data set back into the tables of a run, so that the tail runs on it."""

from __future__ import annotations

from pathlib import Path

from ecoagent.runs import read_rows, write_table
from ecoagent.schema import PairRow, QrelRow, QueryRow, Record, ScoredTool
from ecoagent.settings import UserError

TABLES: tuple[tuple[str, str, type[Record], tuple[str, ...]], ...] = (
    ("tools", "tools", ScoredTool, ("id",)),
    ("syn", "syn_queries", QueryRow, ("query_id",)),
    ("syn_qrels", "syn_qrels", QrelRow, ("query_id", "tool_id")),
    ("syn_pairs", "syn_pairs", PairRow, ("query_id", "label", "tool_id")),
    ("real", "real_queries", QueryRow, ("query_id",)),
    ("real_qrels", "real_qrels", QrelRow, ("query_id", "tool_id")),
)
"""Config of the data set, table of the run, record, order of rows."""


REPUBLISH = (
    "publish it with the version of ecoagent that reads it; fill withheld texts in with `ecoagent rehydrate`"
)


def is_hub_layout(folder: Path) -> bool:
    """Whether a folder holds a data set in this project's Hub layout."""
    return any((folder / "tools").glob("*.parquet")) and any((folder / "syn").glob("*.parquet"))


def import_dataset(folder: Path, core: Path) -> dict[str, int]:
    """Write the core tables of a run from a data set in Hub layout; returns rows a table.

    Raises:
        UserError: a config is missing, a row does not fit the schema, or a tool's text is withheld.
    """
    counts = {}
    for config, table, model, order in TABLES:
        files = sorted((folder / config).glob("*.parquet"))
        if not files:
            raise UserError(
                f"{folder} has no config {config!r}", remedy="give a folder that `ecoagent publish` wrote"
            )
        rows = [row for path in files for row in read_rows(path, model, subset=True, remedy=REPUBLISH)]
        rows.sort(key=lambda r: tuple(getattr(r, name) for name in order))
        write_table(core / f"{table}.parquet", rows, model)
        counts[table] = len(rows)
    return counts


def fetch_dataset(name: str, target: Path) -> Path:
    """A data set of the Hub as a folder.

    Raises:
        UserError: the Hub cannot be reached or has no such data set.
    """
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError

    try:
        return Path(snapshot_download(name, repo_type="dataset", local_dir=target))
    except (HfHubHTTPError, OSError, RuntimeError, ValueError) as error:
        raise UserError(
            f"cannot get data set {name!r} from the Hub ({type(error).__name__}: {str(error)[:200]})",
            remedy="check the name, the network and `hf auth login`, or give a local folder",
        ) from error
