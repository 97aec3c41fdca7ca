"""TR-Feedback without a model: categories, the critic's answers, the loop, the loss and the fusion."""

from __future__ import annotations

import json
import math
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from ecoagent.feedback import (
    PROMPTS,
    Feedback,
    Gate,
    IterationRetriever,
    IterationRow,
    ShownTool,
    categories_of,
    domain_of,
    fault_of,
    fit_gate,
    fuse_runs,
    fused_candidates,
    hold_out,
    iteration_loss,
    mine_negatives,
    read_assessment,
    read_query,
    run_feedback,
    score_gaps,
    train_iterations,
    with_iteration,
)
from ecoagent.feedback.critic import comprehension_request, reads_english
from ecoagent.feedback.training import alpha_of
from ecoagent.llm import GenerationRequest, GenerationResponse, StoredEngine, error_response
from ecoagent.llm.protocol import OnResponse
from ecoagent.llm.store import ResponseStore
from ecoagent.prompts import prompt_digests, render
from ecoagent.retrieval import (
    Embeddings,
    RankedRun,
    SentenceEncoder,
    TextSet,
    TrainingRow,
    build_two_tower,
    rank_dense,
)
from ecoagent.retrieval.encoders import OnBatch
from ecoagent.retrieval.losses import info_nce
from ecoagent.settings import FeedbackSettings, UserError, load_settings
from tests.unit.fixture_run import WORDS, make_tools
from tests.unit.llm_scripted import answer
from tests.unit.tiny_bert import write_tiny_bert

TOOLS = TextSet(
    ("a:mail", "b:sheet", "c:weather", "d:rain", "e:music"),
    (
        "Mail: send a letter to people.",
        "Sheet: make a table of rows.",
        "Weather: forecast of a city.",
        "Rain: amount of rain in a city.",
        "Music: play songs.",
    ),
)
SHOWN = {
    i: ShownTool(i, text.split(":")[0] + " tool", None, text.split(": ")[1])
    for i, text in zip(TOOLS.ids, TOOLS.texts, strict=True)
}
QUERIES = TextSet(
    ("q:1", "q:2", "q:3"),
    ("will it be wet in Oslo tomorrow", "write to my aunt that we are late", "make a list of our guests"),
)


class WordEncoder:
    """Vectors of hashed words: equal texts are equal, texts that share words are near."""

    name, dim = "words", 512

    def encode_queries(self, texts: Sequence[str], on_batch: OnBatch | None = None) -> Embeddings:
        return np.stack([self._vector(t) for t in texts]) if texts else np.empty((0, self.dim), np.float32)

    encode_documents = encode_queries

    def _vector(self, text: str) -> Embeddings:
        found = np.full(self.dim, 1e-3, dtype=np.float32)
        for word in text.lower().replace(":", " ").replace(".", " ").split():
            found[zlib.crc32(word.encode()) % self.dim] += 1
        return (found / np.linalg.norm(found)).astype(np.float32)


class ScriptedCritic:
    """Answers by turn (0 to 2) and the request's first line; None is a failed request."""

    def __init__(self, script: Callable[[int, str], str | None], finish: str = "stop") -> None:
        self.model, self.script, self.finish = "critic", script, finish
        self.asked: list[str] = []

    def generate(
        self, requests: Sequence[GenerationRequest], on_response: OnResponse | None = None
    ) -> list[GenerationResponse]:
        results = []
        for request in requests:
            own = [m for m in request.messages if m["role"] == "user"]
            turn = sum("Tools found" in m["content"] for m in own)
            place = max(n for n, m in enumerate(own) if "Tools found" in m["content"])
            turn, first = len(own) - 1 - place, own[place]["content"]
            self.asked.append(f"{turn} {first}")
            said = self.script(turn, first)
            if said is None:
                result = error_response(self.model, request, "http_500")
            else:
                result = answer(self.model, request, said).model_copy(update={"finish_reason": self.finish})
            results.append(result)
            if on_response is not None:
                on_response(result)
        return results

    def close(self) -> None:
        return None


def assessed(stop: bool = False) -> str:
    return json.dumps({"usable": [1], "missing": "" if stop else "the rest", "stop": stop})


