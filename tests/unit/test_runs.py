"""Atomic files, stage keys, shards, resume, lock, manifest."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, ClassVar

import pytest

from ecoagent.runs import (
    Progress,
    RunContext,
    Shard,
    ShardResult,
    Stage,
    StageReport,
    bucket,
    execute,
    file_lock,
    folder_done,
    load_manifest,
    missing_shards,
    read_rows,
    run_lock,
    sha256_file,
    sweep,
    write_bytes,
    write_folder,
    write_json,
    write_table,
)
from ecoagent.schema import RejectRow
from ecoagent.settings import UserError, load_settings


class Upper(Stage):
    """Two shards that upper-case an input file."""

    name: ClassVar[str] = "upper"
    version: ClassVar[str] = "1"
    sections: ClassVar[tuple[str, ...]] = ("train",)
    runs: ClassVar[list[str]] = []
    fail_in: ClassVar[str | None] = None

    def inputs(self, ctx: RunContext) -> list[Path]:
        return [ctx.paths.core / "in.txt"]

    def plan(self, ctx: RunContext) -> list[Shard]:
        return [Shard("a", ("x",)), Shard("b", ("y",))]

    def run_shard(self, ctx: RunContext, shard: Shard, directory: Path) -> None:
        self.runs.append(shard.key)
        text = (ctx.paths.core / "in.txt").read_text().upper()
        (directory / "half.txt").write_text(text)
        if self.fail_in == shard.key:
            raise RuntimeError("midway")
        (directory / "text.txt").write_text(text + shard.key)

    def merge(self, ctx: RunContext, results: list[ShardResult]) -> StageReport:
        out = ctx.paths.core / "out.txt"
        write_bytes(out, b"".join((r.directory / "text.txt").read_bytes() for r in results))
        return StageReport([out], rows={"lines": 2})


@pytest.fixture
def ctx(tmp_path: Path) -> RunContext:
    Upper.runs, Upper.fail_in = [], None
    made = RunContext.create(
        load_settings("local", overrides=[f'outputs="{tmp_path}"'], env={}), Progress(quiet=True)
    )
    made.paths.core.mkdir(parents=True)
    (made.paths.core / "in.txt").write_text("hello ")
    return made


def test_a_second_run_is_up_to_date_and_a_changed_input_is_not(ctx: RunContext) -> None:
    assert execute(Upper(), ctx).status == "done"
    again = execute(Upper(), ctx)
    assert again.status == "up to date"
    assert again.report.rows == {"lines": 2}
    assert Upper.runs == ["a", "b"]
    (ctx.paths.core / "in.txt").write_text("bye ")
    assert execute(Upper(), ctx).status == "done"
    assert (ctx.paths.core / "out.txt").read_text() == "BYE aBYE b"


def test_a_lost_or_changed_output_is_made_again_from_the_shards(ctx: RunContext) -> None:
    execute(Upper(), ctx)
    (ctx.paths.core / "out.txt").write_text("tampered")
    assert execute(Upper(), ctx).status == "done"
    assert (ctx.paths.core / "out.txt").read_text() == "HELLO aHELLO b"
    assert Upper.runs == ["a", "b"], "finished shards are kept"


def test_a_failed_shard_leaves_nothing_and_the_finished_one_is_kept(ctx: RunContext) -> None:
    Upper.fail_in = "b"
    with pytest.raises(RuntimeError):
        execute(Upper(), ctx)
    assert sorted(p.name for p in (ctx.paths.raw / "upper").iterdir()) == ["a"]
    Upper.fail_in = None
    assert execute(Upper(), ctx).status == "done"
    assert Upper.runs == ["a", "b", "b"]


def test_what_a_run_would_do_is_known_beforehand(ctx: RunContext) -> None:
    assert [s.key for s in missing_shards(Upper(), ctx)] == ["a", "b"]
    execute(Upper(), ctx)
    assert missing_shards(Upper(), ctx) == []
    (ctx.paths.raw / "upper" / "b" / "text.txt").write_text("tampered")
    assert [s.key for s in missing_shards(Upper(), ctx)] == ["b"]
    (ctx.paths.core / "in.txt").write_text("other")
    assert [s.key for s in missing_shards(Upper(), ctx)] == ["a", "b"]
    assert Upper.runs == ["a", "b"], "asking runs nothing"


def test_a_folder_is_whole_or_absent(tmp_path: Path) -> None:
    final = tmp_path / "kept" / "one"

    def fail(folder: Path) -> None:
        (folder / "half").write_text("x")
        raise RuntimeError("midway")

    def write(text: str) -> Any:
        return lambda folder: (folder / "text").write_text(text)

    with pytest.raises(RuntimeError):
        write_folder(final, "k1", fail)
    assert not folder_done(final, "k1") and list(final.parent.iterdir()) == []
    write_folder(final, "k1", write("first"))
    assert folder_done(final, "k1") and not folder_done(final, "k2")
    with pytest.raises(RuntimeError):
        write_folder(final, "k2", fail)
    assert folder_done(final, "k1"), "what was there stays until the new one is whole"
    write_folder(final, "k2", write("second"))
    assert folder_done(final, "k2") and (final / "text").read_text() == "second"
    (final / "text").write_text("tampered")
    assert not folder_done(final, "k2")


def test_what_was_left_open_is_tried_again(ctx: RunContext) -> None:
    class Incomplete(Upper):
        def merge(self, ctx: RunContext, results: list[ShardResult]) -> StageReport:
            report = super().merge(ctx, results)
            report.summary = {"incomplete": ["package"]}
            return report

    assert execute(Incomplete(), ctx).status == "done"
    assert execute(Incomplete(), ctx).status == "done"


def test_a_shard_that_lacks_something_is_run_again_and_the_others_are_kept(ctx: RunContext) -> None:
    class Lacking(Upper):
        lacks: ClassVar[str] = "b"

        def shard_finished(self, directory: Path) -> bool:
            return directory.name != self.lacks

        def merge(self, ctx: RunContext, results: list[ShardResult]) -> StageReport:
            report = super().merge(ctx, results)
            report.summary = {"incomplete": len(self.lacks)}
            return report

    execute(Lacking(), ctx)
    execute(Lacking(), ctx)
    assert Upper.runs == ["a", "b", "b"]
    Lacking.lacks = ""
    assert execute(Lacking(), ctx).report.summary == {"incomplete": 0}
    assert execute(Lacking(), ctx).status == "up to date"
    assert Upper.runs == ["a", "b", "b"]


def test_force_runs_everything_anew(ctx: RunContext) -> None:
    execute(Upper(), ctx)
    assert execute(Upper(), ctx, force=True).status == "done"
    assert Upper.runs == ["a", "b", "a", "b"]


def test_a_setting_the_stage_reads_changes_its_key_and_another_does_not(ctx: RunContext) -> None:
    execute(Upper(), ctx)
    base = [f'outputs="{ctx.settings.outputs}"']
    other = RunContext.create(
        load_settings("local", overrides=[*base, "labeling.top_k=3"], env={}), Progress(quiet=True)
    )
    assert execute(Upper(), other).status == "up to date"
    changed = RunContext.create(
        load_settings("local", overrides=[*base, "train.epochs=9"], env={}), Progress(quiet=True)
    )
    assert execute(Upper(), changed).status == "done"


def test_a_missing_input_names_the_file_and_the_remedy(ctx: RunContext) -> None:
    (ctx.paths.core / "in.txt").unlink()
    with pytest.raises(UserError, match=r"in\.txt.*remedy: run the stages before it"):
        execute(Upper(), ctx)


def test_manifest_records_what_ran(ctx: RunContext) -> None:
    execute(Upper(), ctx)
    manifest = load_manifest(ctx.paths.manifest)
    stage = manifest["stages"]["upper"]
    assert stage["outputs"] == {"core/out.txt": sha256_file(ctx.paths.core / "out.txt")}
    assert stage["inputs"] == {"core/in.txt": sha256_file(ctx.paths.core / "in.txt")}
    assert stage["shards"] == {"planned": 2, "run": 2}
    assert manifest["versions"]["ecoagent"]
    assert manifest["settings"]["train"]["learning_rate"] == 5e-5


def test_tables_round_trip_and_equal_rows_give_equal_bytes(tmp_path: Path) -> None:
    rows = [RejectRow(id=f"r{i}", stage="s", reason="why", detail="d" * i) for i in range(5)]
    one, two = (
        write_table(tmp_path / "1.parquet", rows, RejectRow),
        write_table(tmp_path / "2.parquet", rows, RejectRow),
    )
    assert read_rows(one, RejectRow) == rows
    assert one.read_bytes() == two.read_bytes()
    assert read_rows(write_table(tmp_path / "0.parquet", [], RejectRow), RejectRow) == []


def test_a_failed_write_keeps_the_old_file(tmp_path: Path) -> None:
    target = write_json(tmp_path / "x.json", {"a": 1})
    with pytest.raises(ValueError, match="Circular"):
        loop: list[Any] = []
        loop.append(loop)
        write_json(target, loop)
    assert json.loads(target.read_text()) == {"a": 1}
    assert [p.name for p in tmp_path.iterdir()] == ["x.json"]


def test_shards_by_hash_do_not_shift() -> None:
    ids = [f"tool{i}" for i in range(500)]
    before = {i: bucket(i, 7) for i in ids}
    assert {i: bucket(i, 7) for i in [*ids, "new"]}.items() >= before.items()
    assert set(before.values()) == set(range(7))


HOLDER = """
import sys, time
from pathlib import Path
from ecoagent.runs import run_lock
with run_lock(Path(sys.argv[1])):
    print("held", flush=True)
    time.sleep(60)
