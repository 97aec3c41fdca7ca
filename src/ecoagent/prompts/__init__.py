"""The prompts, as jinja files released with the data, and the function that fills them in.

A prompt file begins with ``{# version: N #}`` and has the blocks ``system`` and ``user``; a block
``examples`` may hold turns shown before, each under a line ``=== user`` or ``=== assistant``. Files whose
name starts with an underscore are parts that prompts include; a prompt's digest covers its parts.
What all requests share stands first, so that an engine with prefix caching reads it once.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined, Template, TemplateNotFound, meta

from ecoagent.settings import UserError

_FOLDER = Path(__file__).resolve().parent
_VERSION = re.compile(r"\{#-?\s*version:\s*(\S+?)\s*-?#\}")
_TURN = re.compile(r"^=== (user|assistant)\s*$", re.MULTILINE)
_BLANK_LINES = re.compile(r"\n{3,}")


@dataclass(frozen=True)
class RenderedPrompt:
    """A filled-in prompt.

    Attributes:
        name: file name without ``.jinja``.
        version: the file's own version mark.
        sha256: of the template and the parts it includes, not of the filled-in text.
        system: text of the system message.
        user: text of the user message.
        examples: role and text of the turns shown before it.
    """

    name: str
    version: str
    sha256: str
    system: str
    user: str
    examples: tuple[tuple[str, str], ...] = ()

    @property
    def messages(self) -> tuple[dict[str, str], ...]:
        """The prompt as chat messages; an empty system text is left out."""
        turns = [("system", self.system)] if self.system else []
        turns += [*self.examples, ("user", self.user)]
        return tuple({"role": role, "content": text} for role, text in turns)


@cache
def _environment() -> Environment:
    return Environment(
        loader=FileSystemLoader(_FOLDER),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        # Prompts are plain text for a model, not markup.
        autoescape=False,
    )


@cache
def _source(name: str) -> str:
    loader = _environment().loader
    try:
        return loader.get_source(_environment(), f"{name}.jinja")[0] if loader else ""
    except TemplateNotFound as error:
        raise UserError(f"no prompt {name!r}", remedy=f"use one of {', '.join(prompt_names())}") from error


@cache
def _identity(name: str) -> tuple[str, str]:
    """Version mark and digest over the template and, in order of name, everything it includes."""
    source = _source(name)
    found = _VERSION.match(source)
    if found is None:
        raise UserError(f"prompt {name}.jinja has no version", remedy="begin it with {# version: 1 #}")
    seen, todo = {name: source}, [source]
    while todo:
        for part in meta.find_referenced_templates(_environment().parse(todo.pop())):
            stem = (part or "").removesuffix(".jinja")
            if stem not in seen:
                seen[stem] = _source(stem)
                todo.append(seen[stem])
    parts = [f"{stem}\n{text}" for stem, text in sorted(seen.items())]
    return found.group(1), hashlib.sha256("\0".join(parts).encode()).hexdigest()


@cache
def _template(name: str) -> Template:
    _source(name)
    template = _environment().get_template(f"{name}.jinja")
    missing = {"system", "user"} - set(template.blocks)
    if missing:
        raise UserError(
            f"prompt {name}.jinja lacks block {' and '.join(sorted(missing))}",
            remedy="write {% block system %} and {% block user %}",
        )
    return template


def prompt_names() -> list[str]:
    """Names of the shipped prompts, sorted."""
    return sorted(p.stem for p in _FOLDER.glob("*.jinja") if not p.name.startswith("_"))


def render(name: str, /, **context: Any) -> RenderedPrompt:
    """Fill in a prompt.

    Args:
        name: file name without ``.jinja``.
        context: values of the template's variables; a missing one is an error.

    Raises:
        UserError: no such prompt, or the file lacks its version or a block.
        jinja2.UndefinedError: a variable of the template was not given.
    """
    template = _template(name)
    version, sha256 = _identity(name)

    def block(part: str) -> str:
        values = template.new_context(dict(context))
        return _BLANK_LINES.sub("\n\n", "".join(template.blocks[part](values))).strip()

    shown = _TURN.split(block("examples"))[1:] if "examples" in template.blocks else []
    turns = tuple((role, text.strip()) for role, text in zip(shown[::2], shown[1::2], strict=True))
    return RenderedPrompt(name, version, sha256, block("system"), block("user"), turns)


def prompt_files() -> dict[str, str]:
    """Every shipped file, parts included, by file name: released with the data they made."""
    return {p.name: p.read_text("utf-8") for p in sorted(_FOLDER.glob("*.jinja"))}


def prompt_marks() -> dict[str, dict[str, str]]:
    """Version and SHA-256 of every shipped prompt, by name: what a manifest says of them."""
    marks = {name: _identity(name) for name in prompt_names()}
    return {name: {"version": version, "sha256": sha256} for name, (version, sha256) in marks.items()}


def prompt_digests() -> dict[str, str]:
    """SHA-256 of every shipped prompt with its parts, by name: part of stage keys and the manifest."""
    return {name: _identity(name)[1] for name in prompt_names()}
