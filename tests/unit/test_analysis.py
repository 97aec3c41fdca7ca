"""Words of the lexical rankers: identifiers, case, stop words, stems."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ecoagent.evaluation.ranking import Rankings, lexical_notes
from ecoagent.retrieval import RankerResources, TextSet, find_ranker, rank_bm25, rank_tfidf
from ecoagent.retrieval.analysis import ANALYSIS_NOTES, analyzer, identifier_parts, split_words, words
from ecoagent.runs import RunContext
from ecoagent.settings import BaselineSettings, LexicalAnalysis, TrainSettings, UserError, load_settings

ANALYSES: tuple[LexicalAnalysis, ...] = ("plain", "english")
english = analyzer("english")


@pytest.mark.parametrize(
    ("run", "parts"),
    [
        ("getHealthWorkforce", ("get", "Health", "Workforce")),
        ("HTTPServer", ("HTTP", "Server")),
        ("listAPIs", ("list", "APIs")),
        ("APIsList", ("APIs", "List")),
        ("IDs", ("IDs",)),
        ("ABCmouse", ("AB", "Cmouse")),
        ("top100Songs", ("top", "100", "Songs")),
        ("s3", ("s", "3")),
        ("WEATHER", ("WEATHER",)),
        ("Weather", ("Weather",)),
        ("größeÄndern", ("größe", "Ändern")),
        ("天気", ("天気",)),
        ("", ("",)),
    ],
)
def test_identifiers_are_cut_where_a_word_begins(run: str, parts: tuple[str, ...]) -> None:
    assert identifier_parts(run) == parts


@given(st.text(st.characters(categories=("L", "Nd")), max_size=30))
def test_parts_put_together_are_the_identifier(run: str) -> None:
    parts = identifier_parts(run)
    assert "".join(parts) == run
    assert all(parts) or not run


def test_snake_case_paths_and_compounds() -> None:
    assert split_words("share_location_via_email") == ["share", "location", "via", "email"]
    assert split_words("GET /person/{person_id}/movie_credits") == [
        "get", "person", "person", "id", "movie", "credits",
    ]  # fmt: skip
    # The whole stays: who types the name of a service in lower case finds it.
    assert split_words("YouTube") == ["you", "tube", "youtube"]
    assert split_words("AWS S3") == ["aws", "s", "3", "s3"]
    assert words("share_location getHealth") == ["share_location", "gethealth"]


def test_english_drops_stop_words_and_stems() -> None:
    assert english("Can you send my current locations?") == ["send", "current", "locat"]
    assert english("sending") == english("Sends") == english("send")
    assert "youtub" in english("YouTube videos") and english("youtube") == ["youtub"]
    assert analyzer("plain")("Can you send") == ["can", "you", "send"]


@given(st.lists(st.sampled_from(["what", "is", "it", "who", "are", "you", "the", "to"]), min_size=1))
def test_a_query_of_stop_words_keeps_its_words(query: list[str]) -> None:
    assert len(english(" ".join(query))) == len(query)


@pytest.mark.parametrize("analysis", ANALYSES)
@given(text=st.text(max_size=80))
def test_no_text_with_letters_or_digits_loses_every_term(analysis: LexicalAnalysis, text: str) -> None:
    terms = analyzer(analysis)(text)
    assert all(terms)
    if split_words(text):
        assert terms
    assert terms == analyzer(analysis)(text)


@pytest.mark.parametrize("analysis", ANALYSES)
@given(found=st.lists(st.from_regex(r"[a-z]{1,12}", fullmatch=True), min_size=1, max_size=8))
def test_the_case_of_whole_words_makes_no_difference(analysis: LexicalAnalysis, found: list[str]) -> None:
    terms, text = analyzer(analysis), " ".join(found)
    assert terms(text.upper()) == terms(text.title()) == terms(text)


@given(st.lists(st.from_regex(r"[a-z]{2,9}", fullmatch=True), min_size=2, max_size=5))
def test_the_forms_of_an_identifier_share_its_words(parts: list[str]) -> None:
    apart = english(" ".join(parts))
    assert english("_".join(parts)) == english("/".join(parts)) == apart
    camel = "".join(part.title() for part in parts)
    assert english(camel)[: len(apart)] == apart
    assert english(camel[0].lower() + camel[1:])[: len(apart)] == apart


def test_an_unknown_analysis_is_told() -> None:
    with pytest.raises(UserError, match="unknown lexical analysis 'german'; remedy: use plain, english"):
        analyzer("german")  # type: ignore[arg-type]


TOOLS = TextSet(("mail", "map"), ("share_location_via_email", "drawMaps"))
QUERIES = TextSet(("q:1", "q:2", "q:3"), ("email my locations", "a map", "is it on?"))


@pytest.mark.parametrize("rank", [rank_bm25, rank_tfidf])
def test_identifiers_are_found_by_their_words(rank: object) -> None:
    found = rank(QUERIES, TOOLS, 2)  # type: ignore[operator]
    assert found.tool_ids == [["mail"], ["map"], []]
    assert rank(QUERIES, TOOLS, 2, analysis="plain").tool_ids == [[], [], []]  # type: ignore[operator]


def test_the_setting_reaches_the_rankers_their_keys_and_their_notes() -> None:
    def resources(analysis: LexicalAnalysis) -> RankerResources:
        def path(name: str) -> object:
            raise AssertionError(name)

        return RankerResources(TrainSettings(), path, baselines=BaselineSettings(lexical=analysis))  # type: ignore[arg-type]

    for name in ("bm25", "tfidf"):
        found = {a: find_ranker(name).rank(resources(a), QUERIES, TOOLS, 2, None) for a in ANALYSES}
        assert found["english"].tool_ids[0] == ["mail"] and found["plain"].tool_ids[0] == []
    for analysis in ANALYSES:
        settings = load_settings("local", env={}, overrides=[f"baselines.lexical={analysis}"])
        [note] = lexical_notes(settings, ["encoder", "hybrid"])
        assert ANALYSIS_NOTES[analysis] in note and f"= {analysis}" in note
        assert lexical_notes(settings, ["encoder", "rated"]) == []


def test_the_analysis_is_part_of_what_a_ranking_hangs_on(tmp_path: object) -> None:
    def standing(name: str, analysis: str) -> dict[str, object]:
        settings = load_settings(
            "local", env={}, overrides=[f"baselines.lexical={analysis}", f"outputs={tmp_path}"]
        )
        return Rankings().standing(RunContext.create(settings), name)

    for name in ("bm25", "tfidf", "hybrid"):
        assert standing(name, "plain") != standing(name, "english")
    assert standing("encoder", "plain") == standing("encoder", "english")
