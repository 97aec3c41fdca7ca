"""Parsing and filtering of what instruct models really write."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ecoagent.settings import SynthesisSettings
from ecoagent.synthesis.filters import (
    NAME_LEAK,
    Query,
    leaks_name,
    limit_name_leak,
    no_query,
    reason_to_reject,
    too_short_or_long,
    verbatim,
)
from ecoagent.synthesis.parse import is_english, parse_response, unwrap

PLAIN = "Find the cheapest train from Lyon to Turin on 3 May."


@pytest.mark.parametrize(
    "raw",
    [
        PLAIN,
        f"1. {PLAIN}",
        f"2) {PLAIN}",
        f"(3) {PLAIN}",
        f"[4] {PLAIN}",
        f"- {PLAIN}",
        f"* {PLAIN}",
        f"• {PLAIN}",
        f"> {PLAIN}",
        f"  –  {PLAIN}",
        f'"{PLAIN}"',
        f"“{PLAIN}”",
        f"**{PLAIN}**",
        f"1. **{PLAIN}**",
        f'- "{PLAIN}"',
        f'"{PLAIN}",',
        f'"{PLAIN}',
        f"User: {PLAIN}",
        f"Query 3: {PLAIN}",
        f"**Message 1:** {PLAIN}",
        f"1. **Direct request:** {PLAIN}",
        f"5. User: “{PLAIN}”",
        f"Find the **cheapest** train {PLAIN[24:]}",
    ],
)
def test_wrapping_is_taken_off(raw: str) -> None:
    (line,) = parse_response(raw)
    assert (line.text, line.reason) == (PLAIN, None)
    assert line.raw == raw


@pytest.mark.parametrize(
    ("raw", "text"),
    [
        ("Rename it to '2024 plan' and share it.", "Rename it to '2024 plan' and share it."),
        ("3 people need badges for the fair.", "3 people need badges for the fair."),
        ("12. 5 tickets for the opera, please.", "5 tickets for the opera, please."),
        ('Search for "blue vase" in my shop.', 'Search for "blue vase" in my shop.'),
        ("2024-05-01 is the date, find my flights.", "2024-05-01 is the date, find my flights."),
    ],
)
def test_content_that_looks_like_wrapping_stays(raw: str, text: str) -> None:
    assert unwrap(raw) == text


@pytest.mark.parametrize(
    ("raw", "reason"),
    [
        ("## Direct requests", "heading"),
        ("**Troubleshooting:**", "heading"),
        ("**Direct Requests**", "heading"),
        ("Here are 4 messages for the tool:", "preamble"),
        ("Sure! Here are some queries you could use.", "preamble"),
        ("These messages cover different situations.", "meta"),
        ("Let me know if you need more!", "meta"),
        ("I'm sorry, but I can't assist with that request.", "refusal"),
        ("As an AI language model, I have no access to files.", "refusal"),
        ("¿Cómo puedo buscar los vuelos de Madrid para el lunes?", "language"),
        ("Wie kann ich die Rechnung mit der Steuer für das Jahr finden?", "language"),
        ("请帮我查一下明天去上海的火车票多少钱", "language"),
        ("print(search('flights'))", "code"),
        ("***", "empty"),
    ],
)
def test_what_is_no_query_keeps_its_reason(raw: str, reason: str) -> None:
    lines = parse_response(f"{raw}\n{PLAIN}")
    assert [(x.raw, x.reason) for x in lines] == [(raw, reason), (PLAIN, None)]


@pytest.mark.parametrize(
    "text",
    [
        '["Find a flat in Rome for us.", "Book the room for Monday."]',
        '```json\n["Find a flat in Rome for us.", "Book the room for Monday."]\n```',
        '{"queries": ["Find a flat in Rome for us.", "Book the room for Monday."]}',
        'Here it is:\n[{"query": "Find a flat in Rome for us."}, {"query": "Book the room for Monday."}]',
        '[\n  "Find a flat in Rome for us.",\n  "Book the room for Monday.",\n  "And the thi',
    ],
)
def test_json_lists_whole_and_cut_off(text: str) -> None:
    cut = not text.rstrip().endswith(("]", "}", "```"))
    lines = parse_response(text, finish_reason="length" if cut else "stop")
    assert [x.text for x in lines if x.reason is None] == [
        "Find a flat in Rome for us.",
        "Book the room for Monday.",
    ]


def test_repeated_and_cut_off_lines() -> None:
    text = f"{PLAIN}\n\n2. {PLAIN.lower()}\nBook a table for four at the"
    assert [x.reason for x in parse_response(text, finish_reason="length")] == [None, "repeated", "cut_off"]
    assert [x.reason for x in parse_response(text, finish_reason="stop")] == [None, "repeated", None]
    assert parse_response("  \n\n") == []


@given(st.text(max_size=300), st.sampled_from(["stop", "length"]))
def test_no_line_is_lost_and_nothing_raises(text: str, finish: str) -> None:
    lines = parse_response(text, finish_reason=finish)
    assert [x.number for x in lines] == list(range(len(lines)))
    assert all(unwrap(x.text) == x.text for x in lines)


def test_people_may_say_they_cannot() -> None:
    text = (
        "I can't help my son with fractions, find him a worksheet.\nI cannot open the file from Oslo, get it."
    )
    assert [x.reason for x in parse_response(text)] == [None, None]


def test_english_without_small_words_passes_if_short() -> None:
    assert is_english("Translate invoice 4412 quickly")
    assert is_english("What's Zoë's new address in Malmö?")
    assert not is_english("Какая погода завтра в Москве")


def test_word_limits_are_inclusive() -> None:
    settings = SynthesisSettings()
    assert too_short_or_long("one two three four", settings) == "too_short"
    assert too_short_or_long("one two three four five", settings) is None
    assert too_short_or_long("w " * 120, settings) is None
    assert too_short_or_long("w " * 121, settings) == "too_long"


def test_verbatim_runs() -> None:
    description = "Fetches the current weather information for a specified location."
    assert verbatim("Please get the current weather information for a friend in Oslo", description, 6)
    assert not verbatim("Please get the current weather information in Oslo", description, 6)
    assert verbatim("now READ the contents, of a file", "Read the contents of a file", 6)
    assert verbatim("could you list all my files", "List all my files", 6)
    assert not verbatim("send an email to Bo", "Send email", 6)


@pytest.mark.parametrize(
    ("text", "names", "leak"),
    [
        ("Use Google Jobs to find a post in Graz.", ["google_jobs"], True),
        ("Call google_jobs for me now please.", ["google_jobs"], True),
        ("Run GoogleJobs for me now please.", ["Google Jobs"], True),
        ("Find a job on Google in Graz.", ["google_jobs"], False),
        ("Search my mail for the invoice.", ["Search"], False),
        ("Look up Ada Lovelace on Wikipedia.", ["Wikipedia"], True),
        ("Look up Ada Lovelace.", [""], False),
    ],
)
def test_name_leak(text: str, names: list[str], leak: bool) -> None:
    assert leaks_name(text, names) is leak


def _query(line: int, leak: bool) -> Query:
    return Query("t", "direct", 0, line, "h", f"text {line}", (NAME_LEAK,) if leak else ())


@given(st.lists(st.booleans(), max_size=30), st.sampled_from([0.0, 0.1, 0.3, 0.5, 0.99, 1.0]))
def test_name_leak_is_limited_and_nothing_is_lost(leaks: list[bool], share: float) -> None:
    queries = [_query(i, leak) for i, leak in enumerate(leaks)]
    kept, surplus = limit_name_leak(queries, share)
    assert sorted([*kept, *surplus], key=lambda q: q.line) == queries
    assert all(NAME_LEAK in q.flags for q in surplus)
    assert sum(NAME_LEAK in q.flags for q in kept) <= share * len(kept) + 1e-9


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("Send an e-mail to [insert name] about the fair", "placeholder"),
        ("Use this tool to search the archive for maps", "about_the_tool"),
        ("Check whether the Daytona Sandbox Exec tool is there", "about_the_tool"),
        ("You can search for flights with the airline's site", "answer"),
        ("To search for flights you need a departure city", "answer"),
        ("To search a CSV's content, start by opening the file", "answer"),
        ("The page was not found. Please try again with other words.", "answer"),
        ("To get the names I'd use the reader with a query", "answer"),
        ("The current temperature for 2022-01-15 is 23 degrees Celsius.", "statement"),
        ("The page froze before Bo was saved for Friday, can you get him in?", None),
        ("The binary file named data.bin is empty again.", None),
        ("My supplier sent a bill of 84,000 yen, tell me what that is in euros.", None),
        ("To whom should I send the invoice from Brno?", None),
        (PLAIN, None),
    ],
)
def test_lines_that_are_no_requests(text: str, reason: str | None) -> None:
    assert no_query(text) == reason


def test_reasons_come_in_a_fixed_order() -> None:
    settings = SynthesisSettings()
    description = "Search flights between two cities on a date"
    assert reason_to_reject("Search flights", description, settings) == "too_short"
    assert reason_to_reject(description, description, settings) == "verbatim"
    assert reason_to_reject(PLAIN, description, settings) is None
