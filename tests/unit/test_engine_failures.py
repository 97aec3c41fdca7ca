"""What goes wrong around a model: counted, tried again, then rows with a status; and nothing half written."""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from ecoagent.llm import balance, close_engines
from ecoagent.llm.stub import STUB_MODEL
from ecoagent.publish.stage import PublishStage
from ecoagent.runs import (
    Progress,
    RunContext,
    Shard,
    execute,
    read_json,
    read_rows,
    serial,
    sha256_file,
    write_table,
)
from ecoagent.schema import RejectRow, ResponseRow, ScoredTool
from ecoagent.settings import GateError, UserError
from ecoagent.synthesis import stage as stage_module
from ecoagent.synthesis.stage import SynthesizeStage
from tests.unit.fixture_run import fixture_settings, make_tools
from tests.unit.stub_server import stub_server
from tests.unit.test_synthesis_generate import _HashEncoder

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(autouse=True)
def encoder(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(stage_module, "load_sbert", lambda ctx, name: _HashEncoder())
    yield
    close_engines()


def context(outputs: Path, url: str, *more: str) -> RunContext:
    overrides = [
        "synthesis.tools_per_catalog=3",
        "synthesis.verify_queries=false",
        "flow.tools_per_shard=2",
        'llm.engine="server"',
        'llm.reference="none"',
        f'llm.model="{STUB_MODEL}"',
        f'llm.base_url="{url}"',
        "llm.retries=0",
        f'llm.store="{outputs / "store.sqlite"}"',
        *more,
    ]
    ctx = RunContext.create(fixture_settings(outputs, *overrides), Progress(quiet=True))
    write_table(ctx.paths.core / "tools.parquet", sorted(make_tools(40), key=lambda t: t.id), ScoredTool)
    return ctx


def files(ctx: RunContext) -> dict[str, str]:
    """Digest of every table and of the rows of every shard; how many were replayed may differ."""
    found = [*ctx.paths.core.rglob("syn_*"), *(ctx.paths.raw / "synthesize").glob("[!.]*/*.jsonl")]
    return {ctx.paths.relative(p): sha256_file(p) for p in sorted(found)}


def unbroken(outputs: Path) -> tuple[dict[str, str], int]:
    """Files of a run in which nothing goes wrong, and how many requests it takes."""
    with stub_server() as server:
        ctx = context(outputs, server.url)
        execute(SynthesizeStage(), ctx)
        close_engines()
        return files(ctx), len(server.seeds)


FAULTY = ("llm.timeout_s=3", "llm.concurrency=16", "flow.tools_per_shard=20", "synthesis.max_attempts=1")


KINDS = 6


def fault(number: int, body: dict[str, Any]) -> tuple[int, str] | None:
    """One kind of fault a seed, whenever it is asked."""
    choice = {"index": 0, "message": {"role": "assistant", "content": ""}, "finish_reason": "stop"}
    kind = body["seed"] % KINDS
    if kind == 0:
        time.sleep(5.0)
    return {
        1: (503, "busy"),
        2: (200, '{"choices": [{"mess'),
        3: (200, json.dumps({"choices": [choice]})),
        4: (400, '{"error": {"message": "This model\'s maximum context length is 2048 tokens."}}'),
    }.get(kind)


def test_every_fault_is_a_row_with_its_status_and_the_stage_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(balance, "MAX_PAUSE_S", 0.5)
    with stub_server(fault) as server:
        ctx = context(tmp_path, server.url, *FAULTY, "llm.retries=1")
        outcome = execute(SynthesizeStage(), ctx)
        assert outcome.status == "done"
        tries = Counter(server.seeds)
    rows = read_rows(ctx.paths.core / "syn_responses.parquet", ResponseRow)
    status = {json.loads(r.sampling)["seed"]: r.status for r in rows}
    assert set(status) == set(tries)
    kinds = {kind: {s for seed, s in status.items() if seed % KINDS == kind} for kind in range(KINDS)}
    assert kinds[0] == {"error:timeout"} and kinds[1] == {"error:http_503"}
    assert kinds[2] == {"error:malformed"} and kinds[3] == {"error:empty"}
    assert kinds[4] == {"error:context_overflow"} and kinds[5] == {"ok"}
    # What another try may mend had one; a prompt that is too long had not.
    assert {seed % KINDS for seed, n in tries.items() if n == 2} == {0, 1, 2, 3}
    assert {seed % KINDS for seed, n in tries.items() if n == 1} == {4, 5}
    failed = sum(value != "ok" for value in status.values())
    assert outcome.report.tokens["failed"] == failed > 10
    coverage = read_json(ctx.paths.core / "syn_coverage.json")
    assert sum(c["failed_requests"] for c in coverage) == failed
    rejects = read_rows(ctx.paths.core / "syn_rejects.parquet", RejectRow)
    reasons = Counter(r.reason for r in rejects if r.stage == "synthesize/generate")
    assert reasons["error:empty"] == sum(seed % KINDS == 3 for seed in status)
    assert sum(n for reason, n in reasons.items() if reason.startswith("error:")) == failed
    tools = {t.id for t in read_rows(ctx.paths.core / "tools.parquet", ScoredTool)}
    assert {r.id.rsplit("|", 1)[0] for r in rejects if r.stage == "synthesize/generate"} <= tools


def test_a_later_run_asks_failures_again_and_nothing_else(tmp_path: Path) -> None:
    expected, _ = unbroken(tmp_path / "whole")
    with stub_server(lambda n, body: (503, "") if body["seed"] % 3 == 0 else None) as server:
        ctx = context(tmp_path / "run", server.url)
        execute(SynthesizeStage(), ctx)
        failed = {
            r.request_hash
            for r in read_rows(ctx.paths.core / "syn_responses.parquet", ResponseRow)
            if r.status != "ok"
        }
        assert failed and files(ctx) != expected
        server.fault = None
        first = set(server.seeds)
        del server.seeds[:]
        again = execute(SynthesizeStage(), ctx)
        assert again.status == "done" and again.report.summary["incomplete"] == 0
        assert all(seed % 3 == 0 for seed in set(server.seeds) & first)
        assert files(ctx) == expected
        del server.seeds[:]
        assert execute(SynthesizeStage(), ctx).status == "up to date" and server.seeds == []


def test_a_shard_without_failures_is_kept_when_another_is_asked_again(tmp_path: Path) -> None:
    expected, _ = unbroken(tmp_path / "whole")
    with stub_server() as server:
        ctx = context(tmp_path / "run", server.url)

        def outage(work: Callable[[Shard], str], shards: Sequence[Shard]) -> None:
            serial(work, shards[1:])
            # Not all of them: a server that answers nothing is waited for.
            server.fault = lambda n, body: (503, "") if body["seed"] % 2 else None
            serial(work, shards[:1])

        incomplete = execute(SynthesizeStage(), ctx, mapper=outage).report.summary["incomplete"]
        shards = [s.key for s in SynthesizeStage().plan(ctx)]
        assert incomplete > 0 and len(shards) > 2
        server.fault = None
        ran: list[str] = []

        def mapper(work: Callable[[Shard], str], shards: Sequence[Shard]) -> None:
            ran.extend(s.key for s in shards)
            serial(work, shards)

        assert execute(SynthesizeStage(), ctx, mapper=mapper).report.summary["incomplete"] == 0
        assert ran == shards[:1]
        assert files(ctx) == expected


def test_an_engine_that_dies_in_a_shard_ends_the_run_and_the_next_one_goes_on(tmp_path: Path) -> None:
    expected, total = unbroken(tmp_path / "whole")
    # A key that is refused concerns every request, as does a server that is gone.
    with stub_server(lambda n, _: (401, "") if n >= total // 2 else None) as server:
        ctx = context(tmp_path / "run", server.url, "llm.concurrency=1")
        with pytest.raises(UserError, match="refuses the key"):
            execute(SynthesizeStage(), ctx)
    finished = sorted(p.parent.name for p in ctx.paths.raw.rglob("_shard.json"))
    stamps = [(ctx.paths.raw / "synthesize" / name).stat().st_mtime_ns for name in finished]
    assert finished and not list(ctx.paths.core.glob("syn_*"))
    assert list(ctx.paths.root.rglob(".tmp-*")) == []
    close_engines()  # and its connections, which the stub would go on serving
    with pytest.raises(UserError, match="no model server answers"):
        execute(SynthesizeStage(), ctx)
    with stub_server() as server:
        ctx = context(tmp_path / "run", server.url)
        execute(SynthesizeStage(), ctx)
        assert len(server.seeds) == total - total // 2
    assert [(ctx.paths.raw / "synthesize" / name).stat().st_mtime_ns for name in finished] == stamps
    assert files(ctx) == expected


# The stage in a process of its own: what the test kills.
RUN = """
import sys
from pathlib import Path
from ecoagent.runs import execute
from ecoagent.synthesis import stage as stage_module
from tests.unit.test_engine_failures import context
from tests.unit.test_synthesis_generate import _HashEncoder
stage_module.load_sbert = lambda ctx, name: _HashEncoder()
execute(stage_module.SynthesizeStage(), context(Path(sys.argv[1]), sys.argv[2]))
"""


def test_kill_in_a_shard_repeats_no_finished_shard_and_gives_the_same_bytes(tmp_path: Path) -> None:
    expected, total = unbroken(tmp_path / "whole")
    running: list[subprocess.Popen[bytes]] = []

    def deadly(number: int, _: dict[str, Any]) -> None:
        if number == total * 2 // 3:
            running[0].send_signal(signal.SIGKILL)

    with stub_server(deadly) as server:
        command = [sys.executable, "-c", RUN, str(tmp_path / "run"), server.url]
        running.append(
            subprocess.Popen(command, cwd=ROOT, env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)})
        )
        assert running[0].wait(120) == -signal.SIGKILL
        ctx = context(tmp_path / "run", server.url)
        finished = sorted((ctx.paths.raw / "synthesize").glob("[!.]*/_shard.json"))
        markers = {p: p.stat().st_mtime_ns for p in finished}
        assert markers and len(markers) < len(SynthesizeStage().plan(ctx))
        server.fault = None
        execute(SynthesizeStage(), ctx)
        twice = [seed for seed, n in Counter(server.seeds).items() if n > 1]
        assert len(twice) <= ctx.settings.llm.concurrency
        assert {p: p.stat().st_mtime_ns for p in markers} == markers
    assert files(ctx) == expected


