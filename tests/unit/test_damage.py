"""Damaged files: what a marker, a manifest, a table or a settings file does when it is not whole."""

from __future__ import annotations

import errno
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import psutil
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import typer

from ecoagent.cli.options import guarded
from ecoagent.cli.stopping import is_full_disk, require_space
from ecoagent.labeling import load_requests
from ecoagent.report.growth import load_growth
from ecoagent.runs import (
    AbsentError,
    RunContext,
    UnreadableError,
    execute,
    load_manifest,
    read_json,
    read_jsonl,
    read_object,
    read_rows,
    read_table,
    write_json,
    write_table,
)
from ecoagent.schema import RejectRow
from ecoagent.settings import MissingInputError, UserError, load_settings
from tests.unit.test_runs import Upper, ctx  # noqa: F401

DAMAGE = ["", "{", "{}", "[1]", "null", "\x00\x01", '{"key": 3}']


@pytest.mark.parametrize("content", DAMAGE)
def test_a_damaged_stage_marker_means_run_again(ctx: RunContext, content: str) -> None:  # noqa: F811
    execute(Upper(), ctx)
    (ctx.paths.markers / "upper.json").write_text(content)
    assert execute(Upper(), ctx).status == "done"
    assert Upper.runs == ["a", "b"], "the shards are whole and are kept"
    assert execute(Upper(), ctx).status == "up to date"


@pytest.mark.parametrize("content", DAMAGE)
def test_a_damaged_shard_marker_means_run_that_shard_again(ctx: RunContext, content: str) -> None:  # noqa: F811
    execute(Upper(), ctx)
    (ctx.paths.raw / "upper" / "a" / "_shard.json").write_text(content)
    (ctx.paths.markers / "upper.json").unlink()
    assert execute(Upper(), ctx).status == "done"
    assert Upper.runs == ["a", "b", "a"]


@pytest.mark.parametrize("content", DAMAGE)
def test_a_damaged_manifest_is_written_anew(ctx: RunContext, content: str) -> None:  # noqa: F811
    execute(Upper(), ctx)
    ctx.paths.manifest.write_text(content)
    assert load_manifest(ctx.paths.manifest) == {}
    execute(Upper(), ctx, force=True)
    assert load_manifest(ctx.paths.manifest)["stages"]["upper"]["rows"] == {"lines": 2}


def test_a_damaged_table_is_named_with_the_remedy(tmp_path: Path) -> None:
    path = write_table(
        tmp_path / "t.parquet", [RejectRow(id="a", stage="s", reason="r", detail="d")], RejectRow
    )
    whole = path.read_bytes()
    for data in (whole[:200], b"", b"not parquet"):
        path.write_bytes(data)
        for read in (lambda: read_table(path), lambda: read_rows(path, RejectRow)):
            with pytest.raises(UserError, match=r"t\.parquet cannot be read.*remedy: `ecoagent build`"):
                read()


def test_a_table_whose_text_is_not_utf8_is_named(tmp_path: Path) -> None:
    path = write_table(
        tmp_path / "t.parquet", [RejectRow(id="a", stage="s", reason="r", detail="d")], RejectRow
    )
    table = pq.read_table(path)
    broken = pa.array([b"\xff\xfe"], pa.binary()).view(pa.string())
    pq.write_table(table.set_column(table.schema.get_field_index("detail"), "detail", broken), path)
    with pytest.raises(UserError, match=r"t\.parquet cannot be read .*remedy: `ecoagent build`"):
        read_rows(path, RejectRow)


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "not JSON"),
        (b'{"a": {', "not JSON"),
        (b"[" * 100_000, "nested too deeply"),
        (b"1" * 5_000, "not JSON"),
        (b'{"a": "\xe9"}', "not UTF-8"),
        (b"[]", "it is not an object"),
        (b"null", "it is not an object"),
        (b"{}", "'a' is missing"),
        (b'{"a": "3"}', "'a' is not a number"),
        (b'{"a": true}', "'a' is not a number"),
    ],
)
def test_damaged_json_is_named_with_the_remedy(tmp_path: Path, content: bytes, says: str) -> None:
    path = tmp_path / "f.json"
    path.write_bytes(content)
    with pytest.raises(UserError, match=rf"f\.json is damaged: .*{says}.*remedy: do this") as caught:
        read_object(path, {"a": int}, remedy="do this")
    assert isinstance(caught.value, ValueError), "who can do without the file takes it for none"