def helpful(turn: int, first: str) -> str:
    if turn < 2:
        return assessed() if turn else "The person wants something."
    round_ = 1 + first.count("Searched for")
    for word, query in (("wet", "amount of rain"), ("aunt", "send a letter"), ("guests", "table of rows")):
        if word in first:
            return f"{query} {'again ' * round_}please"
    raise AssertionError(first)


def loop(
    critic: ScriptedCritic, store: Path, chosen: FeedbackSettings | None = None, **more: Any
) -> Feedback:
    engine = StoredEngine("critic", lambda: critic, ResponseStore(store))
    return run_feedback(
        engine,
        IterationRetriever(WordEncoder(), TOOLS),
        QUERIES,
        SHOWN,
        chosen or FeedbackSettings(),
        critic="critic",
        part="test",
        depth=5,
        seed=0,
        **more,
    )


# Prompts and settings


def test_prompts_are_released_and_carry_the_conversation() -> None:
    assert set(PROMPTS) <= set(prompt_digests())
    request = comprehension_request(
        "x", "wet in Oslo?", "rain in Oslo", [SHOWN["d:rain"]], FeedbackSettings(), 0
    )
    last = request.messages[-1]["content"]
    assert "Request: wet in Oslo?" in last and "Searched for: rain in Oslo" in last and "1. Rain tool" in last
    assert request.messages[0]["role"] == "system"
    assert [m["role"] for m in request.messages[1:7]] == ["user", "assistant"] * 3
    same = comprehension_request("x", "a b", "a b", [], FeedbackSettings(), 0)
    assert "Searched for" not in same.messages[-1]["content"]
    refine = render("feedback_refine", max_words=12, tried=["rain now"]).user
    assert "at most 12 words" in refine and refine.endswith("It must differ from: rain now")
    assert render("feedback_refine", max_words=12, tried=[]).user.endswith("nothing else.")


def test_defaults_are_the_papers_and_profiles_say_otherwise() -> None:
    paper = load_settings("paper", env={}).feedback
    assert paper == FeedbackSettings()
    assert (paper.iterations, paper.max_length, paper.batch_size) == (3, 128, 128)
    assert (paper.learning_rate, paper.epochs, paper.patience, paper.tau) == (2e-5, 50, 5, 0.05)
    assert paper.alpha == (1.0,) and paper.encoder == "google-bert/bert-base-uncased"
    assert load_settings("local", env={}).feedback.encoder == "all-MiniLM-L6-v2"
    with pytest.raises(UserError, match=r"feedback\.alpha"):
        load_settings("local", overrides=["feedback.alpha=[0.0]"], env={})
    with pytest.raises(UserError, match="listed twice"):
        load_settings("local", overrides=['feedback.critics=["a","a"]'], env={})


# Categories


def test_categories_are_services_and_copies_stay_together() -> None:
    tools = [
        t.model_copy(update={"group_name": name, "tags": tags, "provider": f"p{n % 2}"})
        for n, (t, name, tags) in enumerate(
            zip(
                make_tools(5),
                ("Git Hub", "git_hub", None, "Slack", "Trello"),
                (["z", "Dev"], [], [], [], []),
                strict=True,
            )
        )
    ]
    found = categories_of(tools)
    ids = [t.id for t in tools]
    assert found[ids[0]] == found[ids[1]] == "github"
    assert found[ids[2]] == tools[2].group_id
    # The fixture's last two tools are one.
    assert tools[3].duplicate_group == tools[4].duplicate_group
    assert found[ids[3]] == found[ids[4]] == "slack"
    assert categories_of(tools, "tag")[ids[0]] == "dev"
    assert set(categories_of(tools, "provider").values()) <= {"p0", "p1"}


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(1, 9), min_size=1, max_size=30), st.floats(0, 1), st.integers(0, 9))
def test_held_out_categories_fit_and_hardly_move(sizes: list[int], share: float, seed: int) -> None:
    tools = {f"{c}.{n}": f"c{c}" for c, size in enumerate(sizes) for n in range(size)}
    held = hold_out(tools, share, seed)
    assert sum(c in held for c in tools.values()) <= share * len(tools)
    assert held == hold_out(dict(reversed(tools.items())), share, seed)
    assert hold_out(tools, 0, seed) == frozenset() and hold_out(tools, 1, seed) == set(tools.values())
    for tool in tools:
        kind = "out_of_domain" if tools[tool] in held else "in_domain"
        assert domain_of([tool], tools, held) == kind
    if 0 < len(held) < len(set(tools.values())):
        assert domain_of(tools, tools, held) == "mixed"


