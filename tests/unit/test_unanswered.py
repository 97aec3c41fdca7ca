"""Requests that failed are named before the tables that miss their answers."""

from __future__ import annotations

from pathlib import Path

import pytest

from ecoagent.llm import ResponseStore, StoredEngine, unanswered_first
from ecoagent.runs import execute
from ecoagent.schema import ResponseRow
from ecoagent.settings import GateError, LLMSettings, UserError
from ecoagent.synthesis import stage as stage_module
from ecoagent.synthesis.stage import SynthesizeStage
from tests.unit.llm_scripted import ScriptedEngine
from tests.unit.test_synthesis_generate import _context, _HashEncoder

SERVER = LLMSettings(engine="server", model="m", base_url="http://127.0.0.1:9/v1")


def responses(*statuses: str) -> list[ResponseRow]:
    return [
        ResponseRow(
            request_hash=f"{n:064}",
            model="m",
            sampling="{}",
            prompt_sha256="p" * 64,
            text="",
            tokens_in=0,
            tokens_out=0,
            finish_reason="error",
            status=status,
        )
        for n, status in enumerate(statuses)
    ]


def test_nothing_answered_is_an_error_that_names_the_server() -> None:
    said = r"3 of 3 requests to m at http://127\.0\.0\.1:9/v1 failed \(error:html 1, error:malformed 2\)"
    with (
        pytest.raises(UserError, match=said) as caught,
        unanswered_first(responses("error:malformed", "error:html", "error:malformed"), SERVER),
    ):
        pytest.fail("the tables are not begun")
    assert caught.value.exit_code == 2 and "same command again" in str(caught.value.remedy)


def test_an_error_inside_is_told_after_the_failures() -> None:
    with (
        pytest.raises(UserError, match=r"1 of 2 .*\(error:timeout 1\), and then: split 'val' is empty"),
        unanswered_first(responses("ok", "error:timeout"), LLMSettings(model="m")),
    ):
        raise GateError("split 'val' is empty", remedy="generate more")


@pytest.mark.parametrize("statuses", [(), ("ok", "ok")])
def test_without_failures_an_error_stays_as_it_is(statuses: tuple[str, ...]) -> None:
    error = GateError("split 'val' is empty", remedy="generate more")
    with pytest.raises(GateError) as caught, unanswered_first(responses(*statuses), SERVER):
        raise error
    assert caught.value is error


def test_failures_that_break_nothing_pass() -> None:
    done = []
    with unanswered_first(responses("ok", "error:timeout"), SERVER):
        done.append(1)
    assert done


def test_generation_with_a_server_that_answers_rubbish(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = ScriptedEngine(lambda prompt: None)
    stored = StoredEngine("scripted", lambda: engine, ResponseStore(tmp_path / "responses.sqlite"))
    monkeypatch.setattr(stage_module, "open_engine", lambda settings, progress: stored)
    monkeypatch.setattr(stage_module, "load_sbert", lambda ctx, name: _HashEncoder())
    ctx = _context(tmp_path)
    with pytest.raises(UserError, match=r"(\d+) of \1 requests to .* failed \(error:"):
        execute(SynthesizeStage(), ctx)
    asked = len(engine.asked)
    with pytest.raises(UserError, match="failed"):
        execute(SynthesizeStage(), ctx)
    assert len(engine.asked) > asked > 0, "failed requests are asked again"