def test_json_that_is_not_there_is_a_missing_input(tmp_path: Path) -> None:
    for read in (read_json, read_object, read_jsonl):
        with pytest.raises(MissingInputError, match=r"f\.json is not there; remedy: ") as caught:
            read(tmp_path / "f.json")
        assert isinstance(caught.value, AbsentError) and isinstance(caught.value, UnreadableError)


@pytest.mark.parametrize("line", [b"{", b"[]", b"3", b"\xff"])
def test_a_damaged_line_is_named(tmp_path: Path, line: bytes) -> None:
    path = tmp_path / "f.jsonl"
    path.write_bytes(b'{"a": 1}\n\n' + line + b"\n")
    with pytest.raises(UserError, match=r"f\.jsonl .*line 3"):
        read_jsonl(path)


def test_a_table_without_a_column_is_named(tmp_path: Path) -> None:
    path = write_table(tmp_path / "t.parquet", [], RejectRow)
    assert read_table(path, ("id", "reason")).columns == list(RejectRow.model_fields)
    with pytest.raises(UserError, match=r"t\.parquet lacks column 'status'"):
        read_table(path, ("id", "status"))


@pytest.mark.parametrize("entry", [5, [], {}, None, {"summary": 3}])
def test_a_stage_of_another_form_in_a_manifest_has_not_run(ctx: RunContext, entry: object) -> None:  # noqa: F811
    execute(Upper(), ctx)
    content = read_json(ctx.paths.manifest)
    content["stages"]["label"] = entry
    write_json(ctx.paths.manifest, content)
    assert list(load_manifest(ctx.paths.manifest)["stages"]) == ["upper"]


@pytest.mark.parametrize("content", ['{"settings": [1]}', '{"settings": 5}', "[]", "5", "{", "[" * 100_000])
def test_recorded_settings_that_are_none_are_named(tmp_path: Path, content: str) -> None:
    path = tmp_path / "manifest.json"
    path.write_text(content)
    with pytest.raises(UserError, match=r"manifest\.json holds no recorded settings.*--profile"):
        load_settings(str(path), env={})


@pytest.mark.parametrize("content", ["{", "[]", "{}", '{"all": 3}', '{"all": [{"month": 3}]}'])
def test_a_damaged_growth_table_is_named(tmp_path: Path, content: str) -> None:
    assert load_growth(tmp_path) is None
    path = tmp_path / "results" / "growth.json"
    path.parent.mkdir()
    path.write_text(content)
    with pytest.raises(UserError, match=r"growth\.json is damaged.*`ecoagent growth --force`"):
        load_growth(tmp_path)


def _ended(work: Callable[[], object], out: Path | None, capsys: pytest.CaptureFixture[str]) -> str:
    """What a command says that fails at ``work`` with exit code 2."""

    def body() -> int:
        work()
        return 0

    with pytest.raises(typer.Exit) as caught:
        guarded(body, out=out)
    assert caught.value.exit_code == 2
    return " ".join(capsys.readouterr().err.split())


def test_every_file_the_system_refuses_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file, long = tmp_path / "file", tmp_path / ("x" * 300)
    file.write_text("mine")
    for work, name in (
        (lambda: file.mkdir(), file),
        (lambda: (file / "x").mkdir(), file),
        (lambda: long.mkdir(), long),
        (lambda: (tmp_path / "none").read_text(), tmp_path / "none"),
        (lambda: tmp_path.read_text(), tmp_path),
    ):
        said = _ended(work, None, capsys)
        assert f"cannot read or write {name}" in said and "remedy: " in said and "outputs=DIR" in said
        said = _ended(work, name, capsys)
        assert "another folder with --out" in said and "outputs=DIR" not in said


@pytest.mark.parametrize("number", [errno.EACCES, errno.EROFS, errno.EPERM])
def test_the_remedy_for_a_folder_named_with_out_speaks_of_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], number: int
) -> None:
    def refuse(path: Path) -> Callable[[], object]:
        def work() -> object:
            raise OSError(number, os.strerror(number), str(path))

        return work

    out = tmp_path / "out"
    for path in (out, out / "review.html", tmp_path / ".tmp-out.node.1.0", tmp_path):
        said = _ended(refuse(path), out, capsys)
        assert "another folder with --out; it has to be one that you may read and write" in said
    assert "--set outputs=DIR" in _ended(refuse(tmp_path / "outputs" / "runs"), out, capsys)