# Answers


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('{"usable": [2, 1, 9], "missing": " a  b ", "stop": false}', ((1, 2), "a b", False)),
        ('Here: {"usable": [1], "missing": null, "stop": true} ok', ((1,), "", True)),
        ('{"usable": [], "missing": "", "stop": true}', ((), "", False)),
        ('{"usable": [true], "missing": "x", "stop": false}', ((), "x", False)),
        ('{"usable": [1], "missing": "x", "stop": "yes"}', None),
        ('{"usable": "1", "missing": "x", "stop": false}', None),
        ('{"usable": [1], "missing": "x"', None),
        ("tool 1 is usable", None),
        ("", None),
    ],
)
def test_assessments_are_read_strictly(text: str, expected: tuple[Any, ...] | None) -> None:
    found = read_assessment(text, 3)
    assert (None if found is None else (found.usable, found.missing, found.stop)) == expected


@pytest.mark.parametrize(
    ("text", "query", "fault"),
    [
        ("rain in Oslo", "rain in Oslo", None),
        ('Search query: "rain  in Oslo"\n', "rain in Oslo", None),
        ("- rain in Oslo", "rain in Oslo", None),
        ("  \n", "", "empty"),
        ('""', "", "empty"),
        ("?!", "", "empty"),
        ("rain in Oslo\nor snow", "", "format"),
        ('{"query": "rain"}', "", "format"),
        ("Sure, rain in Oslo", "", "format"),
        ("I cannot write that", "", "format"),
        ("Here is the query: rain", "", "format"),
        ("I need rain in Oslo", "I need rain in Oslo", None),
    ],
)
def test_a_query_is_one_line_and_nothing_else(text: str, query: str, fault: str | None) -> None:
    assert read_query(text) == (query, fault)


def test_a_query_that_was_cut_off_is_none() -> None:
    assert read_query("rain in Os", "length") == ("", "cut_off")


@pytest.mark.parametrize(
    ("query", "fault"),
    [
        ("forecast of rain for a town", None),
        ("Will it be WET in Oslo tomorrow?!", "repeated"),
        ("rain before", "repeated"),
        ("rain " * 41, "too_long"),
        ("el tiempo en Oslo para mañana", "language"),
        ("天気予報 オスロ", "language"),
        ("look in d:rain", "tools_echoed"),
        ("Rain tool", "tools_echoed"),
        ("weather tool or rain tool", "tools_echoed"),
        ("get the amount of rain in a city now", "tools_echoed"),
        ("rain tool for Oslo", None),
    ],
)
def test_faults_of_a_rewritten_query(query: str, fault: str | None) -> None:
    tools = [*SHOWN.values(), ShownTool("z", "z", None, "the amount of rain in a city")]
    request = "will it be wet in Oslo tomorrow"
    assert fault_of(query, request, ["rain before"], tools, 40) == fault


def test_what_the_person_said_is_no_echo_and_their_language_is_theirs() -> None:
    tools = [ShownTool("z", "Weather Map", None, "x"), ShownTool("y", "Rain Map", None, "x")]
    asked = "compare Weather Map with Rain Map"
    assert fault_of("difference of weather map and rain map", asked, [], tools, 40) is None
    assert fault_of("el tiempo para mañana", "qué tiempo hará mañana en Oslo", [], tools, 40) is None
    assert fault_of("the weather of tomorrow", "qué tiempo hará mañana en Oslo", [], tools, 40) == "language"
    assert reads_english("GitHub repository issue create label assign milestone project")


# The loop


def test_iteration_zero_is_the_plain_ranker(tmp_path: Path) -> None:
    class Prefixed(WordEncoder):
        def encode_queries(self, texts: Sequence[str], on_batch: OnBatch | None = None) -> Embeddings:
            return super().encode_queries([with_iteration(t, 0) for t in texts])

    plain = rank_dense(Prefixed(), QUERIES, TOOLS, 5, name="feedback")
    found = loop(ScriptedCritic(helpful), tmp_path / "s")
    assert found.runs[0] == plain
    assert [r.text for r in found.rows if r.iteration == 0] == list(QUERIES.texts)


