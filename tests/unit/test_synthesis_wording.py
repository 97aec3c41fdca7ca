"""What lines say: word limits, copies, names, answers, narration, flags."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ecoagent.settings import SynthesisSettings
from ecoagent.synthesis.filters import (
    NAME_LEAK,
    TEMPLATED,
    Query,
    flag_templates,
    flagged,
    leaks_name,
    limit_lines,
    other_names,
    reason_to_reject,
    too_short_or_long,
    verbatim,
)
from ecoagent.synthesis.wording import no_query

PLAIN = "Find the cheapest train from Lyon to Turin on 3 May."


def test_word_limits_are_inclusive() -> None:
    limits = SynthesisSettings()
    assert too_short_or_long("one two three four", limits) == "too_short"
    assert too_short_or_long("one two three four five", limits) is None
    assert too_short_or_long("w " * 120, limits) is None
    assert too_short_or_long("w " * 121, limits) == "too_long"


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
        ("Post it on Slack", ["Slack"], True),
        ("Post it on slack", ["Slack"], False),
        ("Post it on Slack's general channel", ["slack", "Slack"], True),
        ("Post it on Slack", ["slack"], True),
        ("Post it on Slackware", ["Slack"], False),
        ("Search for a flight", ["Search"], False),
        ("I am late. Search for a flight", ["Search"], False),
        ("I am late, and Search found no flight", ["Search"], True),
        ('They said: "Search for a flight"', ["Search"], False),
        ("It failed!\nSlack did not get it", ["Slack"], False),
        ("Slack did not get it, tell Slack again", ["Slack"], True),
        ("Ask GPT about it", ["GPT"], True),
        ("Put it in S3 for me", ["S3"], False),
        ("Sell it on eBay for me", ["eBay"], True),
        ("Look it up on wikipedia", ["Wikipedia"], True),
    ],
)
def test_name_leak(text: str, names: list[str], leak: bool) -> None:
    assert leaks_name(text, names) is leak


def _query(line: int, leak: bool, text: str = "") -> Query:
    return Query("t", "direct", 0, line, "h", text or f"text {line}", (NAME_LEAK,) if leak else ())


@settings(deadline=None)
@given(st.lists(st.booleans(), max_size=30), st.sampled_from([0.0, 0.1, 0.3, 0.5, 0.99, 1.0]))
def test_name_leak_is_limited_and_nothing_is_lost(leaks: list[bool], share: float) -> None:
    queries = [_query(i, leak) for i, leak in enumerate(leaks)]
    kept, surplus, over = limit_lines(queries, share, len(leaks))
    assert over == []
    assert sorted([*kept, *surplus], key=lambda q: q.line) == queries
    assert all(NAME_LEAK in q.flags for q in surplus)
    assert sum(NAME_LEAK in q.flags for q in kept) <= share * len(kept) + 1e-9


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("Send an e-mail to [insert name] about the fair", "placeholder"),
        ("Use this tool to search the archive for maps", "about_the_tool"),
        ("My chart is empty, please use the tool again", "about_the_tool"),
        ("Fetch the notes without asking the user to type", "about_the_tool"),
        ("Send it to <name> and to {{ recipient }} now", "placeholder"),
        ("The agent was so sleepy that he wanted to rest", "narrated"),
        ("The nurse needs a form, she has to search the ward's files", "narrated"),
        ("The baker asked to list the tables, but it showed an empty list", "narrated"),
        ('I sent the message "How are you?" to the #general channel.', "report"),
        ("I sent an email to my friend to ask if he would send me the notes.", "report"),
        ("My wife asked the museum guide to look up all images.", "report"),
        ("My wife asked me to look up all images of the fair.", None),
        ("To find recent studies I used the index, then I went on", None),
        ("To find recent studies on fog, I used the index and took the newest", "report"),
        ("There were too many files, please provide a subset of them", "answer"),
        ("Can you read up on my country? Is there a topic you're interested in?", "answer"),
        ("It is the best index of papers", "answer"),
        ("You can search for flights with the airline's site", "answer"),
        ("To search for flights you need a departure city", "answer"),
        ("To search a CSV's content, start by opening the file", "answer"),
        ("The page was not found. Please try again with other words.", "answer"),
        ("To get the names I'd use the reader with a query", "answer"),
        ("The current temperature for 2022-01-15 is 23 degrees Celsius.", "statement"),
        ("The page froze before Bo was saved for Friday, can you get him in?", None),
        ("The binary file named data.bin is empty again.", None),
        ("The message I sent to Bo has a typo, edit it to say Monday.", None),
        ("I want to know if the user can write to chat 12345.", None),
        ("I found a bug in the login page, open an issue for it.", None),
        ("I sent the invoice to the wrong address, can you recall it?", None),
        ('Run the query {"title": "Eagle", "price": 75.0} on my birds', None),
        ("Extract the <h1> and the <title> of https://acme.org", None),
        ('Keep the rows whose status is in ["open", "late"]', None),
        ("I got a timeout from the sandbox. Can you please try again?", None),
        ("The customer was charged twice for order 88, refund one of them.", None),
        ("The order needs to be shipped to Split by Friday.", None),
        ("Here is a list of names, add them to the sheet.", None),
        ("It is too dark in the photo of the cat, brighten it.", None),
        ("My supplier sent a bill of 84,000 yen, tell me what that is in euros.", None),
        ("To whom should I send the invoice from Brno?", None),
        ("Two names, please use the crop tool on both.", None),
        (PLAIN, None),
    ],
)
def test_lines_that_are_no_requests(text: str, reason: str | None) -> None:
    assert no_query(text) == reason


@pytest.mark.parametrize(
    ("text", "names", "reason"),
    [
        ("What is the purpose of the Vector Search tool?", ["Vector Search Tool"], "about_the_tool"),
        ("What is GitLab?", ["Create branch", "GitLab"], "about_the_tool"),
        ("What does GitLab do?", ["GitLab"], "about_the_tool"),
        ("What is the difference between GitLab and Gitea?", ["GitLab"], "about_the_tool"),
        ("I don't know how to use Data Reader, can you help me?", ["data_reader"], "about_the_tool"),
        ("GitLab is a platform for developers.", ["GitLab"], "statement"),
        ("What is the weather in Paris on Friday?", ["weather"], None),
        ("What is the price of bitcoin today?", ["bitcoin"], None),
        ("What are the benefits of sleep for the old?", ["PubMed"], None),
        ("I need the title of a paper. How can I use SearchApi.io for it?", ["searchapi"], None),
        ("The agent could not find the policy for Basel.", ["Invoke Agent"], None),
        ("The agent could not find the policy for Basel.", ["sleep"], "narrated"),
    ],
)
def test_names_tell_questions_about_the_tool_from_others(
    text: str, names: list[str], reason: str | None
) -> None:
    assert no_query(text, names) == reason


HEALTH = ("azure_ai_services_text_analytics_for_health",)


def test_a_name_is_no_copied_run() -> None:
    description = "A wrapper around Azure AI Services Text Analytics for Health. Useful to identify entities."
    text = "Find the drugs in my notes with Azure AI Services Text Analytics for Health, useful or not."
    assert verbatim(text, description, 6)
    assert not verbatim(text, description, 6, HEALTH)
    assert reason_to_reject(text, description, SynthesisSettings(), HEALTH) is None
    assert flagged(_query(0, False, text), HEALTH).flags == (NAME_LEAK,)
    copied = "Is it A wrapper around Azure AI Services Text Analytics for Health. Useful to identify them?"
    assert verbatim(copied, description, 6, HEALTH)


def test_plain_english_is_no_copied_run() -> None:
    description = "Use this tool to send a message with the provided fields."
    assert not verbatim("I want to send a message with the subject lunch", description, 6)
    assert verbatim("please send a message with the provided fields to Bo", description, 6)


def test_copies_of_the_prompt_are_rejected() -> None:
    limits = SynthesisSettings()
    copies = [
        "My supplier in Osaka sent a bill of 94,000 yen, ask the bank what that comes to in euros today.",
        "What is the best way in photo editor to make my passport picture exactly 35 by 45 millimetres?",
        "List the guests of PartyList for the wedding of my cousin.",
        "Most of them mention the calendar of my team.",
    ]
    for text in copies:
        assert reason_to_reject(text, "Does a thing.", limits) == "prompt_copy"
    assert reason_to_reject(copies[2], "Does a thing.", limits, ("PartyList",)) is None
    assert reason_to_reject("Send a direct message to Bo about lunch.", "Does a thing.", limits) is None


@pytest.mark.parametrize(
    ("text", "flags"),
    [
        (PLAIN, ()),
        ("I could not open the file from Oslo.", ("no_request",)),
        ("I could not open the file from Oslo, get it for me.", ()),
        ("Find my notes with the csv search tool.", (NAME_LEAK, "says_tool")),
        ("Which tools do people use for hedges?", ("says_tool",)),
        ("How do I install Data Reader on my laptop?", ("about_setup", NAME_LEAK)),
    ],
)
def test_flags(text: str, flags: tuple[str, ...]) -> None:
    assert flagged(_query(0, False, text), ("Data Reader",), "csv search").flags == flags


def test_templates_are_flagged_per_tool() -> None:
    texts = [f"How do I make my agent sleep for {n} seconds?" for n in (20, 30, 40)]
    lines = [_query(i, i == 0, text) for i, text in enumerate([*texts, PLAIN])]
    other = Query("u", "direct", 0, 9, "h", texts[0])
    marked = flag_templates([*lines, other])
    assert [q.flags for q in marked] == [(NAME_LEAK, TEMPLATED), (TEMPLATED,), (TEMPLATED,), (), ()]
    assert [q.text for q in marked] == [*texts, PLAIN, texts[0]]
    assert flag_templates(lines[1:]) == lines[1:]
    assert flag_templates([]) == []


def test_siblings_named_by_the_own_name_say_nothing() -> None:
    assert other_names(["Brave Search", "Brave Image Search"], ["Brave Video Search"]) == [
        "Brave Image Search"
    ]
    assert other_names(["Delete File"], ["create_file", "GitHub"]) == ["Delete File"]


def test_reasons_come_in_a_fixed_order() -> None:
    limits = SynthesisSettings()
    description = "Search flights between two cities on a date"
    assert reason_to_reject("Search flights", description, limits) == "too_short"
    assert reason_to_reject(description, description, limits) == "verbatim"
    assert reason_to_reject(PLAIN, description, limits) is None
