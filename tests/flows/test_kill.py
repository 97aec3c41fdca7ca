"""SIGKILL at a random moment of every stage: nothing is lost, nothing doubled, the same bytes come out."""

from __future__ import annotations

import random
import subprocess
import time
from pathlib import Path

import pytest

from ecoagent.runs import read_json
from tests.flows.conftest import COMMAND, SmokeBuild, copy_stores, ecoagent, kill_session, tree
from tests.flows.test_smoke_build import STAGES

pytestmark = [pytest.mark.flow, pytest.mark.network, pytest.mark.llm]

SEED = 20261130


def kill_in(stage: str, home: Path, delay: float) -> str:
    """Start the build, wait for ``stage`` to start, SIGKILL everything ``delay`` seconds later.

    The stage is forced, since a kill that came late in the one before may have let it finish.
    """
    log = home / f"killed-in-{stage}.log"
    with log.open("wb") as handle:
        process = subprocess.Popen(
            [*COMMAND, "build", "--profile", "smoke", "--force", stage],
            cwd=home,
            stdout=handle,
            stderr=handle,
            start_new_session=True,
        )
        deadline = time.monotonic() + 180
        while f"{stage}: started" not in log.read_text("utf-8", "replace"):
            assert process.poll() is None, log.read_text()[-4000:]
            assert time.monotonic() < deadline, log.read_text()[-4000:]
            time.sleep(0.02)
        time.sleep(delay)
        kill_session(process)
    return log.read_text("utf-8", "replace")


def test_killed_in_every_stage_and_the_same_bytes(smoke: SmokeBuild, tmp_path: Path) -> None:
    """Responses and artifacts are stored ones, as byte-identity is promised for equal inputs."""
    copy_stores(smoke.home, tmp_path)
    seconds = {n: s["seconds"] for n, s in read_json(smoke.paths.manifest)["stages"].items()}
    dice = random.Random(SEED)
    for stage in STAGES:
        # Replayed generation is faster than the recorded live one, hence the cap.
        delay = dice.uniform(0.0, min(seconds[stage], 4.0))
        print(f"killed in {stage} after {delay:.2f} s")
        kill_in(stage, tmp_path, delay)
    finished = ecoagent(["build", "--profile", "smoke"], tmp_path)
    assert finished.code == 0, finished.output[-4000:]
    run = tmp_path / "outputs" / "runs" / "smoke"
    for name in ("core", "out"):
        whole, broken = tree(smoke.paths.root / name), tree(run / name)
        assert sorted(whole) == sorted(broken)
        assert [p for p in whole if whole[p] != broken[p]] == []
    leftovers = [p for p in run.rglob(".tmp-*") if ".prefect" not in p.parts]
    assert leftovers == []