def test_every_query_is_stored_and_searched_with_its_iteration(tmp_path: Path) -> None:
    found = loop(ScriptedCritic(helpful), tmp_path / "s")
    assert [(r.query_id, r.iteration) for r in found.rows] == [(q, t) for q in QUERIES.ids for t in range(4)]
    first = [r for r in found.rows if r.query_id == "q:1"]
    assert [r.text for r in first][1:3] == [
        "amount of rain again please",
        "amount of rain again again please",
    ]
    # The third round writes the second's words again.
    assert [r.status for r in first] == ["original", "rewritten", "rewritten", "fallback"]
    assert first[3].reason == "repeated" and first[3].text == first[2].text and first[3].searched_as == 2
    assert found.runs[3].tool_ids[0] == found.runs[2].tool_ids[0]
    assert found.runs[1].tool_ids[0][0] == "d:rain" and found.runs[1].tool_ids[1][0] == "a:mail"
    expected = IterationRetriever(WordEncoder(), TOOLS).search(["q:1"], [first[1].text], 1, 5)
    assert found.runs[1].scores[0] == pytest.approx(expected.scores[0], abs=2e-6)
    assert all(len(r.response_hashes) == (3 if r.iteration else 0) for r in first)
    assert first[1].tokens_in == 30 and first[1].tokens_out == 9
    assert {h for r in found.rows for h in r.response_hashes} == {r.request_hash for r in found.responses}


def test_a_second_loop_sends_nothing_and_says_the_same(tmp_path: Path) -> None:
    critic = ScriptedCritic(helpful)
    one = loop(critic, tmp_path / "s")
    asked = len(critic.asked)
    two = loop(critic, tmp_path / "s", batch=1)
    assert asked == len(set(critic.asked)) == 27 and len(critic.asked) == asked
    assert one == two


def test_a_stop_ends_the_iterations_of_its_query(tmp_path: Path) -> None:
    def script(turn: int, first: str) -> str:
        return assessed(stop=True) if turn == 1 and "wet" in first else helpful(turn, first)

    critic = ScriptedCritic(script)
    rows = [r for r in loop(critic, tmp_path / "s").rows if r.query_id == "q:1"]
    assert [r.status for r in rows] == ["original", "stopped", "stopped", "stopped"]
    assert [len(r.response_hashes) for r in rows] == [0, 2, 0, 0] and rows[3].stop
    assert sum("wet" in text for text in critic.asked) == 2


@pytest.mark.parametrize(
    ("script", "finish", "reason", "asked"),
    [
        (lambda turn, first: None, "stop", "engine", 3),
        (lambda turn, first: " ", "stop", "no_comprehension", 1),
        (lambda turn, first: "no JSON", "stop", "assessment", 2),
        (lambda turn, first: assessed() if turn < 2 else "", "stop", "empty", 3),
        (lambda turn, first: assessed() if turn < 2 else "a\nb", "stop", "format", 3),
        (lambda turn, first: assessed() if turn < 2 else "rain", "length", "cut_off", 3),
        (lambda turn, first: assessed() if turn < 2 else "Mail tool", "stop", "tools_echoed", 3),
        (lambda turn, first: assessed() if turn < 2 else "w " * 99, "stop", "too_long", 3),
    ],
)
def test_a_critic_that_cannot_be_used_changes_nothing(
    tmp_path: Path, script: Any, finish: str, reason: str, asked: int
) -> None:
    critic = ScriptedCritic(script, finish)
    found = loop(critic, tmp_path / "s")
    assert {r.reason for r in found.rows if r.iteration} == {reason}
    assert all(run == found.runs[0] for run in found.runs)
    assert all(r.text == QUERIES.texts[QUERIES.ids.index(r.query_id)] for r in found.rows)
    # At temperature 0 the same unusable answer is not fetched again; a failed request is put again.
    assert len(critic.asked) == asked * len(QUERIES)


