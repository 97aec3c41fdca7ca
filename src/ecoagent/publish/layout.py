"""Parquet shards in the layout of the Hugging Face Hub, features embedded, equal bytes for equal rows."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

from ecoagent.publish.records import PublishedTool
from ecoagent.publish.selection import Selection
from ecoagent.schema import PairRow, QrelRow, QueryRow, Record, VerdictRow, arrow_schema
from ecoagent.settings import Settings, UserError, quiet_environment

SPLITS = ("train", "val", "test", "cold", "rejected")
"""Order in which splits are listed."""


@dataclass(frozen=True)
class ConfigSpec:
    """A config of the data set: its rows' record, and which splits must not be empty."""

    name: str
    model: type[Record]
    says: str
    split_column: bool = True


CONFIGS: tuple[ConfigSpec, ...] = (
    ConfigSpec("tools", PublishedTool, "The tools, with their metadata reliability.", split_column=False),
    ConfigSpec("syn", QueryRow, "EcoAgent-Syn: generated queries."),
    ConfigSpec("syn_qrels", QrelRow, "Which tools answer a generated query."),
    ConfigSpec("syn_pairs", PairRow, "Training pairs with hard and random negatives."),
    ConfigSpec("real", QueryRow, "EcoAgent-Real: real-style queries."),
    ConfigSpec("real_qrels", QrelRow, "Which tools answer a real-style query."),
    ConfigSpec("verdicts", VerdictRow, "What encoder and verifier said of each labelled pair."),
)


@dataclass(frozen=True)
class SplitFiles:
    """A written split."""

    config: str
    split: str
    rows: int
    bytes_in_memory: int
    bytes_on_disk: int
    paths: tuple[Path, ...]


def required_splits(settings: Settings) -> dict[tuple[str, str], str]:
    """Splits that must not be empty, each with the setting behind it."""
    needed = {("tools", "train"): f"publish.licence_policy = {settings.publish.licence_policy}"}
    shares: list[tuple[str, Sequence[float], str]] = [
        ("syn", settings.synthesis.splits, "synthesis.splits"),
        ("real", settings.labeling.splits, "labeling.splits"),
    ]
    for config, fractions, key in shares:
        for split, share in zip(("train", "val", "test"), fractions, strict=True):
            if share > 0:
                more = (
                    f"; labeling.verifier_threshold = {settings.labeling.verifier_threshold:g},"
                    f" labeling.max_verified = {settings.labeling.max_verified}"
                    if config == "real"
                    else f"; audit.min_queries = {settings.audit.min_queries}"
                )
                needed[config, split] = f"{key} gives it {share:g}{more}"
    if settings.synthesis.cold_fraction > 0:
        needed["syn", "cold"] = f"synthesis.cold_fraction = {settings.synthesis.cold_fraction:g}"
    return needed


def split_frames(selection: Selection) -> dict[tuple[str, str], pl.DataFrame]:
    """Rows of each (config, split) that has any, in the order they are listed."""
    frames: dict[tuple[str, str], pl.DataFrame] = {}
    for item in CONFIGS:
        frame: pl.DataFrame = getattr(selection, item.name)
        columns = list(item.model.model_fields)
        if not item.split_column:
            if frame.height:
                frames[item.name, "train"] = frame.select(columns)
            continue
        for split in SPLITS:
            part = frame.filter(pl.col("split") == split)
            if part.height:
                frames[item.name, split] = part.select(columns)
    return frames


def check_splits(frames: dict[tuple[str, str], pl.DataFrame], settings: Settings) -> None:
    """Refuse an empty split.

    Raises:
        UserError: naming config, split and the setting that decides its size.
    """
    for (config, split), why in required_splits(settings).items():
        if (config, split) not in frames:
            raise UserError(
                f"split {split!r} of config {config!r} would be empty ({why})",
                remedy="build with more tools or queries, or change the setting named",
            )


def hub_schema(model: type[Record]) -> pa.Schema:
    """Arrow schema of a record with the Hub's features embedded in its metadata."""
    from datasets import Features

    schema: pa.Schema = Features.from_arrow_schema(arrow_schema(model)).arrow_schema
    return schema


def write_split(
    folder: Path, config: str, split: str, frame: pl.DataFrame, model: type[Record], rows_per_shard: int
) -> SplitFiles:
    """Write ``<config>/<split>-00000-of-0000N.parquet`` under ``folder``."""
    table = frame.to_arrow().cast(arrow_schema(model)).cast(hub_schema(model))
    count = max(1, -(-table.num_rows // rows_per_shard))
    target = folder / config
    target.mkdir(parents=True, exist_ok=True)
    paths = []
    for i in range(count):
        start, stop = table.num_rows * i // count, table.num_rows * (i + 1) // count
        path = target / f"{split}-{i:05d}-of-{count:05d}.parquet"
        pq.write_table(
            table.slice(start, stop - start),
            path,
            compression="zstd",
            row_group_size=10_000,
            use_content_defined_chunking=True,
            write_page_index=True,
        )
        paths.append(path)
    size = sum(p.stat().st_size for p in paths)
    return SplitFiles(config, split, table.num_rows, table.nbytes, size, tuple(paths))


def write_splits(folder: Path, selection: Selection, settings: Settings) -> list[SplitFiles]:
    """Write every split of a selection into an empty ``folder``.

    Raises:
        UserError: a split that the settings ask for is empty.
    """
    frames = split_frames(selection)
    check_splits(frames, settings)
    models = {item.name: item.model for item in CONFIGS}
    rows_per_shard = settings.publish.rows_per_shard
    return [
        write_split(folder, config, split, frame, models[config], rows_per_shard)
        for (config, split), frame in frames.items()
    ]


def verify_dataset(folder: Path) -> dict[str, dict[str, int]]:
    """Load every config and split as a user of the Hub would; rows by config and split.

    Raises:
        UserError: the folder cannot be loaded, or a split is empty.
    """
    quiet_environment()
    import datasets

    if not (folder / "README.md").is_file():
        raise UserError(f"{folder} holds no README.md", remedy="run `ecoagent publish` first")
    datasets.disable_progress_bars()
    found: dict[str, dict[str, int]] = {}
    with tempfile.TemporaryDirectory() as cache:
        for config in sorted(datasets.get_dataset_config_names(str(folder))):
            try:
                loaded: Any = datasets.load_dataset(str(folder), config, cache_dir=cache)
            except (ValueError, OSError, datasets.exceptions.DatasetsError) as error:
                raise UserError(
                    f"{folder}, config {config!r}, cannot be loaded: {error}", remedy="publish it anew"
                ) from error
            found[config] = {split: int(part.num_rows) for split, part in loaded.items()}
    for config, splits in found.items():
        for split, rows in splits.items():
            if rows == 0:
                raise UserError(f"{folder}: split {split!r} of {config!r} is empty", remedy="publish it anew")
    return found