"""


def test_a_run_has_one_process_at_a_time_and_a_killed_one_leaves_no_lock(tmp_path: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(tmp_path)], stdout=subprocess.PIPE, text=True
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline().strip() == "held"
        with pytest.raises(UserError, match=str(holder.pid)), run_lock(tmp_path):
            pass
        os.kill(holder.pid, signal.SIGKILL)
        holder.wait()
    with run_lock(tmp_path), run_lock(tmp_path):
        pass


WRITER = """
import sys
from pathlib import Path
from ecoagent.runs import write_bytes
print("go", flush=True)
i = 0
while True:
    write_bytes(Path(sys.argv[1]), bytes([65 + i % 26]) * 2_000_000)
    i += 1
"""


def test_kill_leaves_the_old_file_or_the_new_one(tmp_path: Path) -> None:
    target = tmp_path / "file"
    for delay in (0.05, 0.11, 0.23):
        with subprocess.Popen([sys.executable, "-c", WRITER, str(target)], stdout=subprocess.PIPE) as writer:
            assert writer.stdout is not None
            writer.stdout.readline()
            time.sleep(delay)
            writer.kill()
            writer.wait()
        if target.exists():
            data = target.read_bytes()
            assert len(data) == 2_000_000
            assert len(set(data)) == 1
    sweep(tmp_path)
    assert {p.name for p in tmp_path.iterdir()} <= {"file"}


def test_one_process_writes_a_file_at_a_time(tmp_path: Path) -> None:
    script = (
        "import sys; from pathlib import Path; from ecoagent.runs import file_lock\n"
        "from ecoagent.settings import UserError\n"
        "try:\n"
        "    with file_lock(Path(sys.argv[1]), Path(sys.argv[2])): print('in')\n"
        "except UserError as error: print(error.message)\n"
    )
    call = [sys.executable, "-c", script, str(tmp_path / "lock.json"), str(tmp_path / "store")]
    with file_lock(tmp_path / "lock.json", tmp_path / "store"):
        assert "being written" in subprocess.run(call, capture_output=True, text=True, check=True).stdout
    assert subprocess.run(call, capture_output=True, text=True, check=True).stdout.strip() == "in"
