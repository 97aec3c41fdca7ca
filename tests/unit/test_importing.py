"""A published data set back into the tables of a run."""

from __future__ import annotations

import shutil
from pathlib import Path

import polars as pl
import pytest
from typer.testing import CliRunner

from ecoagent.cli.app import app
from ecoagent.cli.tail import _locate
from ecoagent.publish.importing import TABLES, import_dataset, is_hub_layout
from ecoagent.runs import RunContext, read_table
from ecoagent.settings import UserError
from tests.unit.test_publish import published


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> RunContext:
    """Everything published, so that nothing is missing on the way back."""
    return published(tmp_path_factory.mktemp("outputs"), "publish.licence_policy=all")


def test_what_was_published_comes_back_row_for_row(run: RunContext, tmp_path: Path) -> None:
    folder = run.paths.out / "dataset"
    assert is_hub_layout(folder)
    counts = import_dataset(folder, tmp_path)
    for _, table, _, order in TABLES:
        back, original = (
            read_table(tmp_path / f"{table}.parquet"),
            read_table(run.paths.core / f"{table}.parquet"),
        )
        assert counts[table] == original.height
        assert back.select(original.columns).sort(order).equals(original.sort(order)), table


def test_a_missing_config_and_a_bad_row_are_named(run: RunContext, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(run.paths.out / "dataset", copy)
    path = next((copy / "syn").glob("test-*.parquet"))
    frame = pl.read_parquet(path)
    frame.with_columns(split=pl.lit("nowhere")).write_parquet(path)
    with pytest.raises(UserError, match=rf"{path.name} row 1, column 'split'"):
        import_dataset(copy, tmp_path / "core")
    frame.drop("text").write_parquet(path)
    with pytest.raises(UserError, match="lacks column 'text'"):
        import_dataset(copy, tmp_path / "core")
    shutil.rmtree(copy / "syn")
    with pytest.raises(UserError, match="no config 'syn'"):
        import_dataset(copy, tmp_path / "core")


def test_an_import_never_replaces_a_built_run(run: RunContext) -> None:
    marker = run.paths.markers / "score.json"
    marker.write_text("{}")
    options = ["--dataset", str(run.paths.out / "dataset"), "--run", "local"]
    options += ["--set", f"outputs={run.settings.outputs}", "--profile", "local"]
    before = (run.paths.core / "tools.parquet").read_bytes()
    result = CliRunner().invoke(app, ["tail", *options])
    marker.unlink()
    assert result.exit_code == 2
    assert "importing would replace its tables" in result.output
    assert (run.paths.core / "tools.parquet").read_bytes() == before


def test_what_a_data_set_option_can_name(run: RunContext, tmp_path: Path) -> None:
    assert _locate("local", run.settings) == ("run", run.paths.root)
    assert _locate(str(run.paths.out / "dataset"), run.settings)[0] == "folder"
    assert _locate("someone/ecoagent", run.settings) == ("hub", Path("someone/ecoagent"))
    with pytest.raises(UserError, match="neither a run nor a data set"):
        _locate(str(tmp_path), run.settings)
    with pytest.raises(UserError, match="no run and no folder 'nothing'"):
        _locate("nothing", run.settings)