ANSWERS = st.one_of(
    st.none(),
    st.text(max_size=60),
    st.sampled_from(
        [
            assessed(),
            assessed(stop=True),
            "rain for a town",
            "songs of rain",
            "send a letter",
            "Mail tool",
            "el tiempo en Oslo",
        ]
    ),
)


@settings(max_examples=60, deadline=None)
@given(st.lists(ANSWERS, min_size=1, max_size=12), st.sampled_from([0.0, 0.7]))
def test_whatever_the_critic_says_the_last_good_query_stands(said: list[str | None], heat: float) -> None:
    turns = iter(range(10**6))

    class Direct:
        """Without a store: every question has the next answer."""

        def generate(self, requests: Any, on_response: Any = None, *, label: str = "") -> Any:
            critic = ScriptedCritic(lambda *_: said[next(turns) % len(said)])
            return critic.generate(requests)

    chosen = FeedbackSettings(temperature=heat, max_words=12)
    found = run_feedback(
        Direct(), IterationRetriever(WordEncoder(), TOOLS), QUERIES, SHOWN, chosen,
        critic="c", part="test", depth=5, seed=0,
    )  # fmt: skip
    for n, query in enumerate(QUERIES.ids):
        rows = [r for r in found.rows if r.query_id == query]
        assert [r.iteration for r in rows] == [0, 1, 2, 3]
        texts = [r.text for r in rows]
        for t in (1, 2, 3):
            row = rows[t]
            assert (row.reason is not None) == (row.status == "fallback")
            assert row.stop == (row.status == "stopped")
            assert (row.searched_as == t) == (row.status == "rewritten")
            if row.status != "rewritten":
                assert texts[t] == texts[t - 1]
                assert found.runs[t].tool_ids[n] == found.runs[t - 1].tool_ids[n]
                assert found.runs[t].scores[n] == found.runs[t - 1].scores[n]
            else:
                assert texts[t] not in texts[:t] and texts[t].strip()
                assert len(texts[t].split()) <= 12 and "\n" not in texts[t]
            if rows[t - 1].status == "stopped":
                assert row.status == "stopped" and not row.response_hashes


# Training


def pair(query: str, tool: str, group: str | None = None, golds: Sequence[str] = ()) -> TrainingRow:
    own = group or tool
    return TrainingRow(query, f"text of {query}", tool, f"about {tool}", (), own, frozenset([own, *golds]))


def embed_of(dim: int = 8) -> Callable[[list[str], str], torch.Tensor]:
    def embed(texts: list[str], side: str) -> torch.Tensor:
        rows = []
        for text in texts:
            generator = torch.Generator().manual_seed(sum(map(ord, side + text)))
            rows.append(torch.randn(dim, generator=generator, dtype=torch.float64))
        return torch.nn.functional.normalize(torch.stack(rows), dim=-1)

    return embed


def test_the_loss_is_the_weighted_sum_of_info_nce_over_iterations() -> None:
    rows = [
        IterationRow(pair(f"q{n}", f"t{n}"), {0: f"zero {n}", 1: f"one {n}", 2: f"two {n}"}) for n in range(4)
    ]
    negatives = {(n, t): [f"bad {n} {t}"] for n in range(4) for t in range(3)}
    chosen = FeedbackSettings(alpha=(1.0, 0.5), tau=0.1)
    embed = embed_of()
    found = float(iteration_loss(embed, list(enumerate(rows)), negatives, chosen))
    tools, expected = embed([r.pair.tool for r in rows], "document"), 0.0
    for t, alpha in ((0, 1.0), (1, 0.5), (2, 0.5)):
        queries = embed([with_iteration(r.texts[t], t) for r in rows], "query")
        bad = torch.stack([embed([f"bad {n} {t}"], "document") for n in range(4)])
        expected += alpha * float(info_nce(queries, tools, bad, temperature=0.1))
    assert found == pytest.approx(expected, abs=1e-6)
    assert [alpha_of((1.0, 0.5), t) for t in range(4)] == [1.0, 0.5, 0.5, 0.5]


