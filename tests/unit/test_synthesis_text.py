"""Parsing of what instruct models really write."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ecoagent.synthesis.language import is_english
from ecoagent.synthesis.parse import parse_response, unwrap

PLAIN = "Find the cheapest train from Lyon to Turin on 3 May."


def _squeezed(text: str) -> str:
    return "".join(text.split())


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


ROME, MONDAY = "Find a flat in Rome for us.", "Book the room for Monday."


@pytest.mark.parametrize(
    "text",
    [
        f"{ROME}\r\n{MONDAY}\r\n",
        f"1. {ROME} 2. {MONDAY}",
        f"Here are the messages: 1) {ROME} 2) {MONDAY}",
        f"<think>\nTwo lines are wanted.\n\n</think>\n{ROME}\n{MONDAY}",
        f"Two lines are wanted.\n</think>{ROME}\n{MONDAY}",
        f"{ROME}\n{MONDAY}<|im_end|>\n<|im_start|>user\nWrite 3 more of them for me.",
        f"<|im_start|>assistant\n{ROME}\n{MONDAY}</s>",
        f"assistant\n{ROME}\n{MONDAY}\nuser\nWrite 3 more of them for me.",
        f"| # | Message |\n|---|---|\n| 1 | {ROME} |\n| 2 | {MONDAY} |",
        f"<ol>\n<li>{ROME}</li>\n<li>{MONDAY}</li>\n</ol>",
        f"<ul><li>{ROME}</li><li>{MONDAY}</li></ul>",
        f"<p>{ROME}</p>\n{MONDAY}<br>",
        f'"{ROME}", "{MONDAY}"',
        f"['{ROME}', '{MONDAY}']",
        f'{{"query": "{ROME}"}}\n{{"query": "{MONDAY}"}}',
        f'{{"1": "{ROME}", "2": "{MONDAY}"}}',
        f'{{"tool": "flats", "data": {{"direct": ["{ROME}"], "howto": ["{MONDAY}"]}}}}',
        f'{{"messages": "{ROME}\\n{MONDAY}"}}',
        f'[{{"query": "{ROME}", "intent": "direct"}},\n {{"query": "{MONDAY}", "intent": "direct"}}]',
        f'[{{"query": "{ROME}"}}, {{"query": "{MONDAY}"}}, {{"query": "And the thi',
        f"\ufeff{ROME[:6]}\u200b{ROME[6:]}\x00\n{MONDAY}\u200b",
        f"✅ {ROME}\n1️⃣ {MONDAY}",
        f"{ROME} (direct)\n{MONDAY} [how-to]",
        f"a) {ROME}\nb) {MONDAY}",
        f"Assistant: Sure, two lines.\n{ROME}\n{MONDAY}\n\nLet me know if you need more.",
        f"{ROME.replace('flat', 'fl&#97;t')}\n*{MONDAY}*",
        f"{ROME}\n{MONDAY}\n{'x' * 6000}",
    ],
)
def test_shapes_of_responses(text: str) -> None:
    lines = parse_response(text)
    assert [x.text for x in lines if x.reason is None] == [ROME, MONDAY]
    assert _squeezed("".join(x.raw for x in lines)) == _squeezed(text)


@pytest.mark.parametrize(
    "text",
    [
        'Run the query {"title": "Eagle"} on my birds.',
        '{"title": "Eagle"} is what I look for in my collection of birds.',
        "[draft] is in the name of the file, find it.",
        "Example.com is down, check its status please.",
        "(555) 123-4567 called me twice, find out who that is.",
        "5 - 7 people will come, book a table for them.",
        "#12 is a bug in my repo, close it with a comment.",
        '"Foo" and "Bar" are the columns I need.',
        "Here are two requests from my boss, put them on the board.",
        "Summarise the thread about the budget for me 🙂",
        "Do 1. fetch the page 2. save it, in that order.",
        "Add the file a|b|c to the index of my shop.",
        "Let me know if my flight to Rome is delayed.",
        'Find the book "La casa de los espíritus" in the library.',
        "Find El Camino de la Costa on the map of Granada.",
        'Translate "Wo ist der Bahnhof" into English for me.',
        "Compare plan A and plan B",
        "git push fails for my repo since yesterday, find out why.",
    ],
)
def test_lines_that_look_odd_and_are_good(text: str) -> None:
    assert [(x.text, x.reason) for x in parse_response(text)] == [(text, None)]


@pytest.mark.parametrize(
    "text",
    """Busca vuelos baratos a Madrid
