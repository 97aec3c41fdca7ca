"""The record of a run: what ran, on what, from which bytes, for how long."""

from __future__ import annotations

import datetime
import os
import platform
import subprocess
import sys
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

from ecoagent import __version__
from ecoagent.runs.atomic import write_json
from ecoagent.runs.context import RunContext
from ecoagent.runs.json_files import NUMBER, Kind, UnreadableError, read_object
from ecoagent.schema import SCHEMA_VERSION

RECORDED = (
    "torch",
    "sentence-transformers",
    "transformers",
    "polars",
    "pyarrow",
    "numpy",
    "scikit-learn",
    "bm25s",
    "ir-measures",
    "prefect",
    "great-expectations",
    "pandera",
    "datasets",
    "xllamacpp",
    "quickjs",
)


ENTRY_FIELDS: dict[str, Kind] = {
    "outputs": dict,
    "rows": dict,
    "rejects": dict,
    "tokens": dict,
    "summary": dict,
    "seconds": NUMBER,
}
"""What the entry of a stage in a manifest must hold."""


def git_hash() -> str | None:
    """Commit of the checkout the package runs from, ``-dirty`` if changed; none outside one."""
    folder = Path(__file__).resolve().parent
    try:
        shown = subprocess.run(
            ["git", "-C", str(folder), "describe", "--always", "--abbrev=40", "--dirty", "--exclude=*"],
            capture_output=True,
            text=True,
            timeout=10,
            check=False,
        )
        tracked = subprocess.run(
            ["git", "-C", str(folder), "ls-files", "--error-unmatch", Path(__file__).name],
            capture_output=True,
            timeout=10,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return shown.stdout.strip() if shown.returncode == 0 and tracked.returncode == 0 else None


def versions() -> dict[str, str]:
    """Versions of what shapes the results."""
    found = {"ecoagent": __version__, "schema": SCHEMA_VERSION, "python": platform.python_version()}
    for name in RECORDED:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found


def processor() -> str:
    """The kind of processor: encoders' last digits depend on its make and its vector instructions."""
    kinds = ("amx_int8", "avx512f", "avx2", "asimd")
    makes = ("vendor_id", "cpu family", "model", "CPU implementer", "CPU part")
    try:
        text = Path("/proc/cpuinfo").read_text("utf-8")
    except OSError:
        text = ""
    first = text.split("\n\n", 1)[0]
    facts = {k.strip(): v.strip() for k, _, v in (line.partition(":") for line in first.splitlines())}
    flags = set(first.split())
    known = [*(facts[k] for k in makes if k in facts), *(k for k in kinds if k in flags)]
    return " ".join([platform.machine(), *known])


def has_gpu() -> bool:
    """Whether an NVIDIA GPU is here and not hidden from this process."""
    hidden = os.environ.get("CUDA_VISIBLE_DEVICES") in ("", "-1")
    return Path("/dev/nvidiactl").exists() and not hidden


def read_marker(path: Path, fields: Mapping[str, type]) -> dict[str, Any] | None:
    """A JSON object with these fields, or none if the file is missing, damaged or of another form."""
    try:
        return read_object(path, fields)
    except (OSError, UnreadableError):
        return None


def load_manifest(path: Path) -> dict[str, Any]:
    """The manifest at ``path``, or an empty one if there is none that can be read.

    An entry of a stage that is of another form is left out: that stage counts as not run.
    """
    content = read_marker(path, {"run": str, "stages": dict}) or {}
    if content:
        content["stages"] = {k: v for k, v in content["stages"].items() if _is_entry(v)}
    return content


def _is_entry(value: Any) -> bool:
    """Whether a stage's entry has the form in which ``record_stage`` writes it."""
    return (
        isinstance(value, dict)
        and all(isinstance(value.get(k), kind) for k, kind in ENTRY_FIELDS.items())
        and all(isinstance(value.get(k, {}), dict) for k in ("engine", "shards"))
    )


def record_stage(ctx: RunContext) -> None:
    """Write the manifest anew from the settings and the stages' markers."""
    stages = {}
    for marker in sorted(ctx.paths.markers.glob("*.json")):
        content = read_marker(marker, {"stage": str})
        if content is not None:
            stages[content.pop("stage")] = content
    earlier = load_manifest(ctx.paths.manifest)
    now = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    write_json(
        ctx.paths.manifest,
        {
            "run": ctx.settings.run_name,
            "profile": ctx.settings.profile,
            "seed": ctx.settings.seed,
            "created": earlier.get("created", now),
            "updated": now,
            "git": git_hash(),
            "command": " ".join(Path(sys.argv[0]).name if i == 0 else a for i, a in enumerate(sys.argv)),
            "platform": platform.platform(),
            "processor": processor(),
            "versions": versions(),
            "settings": ctx.settings.model_dump(mode="json"),
            "stages": stages,
        },
    )