def test_a_query_weighs_the_same_whether_its_neighbours_were_rewritten_or_not() -> None:
    zero = [IterationRow(pair(f"q{n}", f"t{n}"), {0: f"zero {n}"}) for n in range(4)]
    one = [IterationRow(zero[0].pair, {0: "zero 0", 1: "one 0"}), *zero[1:]]
    embed, chosen = embed_of(), FeedbackSettings(tau=0.1)
    extra = float(iteration_loss(embed, list(enumerate(one)), {}, chosen)) - float(
        iteration_loss(embed, list(enumerate(zero)), {}, chosen)
    )
    query = embed([with_iteration("one 0", 1)], "query")
    scores = (query @ embed([r.pair.tool for r in one], "document").T / 0.1)[0]
    alone = -float(torch.log_softmax(scores, dim=0)[0])
    assert extra == pytest.approx(alone / 4, abs=1e-6)


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_bert(tmp_path_factory.mktemp("tiny"), [*WORDS, *TOOLS.texts])


def towers(path: Path) -> Any:
    return build_two_tower(path, path, pooling="mean", max_length=32, device="cpu")


def test_negatives_are_the_best_ranked_that_are_no_copy_of_a_gold() -> None:
    groups = {**{t: t for t in TOOLS.ids}, "d:rain": "c:weather"}
    rows = [IterationRow(pair("q", "c:weather"), {0: "rain in a city", 2: "send a letter"})]
    encoder: Any = WordEncoder()
    found = mine_negatives(encoder, rows, TOOLS, groups, 2)
    texts = dict(zip(TOOLS.ids, TOOLS.texts, strict=True))
    assert set(found) == {(0, 0), (0, 2)} and all(len(some) == 2 for some in found.values())
    assert not {texts["c:weather"], texts["d:rain"]} & {t for some in found.values() for t in some}
    assert found[0, 2][0] == texts["a:mail"]
    assert mine_negatives(encoder, rows, TOOLS, groups, 0) == {}


def learnable() -> list[IterationRow]:
    rows = []
    for n, (tool, text) in enumerate(zip(TOOLS.ids, TOOLS.texts, strict=True)):
        row = TrainingRow(f"q{n}", WORDS[n], tool, text, (), tool, frozenset([tool]))
        rows.append(IterationRow(row, {0: f"{WORDS[n]} {WORDS[n + 20]}", 1: WORDS[n + 40]}))
    return rows


def test_training_lowers_the_loss_and_repeats_to_the_bit(tiny: Path) -> None:
    chosen = FeedbackSettings(batch_size=8, epochs=60, round_epochs=20, learning_rate=2e-3, max_length=32)
    groups = {t: t for t in TOOLS.ids}

    def run() -> tuple[Any, Any]:
        model = towers(tiny)
        return model, train_iterations(
            model, learnable(), TOOLS, groups, chosen, seed=3, score=lambda _: None
        )

    model, one = run()
    again, two = run()
    assert one == two and one.precision == "float32" and one.best == 2 and not one.scores
    assert sum(one.losses[-3:]) < 0.5 * sum(one.losses[:3]) and len(one.losses) == 60
    for a, b in zip(model.state_dict().values(), again.state_dict().values(), strict=True):
        assert torch.equal(a, b)
    found = IterationRetriever(SentenceEncoder(model, name="x"), TOOLS).search(
        [str(n) for n in range(5)], [r.texts[1] for r in learnable()], 1, 1
    )
    assert sum(tools[0] == i for tools, i in zip(found.tool_ids, TOOLS.ids, strict=True)) >= 4


def test_patience_stops_and_the_best_round_is_kept(tiny: Path) -> None:
    chosen = FeedbackSettings(batch_size=4, epochs=30, patience=2, learning_rate=1e-3, max_length=32)
    groups, values = {t: t for t in TOOLS.ids}, iter([0.2, 0.5, 0.4, 0.5, 0.9])
    model, kept = towers(tiny), []

    def score(encoder: Any) -> float:
        kept.append({k: v.clone() for k, v in encoder.model.state_dict().items()})
        return next(values)

    done = train_iterations(model, learnable(), TOOLS, groups, chosen, seed=0, score=score)
    assert done.scores == [0.2, 0.5, 0.4, 0.5] and done.best == 1 and done.stopped_early
    assert all(torch.equal(v, kept[1][k]) for k, v in model.state_dict().items())


