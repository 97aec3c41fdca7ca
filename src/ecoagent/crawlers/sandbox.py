"""Compiled n8n nodes evaluated in an embedded QuickJS: no files, no network, no processes.

Files go in as JSON text and the descriptions come out as JSON text, because with a time limit set
QuickJS refuses calls back into Python. Modules outside the package are stand-ins that answer every
property and call with themselves.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from typing import Any

MEMORY_BYTES = 256 * 1024 * 1024
STACK_BYTES = 4 * 1024 * 1024
SECONDS = 10
OUTPUT_CHARACTERS = 32 * 1024 * 1024


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

    Each file has a context of its own: one that fails or runs away spoils no other.
    """
    import quickjs

    program = resources.files("ecoagent.crawlers").joinpath("data", "sandbox.js").read_text("utf-8")
    values: dict[str, Any] = {}
    errors: dict[str, str] = {}
    payload = json.dumps(dict(files))
    for path in paths:
        context = quickjs.Context()
        context.set_memory_limit(memory_bytes)
        context.set_max_stack_size(STACK_BYTES)
        context.set_time_limit(seconds)
        try:
            context.eval(program)
            answer = context.eval(f"__run({json.dumps(payload)}, {json.dumps(path)})")
        except quickjs.JSException as error:
            # QuickJS gives the same exception type for script errors, memory and time.
            errors[path] = str(error).strip()[:400] or "the script ended without a word"
            continue
        value, why = _read(answer)
        if why is not None:
            errors[path] = why
        else:
            values[path] = value
    return SandboxResult(values, errors)


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
