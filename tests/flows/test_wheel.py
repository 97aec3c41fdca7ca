"""The built wheel, in an empty environment outside the repository."""

from __future__ import annotations

import os
import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import pytest

from ecoagent.runs import read_jsonl
from tests.flows.conftest import REPOSITORY

pytestmark = [pytest.mark.flow, pytest.mark.network]

BANDIT = """
import numpy as np
from ecoagent.rated import DiscountedLinUCB, fuse
bandit = DiscountedLinUCB(3, 4, prior=np.array([0.9, 0.5, 0.1]))
x = np.full(4, 0.5, dtype="float32")
first = bandit.scores(x, np.arange(3))
for _ in range(20):
    bandit.update(0, x, 0.0)
after = bandit.scores(x, np.arange(3))
assert first.argmax() == 0 and after.argmax() == 1, (first, after)
print("bandit ok", fuse(np.ones(3), after, np.ones(3)).shape)
"""


def run(command: list[str], cwd: Path, **extra: str) -> str:
    environment = {
        k: v for k, v in os.environ.items() if not k.startswith(("PYTHONPATH", "VIRTUAL_ENV", "PREFECT_"))
    }
    done = subprocess.run(
        command,
        cwd=cwd,
        env={**environment, **extra},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, f"{command}\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("dist")
    run(
        [sys.executable, "-m", "build", "--no-isolation", "--wheel", "--outdir", str(out), str(REPOSITORY)],
        out,
    )
    return next(out.glob("*.whl"))


def test_the_wheel_holds_one_package_and_its_data(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    assert {n.split("/")[0].removesuffix("-0.1.0.dist-info") for n in names} == {"ecoagent"}
    for needed in (
        "ecoagent/settings/profiles/local.toml",
        "ecoagent/settings/profiles/paper.toml",
        "ecoagent/models/sources.toml",
        "ecoagent/crawlers/data/catalog.lock.json",
        "ecoagent/labeling/data/requests.jsonl",
        "ecoagent/py.typed",
    ):
        assert needed in names
    assert any(n.startswith("ecoagent/prompts/") and n.endswith(".jinja") for n in names)


def test_installed_elsewhere_it_helps_crawls_and_learns(wheel: Path, tmp_path: Path) -> None:
    venv.create(tmp_path / "env", with_pip=True)
    python = tmp_path / "env" / "bin" / "python"
    run([str(python), "-m", "pip", "install", "--quiet", "uv", "torch==2.13.0"], tmp_path)
    lock = str(REPOSITORY / "requirements.lock")
    run(
        [str(python), "-m", "uv", "pip", "install", "--python", str(python), "-c", lock, str(wheel)], tmp_path
    )
    command = str(tmp_path / "env" / "bin" / "ecoagent")
    shown = run([command, "--help"], tmp_path)
    for name in ("build", "crawl", "tail", "doctor", "rehydrate"):
        assert name in shown
    packages = ["llama-index-tools-wikipedia", "n8n-nodes-pirate-weather"]
    listed = ", ".join(f'"{p}"' for p in packages)
    run([command, "crawl", "--run", "wheel", "--set", f"crawl.packages=[{listed}]"], tmp_path)
    crawled = tmp_path / "outputs" / "runs" / "wheel" / "raw" / "crawl"
    rows = [row for path in sorted(crawled.glob("*/candidates.jsonl")) for row in read_jsonl(path)]
    assert {r["record"]["provenance"]["artifact"] for r in rows} == set(packages)
    assert sum(r["status"] == "kept" for r in rows) >= 3
    assert "bandit ok" in run([str(python), "-c", BANDIT], tmp_path)