Envía un correo a Marta
¿Dónde está mi pedido?
Finde einen Zug nach Wien morgen früh
Wo ist meine Bestellung 4412?
Trouve un hôtel pas cher à Paris
Montre-moi mes factures impayées
Trova un volo per Roma domani mattina
Prenota un tavolo per quattro persone
Encontre um hotel barato em Lisboa
Zoek een goedkoop hotel in Utrecht
Boek een tafel voor vier personen
Какая погода завтра в Москве
ما هو الطقس غدا في القاهرة
내일 서울 날씨 알려줘
明日の東京の天気を教えて""".splitlines(),
)
def test_short_lines_in_other_languages(text: str) -> None:
    assert [x.reason for x in parse_response(text)] == ["language"]


@pytest.mark.parametrize(
    "text", ["Plan a trip to the", "Find a hotel in Rome, my", "Find a flat in Rome,", "See (", "Send the…"]
)
def test_lines_that_break_off(text: str) -> None:
    assert [x.reason for x in parse_response(text)] == ["cut_off"]


def test_repeated_and_cut_off_lines() -> None:
    text = f"{PLAIN}\n\n2. {PLAIN.lower()}\nBook a table for four at the"
    assert [x.reason for x in parse_response(text, finish_reason="length")] == [None, "repeated", "cut_off"]
    assert [x.reason for x in parse_response(text, finish_reason="stop")] == [None, "repeated", "cut_off"]
    # The model ended the line before it was stopped.
    whole = parse_response(f"{PLAIN}\nFind me the way.\n", finish_reason="length")
    assert [x.reason for x in whole] == [None, None]
    assert parse_response("  \n\n") == []


FRAGMENTS = st.sampled_from(
    [
        *(
            PLAIN,
            "Find a flat in Rome for us.",
            "Wo ist der Bahnhof?",
            "user",
            "assistant",
            "[",
            "]",
            "{",
            "}",
            ",",
        ),
        *(
            '"',
            "'",
            "“",
            "”",
            "**",
            "*",
            "1. ",
            "2. ",
            "3) ",
            "- ",
            "# ",
            "```json",
            "```",
            "<think>",
            "</think>",
        ),
        *(
            "<|im_end|>",
            "<|im_start|>",
            "</s>",
            "| a | b |",
            "|---|---|",
            "<li>",
            "</li>",
            "<br>",
            '{"query": "',
        ),
        *(
            '"}',
            '["',
            '", "',
            '"]',
            "\\n",
            "\\",
            ":",
            "Here are the messages: ",
            "&amp;",
            "\u200b",
            "\u200d",
            "🔹 ",
        ),
        *("\n", "\r\n", "\n", " ", "\t", "\x00", "…", "a", "the", "Message 2: ", "(direct)", "Query: "),
    ]
)
TEXTS = st.one_of(st.text(max_size=200), st.lists(FRAGMENTS, max_size=14).map("".join))


@settings(max_examples=400, deadline=None)
@given(TEXTS, st.sampled_from(["stop", "length"]))
def test_no_line_is_lost_and_nothing_raises(text: str, finish: str) -> None:
    lines = parse_response(text, finish_reason=finish)
    assert [x.number for x in lines] == list(range(len(lines)))
    assert all(x.raw.strip() for x in lines)
    assert _squeezed("".join(x.raw for x in lines)) == _squeezed(text)
    assert all(unwrap(x.text) == x.text for x in lines)


@settings(max_examples=400, deadline=None)
@given(TEXTS)
def test_what_is_accepted_is_parsed_into_itself(text: str) -> None:
    texts = [x.text for x in parse_response(text) if x.reason is None]
    again = parse_response("\n".join(texts))
    assert [(x.text, x.reason) for x in again] == [(t, None) for t in texts]


def test_people_may_say_they_cannot() -> None:
    text = (
        "I can't help my son with fractions, find him a worksheet.\nI cannot open the file from Oslo, get it."
    )
    assert [x.reason for x in parse_response(text)] == [None, None]


def test_english_without_small_words_passes_if_short() -> None:
    assert is_english("Translate invoice 4412 quickly")
    assert is_english("What's Zoë's new address in Malmö?")
    assert not is_english("Какая погода завтра в Москве")
