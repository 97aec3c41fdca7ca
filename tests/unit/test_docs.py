"""The command lines of the README and of the documents beside it exist."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import typer

from ecoagent.cli.app import app

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")), ROOT / "reference_build" / "README.md"]
COMMANDS = [
    line.split("#")[0].strip()
    for page in PAGES
    for block in re.findall(r"```sh\n(.*?)```", page.read_text("utf-8"), re.S)
    for line in block.splitlines()
    if "ecoagent " in line
]
INLINE = re.findall(r"`(ecoagent [a-z][^`]*)`", (ROOT / "README.md").read_text("utf-8"))
CONTRACT = [
    "build",
    "crawl",
    "normalize",
    "score",
    "synthesize",
    "label",
    "train",
    "evaluate",
    "tail",
    "audit",
    "publish",
    "report",
    "audit-links",
    "growth",
    "index",
    "ablate",
    "feedback",
    "freeze",
    "review",
    "diff",
    "rehydrate",
    "models",
    "runs",
    "doctor",
]


def root() -> Any:
    return typer.main.get_command(app)


def parse(line: str) -> Any:
    """The context of the command a documented line calls, its options checked."""
    words = shlex.split(line)
    words = words[words.index("ecoagent") + 1 :]
    command, context = root(), None
    while hasattr(command, "commands"):
        assert words[0] in command.commands, line
        command = command.commands[words.pop(0)]
    return command.make_context(command.name, words, parent=context)


@pytest.mark.parametrize("line", [*COMMANDS, *INLINE])
def test_documented_commands_parse(line: str) -> None:
    assert parse(line).command.callback


def test_the_readme_documents_every_command() -> None:
    assert sorted(root().commands) == sorted(CONTRACT)
    text = (ROOT / "README.md").read_text("utf-8")
    for name in CONTRACT:
        assert f"ecoagent {name}" in text, name


@pytest.mark.parametrize("name", CONTRACT)
def test_every_command_explains_itself(name: str) -> None:
    command = root().commands[name]
    assert command.help
    options = {option for p in command.params for option in p.opts}
    if CONTRACT.index(name) <= CONTRACT.index("report"):
        assert {"--run", "--profile", "--limit", "--seed", "--dry-run", "--json", "--set"} <= options


def test_the_agents_example_runs() -> None:
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text("utf-8"), re.S)
    [example] = [b for b in blocks if "DiscountedLinUCB" in b]
    names: dict[str, Any] = {}
    exec(compile(example, "README.md", "exec"), names)
    assert names["chosen"] in (0, 1, 2)
    assert names["scores"].shape == (3,)
