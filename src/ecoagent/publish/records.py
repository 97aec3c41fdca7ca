"""The published form of a tool: what upstream wrote may be withheld, its hash never is."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from ecoagent.runs import digest
from ecoagent.schema import ScoredTool

UPSTREAM_TEXT: tuple[str, ...] = (
    "name",
    "display_name",
    "description",
    "group_name",
    "tags",
    "auth",
    "endpoints",
    "deprecated",
    "parameter_names",
    "input_schema",
    "operations",
    "tool_text",
)
"""Fields that hold upstream's words, or are made of them."""


class PublishedTool(ScoredTool):
    """A tool as it is published."""

    text_withheld: bool = Field(description="True where the licence policy left upstream's text out.")
    text_sha256: str = Field(description="SHA-256 of upstream's text fields, to check a refill against.")


def text_digest(tool: dict[str, Any]) -> str:
    """Hash of the upstream text fields of a tool row."""
    return digest({name: tool[name] for name in UPSTREAM_TEXT})


def published(tool: dict[str, Any]) -> dict[str, Any]:
    """A tool row with its text and hash."""
    return {**tool, "text_withheld": False, "text_sha256": text_digest(tool)}


def withheld(tool: dict[str, Any]) -> dict[str, Any]:
    """A tool row without upstream's text: id, page, hash and what this pipeline derived stay."""
    empty: dict[str, Any] = {
        name: [] if isinstance(tool[name], list) else None if tool[name] is None else ""
        for name in UPSTREAM_TEXT
    }
    empty["deprecated"] = {"state": tool["deprecated"]["state"], "reason": None, "replacement": None}
    return {**tool, **empty, "text_withheld": True, "text_sha256": text_digest(tool)}