@contextmanager
def full_disk(limit: int) -> Iterator[None]:
    """No file may grow beyond ``limit`` bytes: writing fails as on a full disk."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    before = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGXFSZ, before)


def test_a_full_disk_leaves_no_half_shard(tmp_path: Path) -> None:
    expected, _ = unbroken(tmp_path / "whole")
    with stub_server() as server:
        ctx = context(tmp_path / "run", server.url)

        def mapper(work: Callable[[Shard], str], shards: Sequence[Shard]) -> None:
            work(shards[0])
            size = ctx.settings.llm.store.stat().st_size
            with full_disk(min(size, 1500)):
                work(shards[1])

        with pytest.raises((OSError, UserError)):
            execute(SynthesizeStage(), ctx, mapper=mapper)
        left = [p.name for p in sorted((ctx.paths.raw / "synthesize").iterdir())]
        assert left == [SynthesizeStage().plan(ctx)[0].key]
        close_engines()
        execute(SynthesizeStage(), ctx)
        assert files(ctx) == expected


def test_a_full_disk_leaves_no_half_table(tmp_path: Path) -> None:
    expected, total = unbroken(tmp_path / "whole")
    with stub_server() as server:
        ctx = context(tmp_path / "run", server.url)
        limit = full_disk(1000)

        def mapper(work: Callable[[Shard], str], shards: Sequence[Shard]) -> None:
            serial(work, shards)
            limit.__enter__()

        try:
            with pytest.raises(OSError, match=r"large|space|write"):
                execute(SynthesizeStage(), ctx, mapper=mapper)
        finally:
            limit.__exit__(None, None, None)
        assert list(ctx.paths.core.glob("syn_*")) == list(ctx.paths.core.glob(".tmp-*")) == []
        assert not (ctx.paths.markers / "synthesize.json").exists()
        execute(SynthesizeStage(), ctx)
        assert len(server.seeds) == total
    assert files(ctx) == expected


def test_a_stub_is_no_setting_and_is_not_published(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"llm\.engine"):
        fixture_settings(tmp_path, 'llm.engine="stub"')
    with pytest.raises(GateError, match="made with the stub"):
        PublishStage().run_shard(context(tmp_path, "http://127.0.0.1:9/v1"), Shard("all"), tmp_path)
