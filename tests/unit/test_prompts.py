"""Prompt files: identity, rendering, and the shared-part-first order that prefix caching needs."""

from __future__ import annotations

from itertools import takewhile

import pytest
from jinja2 import UndefinedError

from ecoagent import prompts
from ecoagent.prompts import prompt_digests, prompt_names, render
from ecoagent.settings import UserError

INTENTS = ("direct", "troubleshooting", "howto")
TOOL = {
    "name": "Create File",
    "group": "GitHub",
    "description": "Creates a file in a repository.",
    "operations": [],
    "parameters": ["path", "content"],
}


def test_every_prompt_has_a_version_and_a_distinct_digest() -> None:
    digests = prompt_digests()
    assert set(digests) == set(prompt_names())
    assert {f"synthesize_{i}" for i in INTENTS} <= set(digests)
    assert len(set(digests.values())) == len(digests)
    assert all(len(d) == 64 for d in digests.values())


def test_render_fills_in_and_carries_the_identity() -> None:
    shown = render("synthesize_direct", count=4, **TOOL)
    assert shown.sha256 == prompt_digests()["synthesize_direct"]
    assert shown.version.isdigit()
    assert "GitHub" in shown.user and "Create File" in shown.user and "4" in shown.user
    assert "{{" not in shown.user + shown.system and "{#" not in shown.user + shown.system
    roles = [m["role"] for m in shown.messages]
    assert roles == ["system", *["user", "assistant"] * 3, "user"]
    assert all(text and "===" not in text for _, text in shown.examples)


def test_empty_facts_leave_no_empty_lines() -> None:
    bare = TOOL | {"group": None, "parameters": []}
    text = render("synthesize_direct", count=4, **bare).user
    assert "Belongs to" not in text and "inputs" not in text
    assert "None" not in text and "\n\n\n" not in text


def test_intents_share_everything_but_the_last_part() -> None:
    rendered = [render(f"synthesize_{i}", count=4, **TOOL) for i in INTENTS]
    assert len({(r.system, r.examples) for r in rendered}) == 1
    same = takewhile(lambda c: len(set(c)) == 1, zip(*(r.user for r in rendered), strict=False))
    shared = "".join(c[0] for c in same)
    assert "path, content" in shared
    assert all(len(r.user) - len(shared) < 400 for r in rendered)


def test_tool_text_is_data_not_template() -> None:
    hostile = TOOL | {"description": "{{ 7 * 7 }} {% raw %}"}
    assert "{{ 7 * 7 }} {% raw %}" in render("synthesize_howto", count=2, **hostile).user


def test_a_missing_value_and_an_unknown_prompt_are_errors() -> None:
    with pytest.raises(UndefinedError):
        render("synthesize_direct", count=4, name="x")
    with pytest.raises(UserError, match="no prompt 'nothing'"):
        render("nothing")


def test_a_changed_part_changes_the_digest(tmp_path, monkeypatch) -> None:  # type: ignore[no-untyped-def]
    def digest(part: str) -> str:
        (tmp_path / "_part.jinja").write_text(part)
        body = "{# version: 3 #}\n{% block system %}{% endblock %}"
        body += '{% block user %}{% include "_part.jinja" %}{% endblock %}'
        (tmp_path / "whole.jinja").write_text(body)
        monkeypatch.setattr(prompts, "_FOLDER", tmp_path)
        for cached in (prompts._environment, prompts._source, prompts._identity, prompts._template):
            cached.cache_clear()
        assert [m["role"] for m in render("whole").messages] == ["user"]
        return prompt_digests()["whole"]

    try:
        assert digest("one") != digest("two")
    finally:
        monkeypatch.undo()
        for cached in (prompts._environment, prompts._source, prompts._identity, prompts._template):
            cached.cache_clear()
