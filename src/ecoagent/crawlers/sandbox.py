"""Compiled n8n nodes evaluated in an embedded QuickJS: no files, no network, no processes.

Files go in as JSON text and the descriptions come out as JSON text, because with a time limit set
QuickJS refuses calls back into Python. Modules outside the package are stand-ins that answer every
property and call with themselves. The engine runs in a process of its own: its time limit does not
reach into native loops (a regular expression, a search in a proxy), and deep recursion can end it.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

MEMORY_BYTES = 256 * 1024 * 1024
STACK_BYTES = 4 * 1024 * 1024
SPARE_BYTES = 2 * 1024 * 1024 * 1024
"""Address space of the process beyond the scripts' memory: Python, the files as text, the answer."""
SECONDS = 10
OUTPUT_CHARACTERS = 32 * 1024 * 1024
MAX_DEATHS = 3
"""Scripts of one package that may end the process, before the rest is left unread."""


@dataclass(frozen=True)
class SandboxResult:
    """Descriptions by path, and by path why there is none."""

    values: dict[str, Any]
    errors: dict[str, str]


def evaluate(
    files: Mapping[str, str],
    paths: Sequence[str],
    *,
    memory_bytes: int = MEMORY_BYTES,
    seconds: int = SECONDS,
) -> SandboxResult:
    """Build the class of each file in ``paths`` and return its plain data.

    Args:
        files: path to text of every file ``require`` may find.
        paths: files to build; the class is named like the file up to its first dot.
        memory_bytes: memory limit of each file's context.
        seconds: processor time limit of each file.

    Each file has a context of its own: one that fails or runs away spoils no other. One that ends the
    process is left out and the others go on in a new one, ``MAX_DEATHS`` times.
    """
    values: dict[str, Any] = {}
    errors: dict[str, str] = {}
    left, deaths = list(dict.fromkeys(paths)), 0
    while left:
        lines, end = _run(files, left, memory_bytes, seconds)
        for line in lines:
            value, why = (None, line["error"]) if "error" in line else _read(line.get("answer"))
            if why is not None:
                errors[line["path"]] = why
            else:
                values[line["path"]] = value
        left = left[len(lines) :]
        if not left:
            break
        errors[left.pop(0)] = end
        deaths += 1
        if deaths == MAX_DEATHS:
            errors |= dict.fromkeys(left, f"not tried: {deaths} scripts before it ended the sandbox")
            break
    return SandboxResult(values, errors)


def _run(
    files: Mapping[str, str], paths: Sequence[str], memory_bytes: int, seconds: int
) -> tuple[list[dict[str, str]], str]:
    """Answers of the scripts that were done, in order, and what ended the process if some were not."""
    import quickjs

    folder = resources.files("ecoagent.crawlers").joinpath("data")
    task = {
        "program": folder.joinpath("sandbox.js").read_text("utf-8"),
        "files": json.dumps(dict(files)),
        "paths": list(paths),
        "memory_bytes": memory_bytes,
        "stack_bytes": STACK_BYTES,
        "spare_bytes": SPARE_BYTES,
        "seconds": seconds,
        "output_characters": OUTPUT_CHARACTERS,
    }
    with resources.as_file(folder.joinpath("sandbox_child.py")) as script:
        command = [sys.executable, "-I", str(script), str(Path(quickjs.__file__).parent)]
        try:
            done = subprocess.run(  # a list, never a shell; none of the user's environment
                command,
                input=json.dumps(task).encode(),
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                timeout=60 + 3 * (seconds + 2) * len(paths),
                env={},
                check=False,
            )
            output, code = done.stdout, done.returncode
        except subprocess.TimeoutExpired as error:
            output, code = error.stdout or b"", -int(signal.SIGXCPU)
    # The last line may be cut.
    lines = [json.loads(line) for line in output.split(b"\n")[:-1]]
    if code == -int(signal.SIGXCPU):
        return lines, f"the script did not end within {seconds} s"
    return lines, f"the script ended the sandbox's process (exit code {code})"


def _read(answer: object) -> tuple[Any, str | None]:
    """The value in an answer, or why there is none.

    Code that was run may have changed what answers are made with: nothing is taken for granted.
    """
    if not isinstance(answer, str) or len(answer) > OUTPUT_CHARACTERS:
        return None, "the description is too large or no data"
    try:
        outcome = json.loads(answer)
        if isinstance(outcome, dict) and "error" in outcome:
            return None, str(_clean(outcome["error"]))[:400]
        if isinstance(outcome, dict) and "value" in outcome:
            return _clean(outcome["value"]), None
    except (ValueError, RecursionError):
        pass
    return None, "the answer is no data"


def _clean(value: Any) -> Any:
    """``value`` with halves of characters, which no file can hold, as question marks."""
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode("utf-8")
    if isinstance(value, list):
        return [_clean(v) for v in value]
    if isinstance(value, dict):
        return {_clean(k): _clean(v) for k, v in value.items()}
    return value