def test_other_failures_keep_their_traceback() -> None:
    def work() -> int:
        raise OSError("no file in it")

    with pytest.raises(OSError, match="no file in it"):
        guarded(work)


@pytest.mark.parametrize("text", ["crawl = 3", "llm = 'x'", "train = [1]"])
def test_a_section_that_is_no_section_is_named(tmp_path: Path, text: str) -> None:
    profile = tmp_path / "p.toml"
    profile.write_text(text)
    with pytest.raises(UserError, match=f"setting '{text.split()[0]}'"):
        load_settings(str(profile), env={})


def test_files_that_are_not_utf8_are_named(tmp_path: Path) -> None:
    profile, queries = tmp_path / "p.toml", tmp_path / "q.jsonl"
    profile.write_bytes(b"# \xff")
    with pytest.raises(UserError, match=r"p\.toml cannot be read"):
        load_settings(str(profile), env={})
    queries.write_bytes(b'{"id": "a", "text": "Send a mail to Ann"}\n{"id": "b", "text": "\xff"}\n')
    with pytest.raises(UserError, match=r"q\.jsonl row 2: not UTF-8"):
        load_requests(queries)


def test_a_misspelt_field_of_a_request_is_not_lost_in_silence(tmp_path: Path) -> None:
    queries = tmp_path / "q.jsonl"
    queries.write_text(json.dumps({"id": "a", "text": "Send a mail to Ann", "golds": ["x"]}) + "\n")
    with pytest.raises(UserError, match=r"row 1: unknown field 'golds'; remedy: did you mean 'gold'"):
        load_requests(queries)


@pytest.mark.parametrize("name", ["../x", ".", "a b", "x" * 400, "-x", "a/b"])
def test_a_run_name_stays_in_its_folder(name: str) -> None:
    with pytest.raises(UserError, match="setting 'run'"):
        load_settings("local", env={}, run=name)


def test_recorded_settings_of_a_run_can_be_used_again(ctx: RunContext) -> None:  # noqa: F811
    execute(Upper(), ctx)
    again = load_settings(str(ctx.paths.manifest), env={})
    assert again.model_copy(update={"profile_source": ""}) == ctx.settings.model_copy(
        update={"profile_source": ""}
    )
    with pytest.raises(UserError, match="holds no recorded settings"):
        load_settings(str(ctx.paths.manifest.with_name("other.json")), env={})


def test_the_environment_names_its_variable(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"ECOAGENT_TRIAN__EPOCHS.*train\.epochs"):
        load_settings("local", env={"ECOAGENT_TRIAN__EPOCHS": "3"})
    assert load_settings("local", env={"ECOAGENT_PROFILE": "smoke"}).profile == "local"


def test_a_full_disk_is_told_from_other_failures(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    import sqlite3

    assert is_full_disk(OSError(28, "No space left on device"))
    assert is_full_disk(OSError(27, "File too large"))
    assert is_full_disk(sqlite3.OperationalError("database or disk is full"))
    assert not is_full_disk(OSError(2, "No such file"))
    monkeypatch.setattr("ecoagent.cli.stopping._free", lambda folder: 1000)
    with pytest.raises(UserError, match="only 0 MB are free"):
        require_space(tmp_path)


SLEEPER = """
import subprocess, sys, time
import polars
from ecoagent.cli.stopping import stop_at_once_on_signals
stop_at_once_on_signals()
deaf = "import signal, time; signal.signal(2, signal.SIG_IGN); time.sleep(60)"
child = subprocess.Popen([sys.executable, "-c", deaf])
print(child.pid, flush=True)
time.sleep(60)
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_the_process_and_what_it_started(number: signal.Signals) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", SLEEPER], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        child = int(process.stdout.readline())
        process.send_signal(number)
        _, errors = process.communicate(timeout=20)
    assert process.returncode == 128 + number
    assert "finished shards are kept" in errors
    # An orphan that nobody waits for may stay behind as a zombie, which is as dead as can be seen here.
    assert not psutil.pid_exists(child) or psutil.Process(child).status() == psutil.STATUS_ZOMBIE