def test_training_needs_rows_and_a_finite_loss(tiny: Path) -> None:
    groups = {t: t for t in TOOLS.ids}
    with pytest.raises(UserError, match="held out"):
        train_iterations(towers(tiny), [], TOOLS, groups, FeedbackSettings(), seed=0, score=lambda _: None)
    hot = FeedbackSettings(
        batch_size=4, epochs=9, learning_rate=1e6, warmup_ratio=0, max_length=32, tau=1e-39
    )
    with pytest.raises(UserError, match="diverged"):
        train_iterations(towers(tiny), learnable(), TOOLS, groups, hot, seed=0, score=lambda _: None)


# Fusion


def ranked(*lists: str) -> RankedRun:
    ids = tuple(f"q{n}" for n in range(len(lists)))
    return RankedRun(
        "r", ids, [list(x) for x in lists], [[1 - 0.1 * i for i in range(len(x))] for x in lists]
    )


def test_fusion_adds_reciprocal_ranks_and_counts_a_carried_ranking_once() -> None:
    found = fuse_runs([ranked("abc"), ranked("bca")], rrf_k=60)
    assert found.tool_ids == [["b", "a", "c"]]
    assert found.scores[0][0] == pytest.approx(1 / 62 + 1 / 61)
    carried = fuse_runs([ranked("abc"), ranked("bca"), ranked("bca"), ranked("bca")], rrf_k=60)
    assert carried == found
    assert fuse_runs([ranked("abc", "ab"), ranked("cba", "ba")], last={"q0": 0, "q1": 1}).tool_ids == [
        ["a", "b", "c"],
        ["a", "b"],
    ]
    with pytest.raises(UserError):
        fuse_runs([ranked("ab"), ranked("ab", "ab")])


@settings(max_examples=60, deadline=None)
@given(st.lists(st.permutations("abcdef"), min_size=1, max_size=4))
def test_fusion_is_a_permutation_with_falling_scores(lists: list[list[str]]) -> None:
    found = fuse_runs([ranked("".join(x)) for x in lists])
    assert sorted(found.tool_ids[0]) == list("abcdef")
    assert found.scores[0] == sorted(found.scores[0], reverse=True)
    if len(lists) == 1:
        assert found.tool_ids[0] == lists[0]


def test_candidates_keep_the_first_query_as_context_and_are_ready_for_a_stream() -> None:
    from ecoagent.evaluation import StreamSource

    vectors = np.eye(3, 4, dtype=np.float32)
    contexts = np.array([[0.1, 0.9, 0.4, 0.1]], dtype=np.float32)
    found = fused_candidates(fuse_runs([ranked("ab"), ranked("cb")]), contexts, vectors, ("a", "b", "c"), 2)
    assert found.tool_ids == [["b", "a"]] and found.semantic == [[0.9, 0.1]]
    assert found.contexts is contexts
    source = StreamSource(
        query_ids=found.query_ids,
        contexts=found.contexts,
        candidates=found.tool_ids,
        semantic=found.semantic,
        golds=[{"b"}],
        tool_ids=("a", "b", "c"),
        r_static=dict.fromkeys("abc", 0.5),
        top_k=2,
    )
    assert (source.queries[0].x == contexts[0]).all()


def test_the_gate_is_a_rising_probability_of_the_gap() -> None:
    rng = np.random.default_rng(0)
    gaps = rng.uniform(0, 0.3, 400)
    right = rng.random(400) < 1 / (1 + np.exp(-(20 * gaps - 3)))
    gate = fit_gate(gaps.tolist(), right.tolist())
    assert gate.slope == pytest.approx(20, rel=0.25) and gate.intercept == pytest.approx(-3, abs=0.6)
    assert gate.probability(0.0) < 0.2 < 0.8 < gate.probability(0.3)
    assert math.isfinite(gate.probability(1e9)) and math.isfinite(gate.probability(-1e9))
    assert fit_gate([], []) == Gate(0.0, 0.0, 0, 0) and fit_gate([], []).probability(1.0) == 0
    assert fit_gate([0.1, 0.2], [True, True]).probability(0.1) == pytest.approx(0.75, abs=1e-5)
    with pytest.raises(UserError):
        fit_gate([0.1], [])
    groups = {"a": "a", "b": "a", "c": "c"}
    assert score_gaps(ranked("abc", "ab"), groups) == [0.2, 2.0]
