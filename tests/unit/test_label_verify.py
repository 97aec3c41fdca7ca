"""Answers of real models are read or said to be unreadable; never guessed."""

from __future__ import annotations

import math
from collections.abc import Sequence

import pytest

from ecoagent.labeling.verify import (
    FORMS,
    Form,
    ToolCard,
    prompt_sha256,
    read_answer,
    read_score,
    verification_request,
    verify_pairs,
)
from ecoagent.llm import GenerationRequest, GenerationResponse, error_response, request_hash

CARD = ToolCard("crewai:X", "Parcel Finder", "Post", "Finds a parcel by its number. " * 60, ("track", "list"))


@pytest.mark.parametrize(
    ("text", "score"),
    [
        ('{"score": 0.75}', 0.75),
        ('```json\n{"score": 1.0}\n```', 1.0),
        ("{'score': 0.2}", 0.2),
        ('{"score": "0.4"}', 0.4),
        ('{"score": "80%"}', 0.8),
        ('{"score": true}', 1.0),
        ('{"score": 7}', None),
        ('{"score": -0.5}', None),
        ('{"score": "{"}', None),
        ('{"match": 0.9} {"score": 0.3}', 0.3),
        ("Score: 0.9", 0.9),
        (".5", 0.5),
        ("8/10", 0.8),
        ("I would say 90 %.", 0.9),
        ("1", 1.0),
        ("7", None),
        ("3/0", None),
        ("Yes, it fits.", 1.0),
        ("No", 0.0),
        ("The tool is good", None),
        ("", None),
        ('{"score": 0.5', 0.5),
        ("8 out of 10", 0.8),
        ('{"reason": "covers 1 need of 2", "score": 0.2', 0.2),
        ("1. No, the tool is for another service.", 0.0),
        ("It covers 1 of the 3 steps.", None),
        ("Score: 0.2 of 1, or score: 0.9", None),
    ],
)
def test_written_scores(text: str, score: float | None) -> None:
    assert read_score(text) == score
    assert read_answer("score", text) == score


def test_yes_no_from_log_probabilities() -> None:
    logs = {"Yes": math.log(0.5), " yes": math.log(0.1), "No": math.log(0.2), "Maybe": math.log(0.1)}
    assert read_answer("yes_no", "Yes", logs) == pytest.approx(0.75)
    # A side that is not listed is at most as probable as the least token listed.
    assert read_answer("yes_no", "Yes", {"Yes": math.log(0.9), "Sure": math.log(0.1)}) == pytest.approx(0.9)
    assert read_answer("yes_no", "no", None) == 0.0
    assert read_answer("yes_no", "Perhaps", {"Perhaps": 0.0}) is None


def test_grade_is_the_expected_digit() -> None:
    logs = {"9": math.log(0.5), "0": math.log(0.25), "6": math.log(0.25), "x": -9.0}
    assert read_answer("grade", "9", logs) == pytest.approx((9 * 0.5 + 6 * 0.25) / 9, abs=1e-6)
    assert read_answer("grade", "3", None) == pytest.approx(1 / 3, abs=1e-6)
    assert read_answer("grade", "10", None) is None
    assert read_answer("grade", "n/a", {"n": 0.0}) is None


@pytest.mark.parametrize("form", FORMS)
def test_request_puts_the_shared_part_first(form: Form) -> None:
    one = verification_request("q:real:1", "where is my  parcel", CARD, form)
    two = verification_request("q:real:2", "send a parcel", CARD, form)
    assert one.messages[0] == two.messages[0]
    assert one.messages[0]["role"] == "system"
    user = one.messages[1]["content"]
    assert user.index("Parcel Finder") < user.index("where is my parcel")
    assert "track; list" in user
    assert len(user.split()) < 120
    assert one.sampling.temperature == 0
    assert (one.sampling.top_logprobs > 0) == (form != "score")
    assert (one.sampling.json_schema is not None) == (form == "score")
    assert one.prompt_sha256 == prompt_sha256(form)


class ScriptedStandIn:
    """A scripted stand-in of the LLM, for tests of parsing only."""

    model = "scripted"

    def __init__(self, answers: dict[str, str]) -> None:
        self.answers = answers
        self.seen: list[str] = []

    def generate(
        self, requests: Sequence[GenerationRequest], *, label: str = "model"
    ) -> list[GenerationResponse]:
        self.seen += [r.id for r in requests]
        out = []
        for request in requests:
            text = self.answers[request.id]
            if text == "fail":
                out.append(error_response(self.model, request, "timeout"))
                continue
            out.append(
                GenerationResponse(
                    id=request.id,
                    request_hash=request_hash(self.model, request),
                    model=self.model,
                    text=text,
                    tokens_in=3,
                    tokens_out=1,
                    finish_reason="stop",
                    status="ok",
                )
            )
        return out


def test_pairs_are_asked_by_tool_and_told_by_query() -> None:
    other = ToolCard("crewai:W", "Weather", None, "Tells the weather.")
    engine = ScriptedStandIn(
        {"q1|crewai:X": '{"score": 0.9}', "q1|crewai:W": "cannot say", "q2|crewai:X": "fail"}
    )
    judged = verify_pairs(
        engine,
        [("q1", "crewai:X"), ("q2", "crewai:X"), ("q1", "crewai:W"), ("q1", "crewai:X")],
        {"q1": "where is it", "q2": "send it"},
        {"crewai:X": CARD, "crewai:W": other},
        "score",
    )
    assert engine.seen == ["q1|crewai:W", "q1|crewai:X", "q2|crewai:X"]
    assert [(j.query_id, j.tool_id, j.raw, j.reason) for j in judged] == [
        ("q1", "crewai:W", None, "unparsable"),
        ("q1", "crewai:X", 0.9, None),
        ("q2", "crewai:X", None, "engine: error:timeout"),
    ]
    assert judged[2].response.status == "error:timeout"
    assert verify_pairs(engine, [], {}, {}, "score") == []
