"""One real smoke build, shared by the whole-flow tests; and one Prefect harness."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from ecoagent.runs import RunPaths

REPOSITORY = Path(__file__).resolve().parents[2]
COMMAND = [sys.executable, "-m", "ecoagent.cli"]


@dataclass(frozen=True)
class Finished:
    """How a command ended."""

    code: int
    output: str
    seconds: float


def ecoagent(arguments: Sequence[str], cwd: Path, timeout: float = 900.0) -> Finished:
    """Run the command line in a session of its own, so that whatever it starts ends with it."""
    log = cwd / f"command-{time.monotonic_ns()}.log"
    start = time.monotonic()
    with log.open("wb") as handle:
        process = subprocess.Popen(
            [*COMMAND, *arguments], cwd=cwd, stdout=handle, stderr=handle, start_new_session=True
        )
        try:
            code = process.wait(timeout)
        finally:
            kill_session(process)
    return Finished(code, log.read_text("utf-8", "replace"), time.monotonic() - start)


def kill_session(process: subprocess.Popen[bytes]) -> None:
    """SIGKILL a process and everything it started."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        return
    process.wait(30)


@dataclass(frozen=True)
class SmokeBuild:
    """An unbroken smoke build."""

    home: Path
    paths: RunPaths
    finished: Finished


def copy_stores(source: Path, target: Path) -> None:
    """Artifacts and stored responses of one outputs folder into another."""
    shutil.copytree(source / "outputs" / "store", target / "outputs" / "store")


def tree(root: Path) -> dict[str, bytes]:
    """Every file below a folder by its relative path."""
    return {p.relative_to(root).as_posix(): p.read_bytes() for p in sorted(root.rglob("*")) if p.is_file()}


@pytest.fixture(scope="session")
def smoke(tmp_path_factory: pytest.TempPathFactory) -> SmokeBuild:
    """``ecoagent build --profile smoke`` in an empty folder: real crawl, real MiniLM, real LLM."""
    home = tmp_path_factory.mktemp("smoke")
    finished = ecoagent(["build", "--profile", "smoke"], home, timeout=1500)
    assert finished.code == 0, finished.output[-6000:]
    return SmokeBuild(home, RunPaths(home / "outputs" / "runs" / "smoke"), finished)


@pytest.fixture(scope="session")
def prefect_harness() -> Iterator[None]:
    """Prefect's test database, started once."""
    from prefect.testing.utilities import prefect_test_harness

    with prefect_test_harness(server_startup_timeout=120):
        yield
