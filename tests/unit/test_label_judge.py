"""The labelling chain judged on a set whose right tools are known: sample, stages, intervals, cosines."""

from __future__ import annotations

import csv
import json
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from ecoagent.cli.app import app
from ecoagent.labeling import judge as judge_module
from ecoagent.labeling import load_requests
from ecoagent.labeling.cosine import Scored, lowest_at, propose_for
from ecoagent.labeling.judge import Chain, Evaluation, chain_of, evaluate_labeller
from ecoagent.labeling.judge_report import (
    LabellerReport,
    load_reports,
    merge_reports,
    share,
    weighted_share,
)
from ecoagent.labeling.judge_sample import (
    LabelledQuery,
    LabelledSet,
    collection_set,
    draw_order,
    noted_set,
    stratify,
    weights,
)
from ecoagent.labeling.judge_table import not_gold_rows, render_markdown, write_not_gold
from ecoagent.llm import StoredEngine
from ecoagent.llm.store import ResponseStore
from ecoagent.metrics.intervals import wilson
from ecoagent.retrieval.collections import CollectionQuery, CollectionTool, TestCollection
from ecoagent.runs import RunContext, write_table
from ecoagent.schema import Deprecation, Provenance, ScoredTool, tokens, tool_text
from ecoagent.settings import Settings, UserError, load_settings
from tests.unit.llm_scripted import ScriptedEngine

WORDS = ("weather", "parcel", "recipe", "flight")
TOOLS = tuple(
    CollectionTool(w[0].upper(), f"{w} finder", f"Finds what there is about {w}.", "") for w in sorted(WORDS)
)
QUERIES = (
    CollectionQuery("q1", "weather and flight for Oslo", "A", ("W",)),
    CollectionQuery("q2", "where is my parcel", "A", ("P",)),
    CollectionQuery("q3", "play with a recipe", "B", ("R",)),
    CollectionQuery("q4", "weather and flight for Oslo please", "B", ("F",)),
)


class OverlapEncoder:
    """Counts the words of WORDS: a stand-in with understandable cosines."""

    name, dim = "overlap", len(WORDS) + 1

    def __init__(self) -> None:
        self.encoded = 0

    def _encode(self, texts: Sequence[str], on_batch: Any = None) -> np.ndarray:
        self.encoded += len(texts)
        rows = np.zeros((len(texts), self.dim), dtype=np.float32)
        for i, text in enumerate(texts):
            rows[i, :-1] = [float(w in tokens(text)) for w in WORDS]
            rows[i, -1] = 0.0 if rows[i].any() else 1.0
        if on_batch:
            on_batch(len(texts))
        return rows / np.linalg.norm(rows, axis=1, keepdims=True)

    encode_queries = encode_documents = _encode


def verdict(prompt: str) -> str | None:
    """A scripted stand-in of the verifier: yes unless the request holds the word 'play'."""
    said = tokens(prompt.rsplit("Request:", 1)[1])
    return "hm" if "mumble" in said else '{"score": 0.2}' if "play" in said else '{"score": 0.9}'


def scripted(
    tmp_path: Path, script: Callable[[str], str | None] = verdict
) -> tuple[StoredEngine, ScriptedEngine]:
    bare = ScriptedEngine(script)
    return StoredEngine("scripted", lambda: bare, ResponseStore(tmp_path / "responses.sqlite")), bare


def settings_for(tmp_path: Path, *overrides: str) -> Settings:
    return load_settings(
        "local",
        env={},
        overrides=[
            'labeling.verifier_score="raw"',
            'labeling.verifier_form="score"',
            "labeling.verifier_threshold=0.5",
            "labeling.min_cosine=0.5",
            "labeling.top_k=2",
            "labeling.lexical_top_k=0",
            *overrides,
        ],
        outputs=tmp_path / "outputs",
    )


def judged(
    tmp_path: Path,
    collection: TestCollection,
    *overrides: str,
    script: Callable[[str], str | None] = verdict,
    chains: Sequence[Chain] | None = None,
    **wanted: Any,
) -> list[Evaluation]:
    settings = settings_for(tmp_path, *overrides)
    engine, _ = scripted(tmp_path, script)
    return evaluate_labeller(
        collection_set(collection),
        settings,
        chains,
        engine=engine,
        encoder_of=lambda name: OverlapEncoder(),
        **wanted,
    )


def tiny(queries: Sequence[CollectionQuery] = QUERIES) -> TestCollection:
    return TestCollection("tiny", tuple(queries), TOOLS, "none")


def many(counts: dict[str, int]) -> TestCollection:
    """Queries of several groups, all texts apart from each other."""
    queries = [
        CollectionQuery(f"{group}{n:04d}", f"{WORDS[n % 4]} {group} n{n}a n{n}b n{n}c n{n}d", group, ("W",))
        for group, count in counts.items()
        for n in range(count)
    ]
    return tiny(sorted(queries, key=lambda q: q.id))


def test_wilson_equals_known_values() -> None:
    # Newcombe 1998, Table I, method 3.
    assert wilson(81 / 263, 263) == pytest.approx((0.2553, 0.3662), abs=5e-5)
    assert wilson(15 / 148, 148) == pytest.approx((0.0624, 0.1605), abs=5e-5)
    assert wilson(0.0, 20) == pytest.approx((0.0, 0.1611), abs=5e-5)
    assert wilson(1 / 29, 29) == pytest.approx((0.0061, 0.1718), abs=5e-5)
    assert wilson(1.0, 20) == pytest.approx((0.8389, 1.0), abs=5e-5)
    assert wilson(0.5, 0) == (0.0, 1.0)
    # The number the issue asks for: 385 kept pairs hold 5 points at any precision.
    assert max(share(hits, 385).half_width or 0 for hits in range(386)) <= 0.05


def test_weighted_share_is_the_weighted_ratio_and_never_surer_than_its_pairs() -> None:
    parts = [("a", 1.0, 2.0), ("a", 2.0, 2.0), ("b", 0.0, 2.0), ("b", 1.0, 2.0)]
    even = weighted_share(parts, {"a": 1.0, "b": 1.0})
    assert (even.hits, even.of, even.value) == (4, 8, 0.5)
    # By hand: residuals a -0.0, +1, b -1, 0; variance (2 * 0.5 + 2 * 0.5) / 64; 0.25 / (2 / 64) = 8.
    assert even.effective == 8
    tilted = weighted_share(parts, {"a": 10.0, "b": 1.0})
    assert tilted.value == pytest.approx((10 + 20 + 0 + 1) / 44, abs=5e-5)
    assert tilted.effective is not None and tilted.effective < 8
    assert weighted_share([("a", 2.0, 2.0)], {"a": 3.0}).high == 1.0
    empty = weighted_share([("a", 0.0, 0.0)], {"a": 3.0})
    assert (empty.value, empty.low, empty.half_width) == (None, None, None)


def test_stages_of_a_hand_computed_example(tmp_path: Path) -> None:
    (evaluation,) = judged(tmp_path, tiny())
    report = evaluation.report
    rows = {s.stage: (s.queries, s.pairs, s.right, s.gold, s.answered.hits) for s in report.sample.stages}
    assert rows == {
        "candidates": (4, 8, 4, 4, 4),
        "cosine": (4, 6, 4, 4, 4),
        "verifier": (4, 5, 3, 4, 3),
        # q4 is a near-duplicate of q1: its pairs and its gold are gone, and it was not answered.
        "deduplication": (3, 3, 2, 3, 2),
    }
    final = report.sample.stages[-1]
    assert (final.precision.value, final.recall.value, final.answered.value) == (0.6667, 0.6667, 0.5)
    assert [s.name for s in report.strata] == ["A", "B"]
    by_name = {s.name: {c.stage: (c.pairs, c.right) for c in s.stages} for s in report.strata}
    assert by_name["A"]["verifier"] == (3, 2)
    assert by_name["B"] == {
        "candidates": (4, 2),
        "cosine": (3, 2),
        "verifier": (2, 1),
        "deduplication": (0, 0),
    }
    assert report.strata[1].stages[-1].precision.value is None
    assert (report.judged_pairs, report.kept_pairs, report.reached) == (6, 5, False)
    assert report.weighted.stages[2].precision.value == report.sample.stages[2].precision.value
    assert report.auc_raw == pytest.approx(3 / 8, abs=1e-4)
    assert LabellerReport.from_json(json.loads(json.dumps(report.to_json()))) == report


def test_bm25_candidates_are_judged_whatever_their_cosine(tmp_path: Path) -> None:
    (alone,) = judged(tmp_path, tiny(), "labeling.min_cosine=0.99")
    (pooled,) = judged(tmp_path, tiny(), "labeling.min_cosine=0.99", "labeling.lexical_top_k=2")
    assert alone.report.judged_pairs == 2
    # Both of q1 and of q4, and for q2 a tool whose text shares the word "is".
    assert pooled.report.by_retriever["bm25"] == {"judged": 5, "right": 2, "kept": 5, "kept_right": 2}
    assert pooled.report.judged_pairs == 7
    assert "BM25 top-2 whatever their cosine" in render_markdown([pooled.report])


def test_unreadable_and_failed_answers_are_counted_and_never_kept(tmp_path: Path) -> None:
    def script(prompt: str) -> str | None:
        return None if "parcel" in prompt.rsplit("Request:", 1)[1] else "hm"

    (evaluation,) = judged(tmp_path, tiny(), script=script)
    report = evaluation.report
    assert (report.failed, report.unreadable, report.kept_pairs) == (1, 5, 0)
    assert report.auc_raw is None
    final = report.sample.stages[-1]
    assert (final.precision.value, final.recall.value, final.answered.value) == (None, 0.0, 0.0)
    text = render_markdown([report])
    assert "no pair was kept" in text and "n/a" in text
    assert not_gold_rows(collection_set(tiny()), evaluation) == []


def test_everything_kept(tmp_path: Path) -> None:
    (evaluation,) = judged(tmp_path, tiny(QUERIES[:3]), script=lambda prompt: '{"score": 1}')
    verified = evaluation.report.sample.stages[2]
    assert (verified.pairs, evaluation.report.judged_pairs) == (4, 4)
    assert verified.recall.value == 1.0 and verified.recall.high == 1.0


def test_verifier_is_asked_once_for_all_encoders(tmp_path: Path) -> None:
    settings = settings_for(tmp_path)
    engine, bare = scripted(tmp_path)
    chains = [Chain("all-MiniLM-L6-v2", 0.5, "given", None), Chain("thenlper/gte-large", 0.99, "given", None)]
    loose, strict = evaluate_labeller(
        collection_set(tiny()), settings, chains, engine=engine, encoder_of=lambda name: OverlapEncoder()
    )
    assert (loose.report.judged_pairs, strict.report.judged_pairs) == (6, 2)
    assert len(bare.asked) == 6
    with pytest.raises(UserError, match="given twice"):
        evaluate_labeller(collection_set(tiny()), settings, [chains[0], chains[0]], engine=engine)


def test_sampling_goes_on_until_enough_are_kept_or_the_budget_ends(tmp_path: Path) -> None:
    collection = many({"G1": 60, "G3": 200})
    (stopped,) = judged(tmp_path, collection, pairs=10, kept=60)
    assert stopped.report.reached and stopped.report.kept_pairs >= 60
    assert stopped.report.sample.sampled < 100
    assert not judged(tmp_path, collection, pairs=10, kept=10_000, max_pairs=10_000)[0].report.reached
    (short,) = judged(tmp_path, collection, pairs=100, kept=100, max_pairs=25)
    assert 0 < short.report.judged_pairs <= 25 and not short.report.reached
    assert "Fewer pairs than wanted" in render_markdown([short.report])
    (limited,) = judged(tmp_path, collection, "limit=7", pairs=100, kept=100)
    assert limited.report.sample.sampled == 7


def test_strata_are_served_evenly_and_weights_sum_to_the_set() -> None:
    labelled = collection_set(many({"G1": 30, "G3": 270}))
    drawn = draw_order(labelled, seed=0)[:40]
    assert Counter(q.stratum for q in drawn) == {"G1": 20, "G3": 20}
    share_of = weights(labelled, drawn)
    assert share_of == {"G1": 1.5, "G3": 13.5}
    assert sum(share_of[q.stratum] for q in drawn) == pytest.approx(300)
    everything = draw_order(labelled, seed=0)
    assert len(everything) == 300 and set(weights(labelled, everything).values()) == {1.0}
    # A small stratum ends; the others go on.
    assert Counter(q.stratum for q in everything[:100]) == {"G1": 30, "G3": 70}


def test_drawing_is_deterministic_and_stable_under_one_more_query() -> None:
    before = collection_set(many({"G1": 30, "G3": 270}))
    again = collection_set(many({"G1": 30, "G3": 270}))
    more = collection_set(many({"G1": 30, "G3": 271}))
    ids = [q.id for q in draw_order(before, 0)[:60]]
    assert ids == [q.id for q in draw_order(again, 0)[:60]]
    assert ids != [q.id for q in draw_order(before, 1)[:60]]
    assert len(set(ids) - {q.id for q in draw_order(more, 0)[:60]}) <= 1
    assert before.digest == again.digest != more.digest


def test_strata_of_a_mostly_templated_set() -> None:
    texts = {f"t{n}": f"I'm planning a surprise party number {n}" for n in range(60)}
    texts |= {f"u{n}": f"number {n} of its own kind" for n in range(40)}
    texts |= {f"g{n}": f"I'm planning a surprise trip {n}" for n in range(30)}
    groups = {i: "G1" if i.startswith("g") else "G3" for i in texts}
    assert Counter(stratify(texts, groups).values()) == {"G3 templated": 60, "G3 other": 40, "G1": 30}
    # Too few others to be told apart: the group stays whole.
    few = {i: t for i, t in texts.items() if not i.startswith("u") or i in ("u1", "u2")}
    assert Counter(stratify(few, groups).values()) == {"G3": 62, "G1": 30}
    assert set(stratify({"a": "x"}, {"a": ""}).values()) == {"all"}


def test_a_stratum_too_small_to_tell_anything_has_no_cell_and_is_named(tmp_path: Path) -> None:
    labelled = collection_set(many({"G1": 30, "G2": 3, "G3": 370}))
    assert list(labelled.strata()) == ["G1", "G3"]
    assert labelled.left_out == {"G2: too few queries with gold for a cell": 3}
    (evaluation,) = judged(tmp_path, many({"G1": 30, "G2": 3, "G3": 370}), pairs=5, kept=0)
    assert "G2: too few queries with gold for a cell: 3" in render_markdown([evaluation.report])


def test_queries_without_gold_are_left_out_and_equal_tools_are_one() -> None:
    twin = CollectionTool("W2", "weather finder", "Finds what there is about weather.", "")
    queries = (*QUERIES, CollectionQuery("q9", "anything at all", "A", ()))
    labelled = collection_set(TestCollection("tiny", queries, (*TOOLS, twin), "none"))
    assert labelled.left_out == {"A: no gold": 1}
    assert labelled.queries[0].gold == {"W", "W2"}
    with pytest.raises(UserError, match="no query has gold"):
        collection_set(tiny([CollectionQuery("q9", "anything at all", "A", ())]))


def test_a_set_with_an_empty_stratum_of_the_sample(tmp_path: Path) -> None:
    (evaluation,) = judged(tmp_path, many({"G1": 40, "G3": 40}), "limit=1", pairs=5, kept=0)
    empty = next(s for s in evaluation.report.strata if s.sampled == 0)
    assert empty.weight == 0 and empty.stages[0].precision.value is None
    assert evaluation.report.weighted.population == 40
    assert f"| {empty.name} |" not in render_markdown([evaluation.report])


def test_an_interrupted_run_goes_on_where_it_was(tmp_path: Path) -> None:
    collection = many({"G1": 20, "G3": 20})
    settings, labelled = settings_for(tmp_path), collection_set(collection)
    answered = 0

    def breaks(prompt: str) -> str | None:
        nonlocal answered
        if answered == 17:
            raise KeyboardInterrupt
        answered += 1
        return verdict(prompt)

    def evaluate(engine: StoredEngine) -> list[Evaluation]:
        return evaluate_labeller(
            labelled, settings, engine=engine, encoder_of=lambda name: OverlapEncoder(), pairs=1000, kept=0
        )

    broken, _ = scripted(tmp_path, breaks)
    with pytest.raises(KeyboardInterrupt):
        evaluate(broken)
    broken.store.close()
    resumed, bare = scripted(tmp_path)
    (again,) = evaluate(resumed)
    whole_engine, whole = scripted(tmp_path / "whole")
    (unbroken,) = evaluate(whole_engine)
    assert len(bare.asked) == len(whole.asked) - 17
    assert again.report == unbroken.report


def test_reports_merge_by_set_verifier_and_encoder(tmp_path: Path) -> None:
    (first,) = judged(tmp_path, tiny())
    other = first.report.model_copy(update={"collection": "another"})
    path = tmp_path / "labeller.json"
    assert merge_reports(path, [first.report]) == [first.report]
    changed = first.report.model_copy(update={"seed": 7})
    assert merge_reports(path, [other, changed]) == [other, changed] == load_reports(path)
    text = render_markdown([changed, other])
    assert text == render_markdown([other, changed])
    assert "## another" in text and "lower bound" in text
    path.write_text('{"reports": [{"collection": "x"}]}')
    with pytest.raises(UserError, match="holds no reports"):
        merge_reports(path, [other])
    with pytest.raises(UserError, match="does not exist"):
        load_reports(tmp_path / "absent.json")


def test_kept_pairs_beyond_gold_are_listed_for_reading(tmp_path: Path) -> None:
    (evaluation,) = judged(tmp_path, tiny())
    rows = not_gold_rows(collection_set(tiny()), evaluation)
    assert [(r["query_id"], r["tool_id"], r["gold"]) for r in rows] == [("q1", "F", "W"), ("q4", "W", "F")]
    path = write_not_gold(tmp_path / "not_gold.csv", [evaluation], rows)
    foreign = [dict(r, collection="another") for r in rows]
    with path.open("a", newline="") as handle:
        csv.DictWriter(handle, list(rows[0]), lineterminator="\n").writerows(foreign)
    write_not_gold(path, [evaluation], rows[:1])
    with path.open(newline="") as handle:
        found = list(csv.DictReader(handle))
    assert [r["collection"] for r in found] == ["another", "another", "tiny"]


def test_cosine_and_calibration_of_a_chain(tmp_path: Path) -> None:
    settings = load_settings("local", env={}, outputs=tmp_path)
    own = chain_of(settings, "all-MiniLM-L6-v2")
    assert (own.min_cosine, own.cosine_from) == (settings.labeling.min_cosine, "settings")
    assert own.calibration is not None and own.calibration.encoder == own.encoder
    borrowed = chain_of(settings, "all-mpnet-base-v2", 0.25)
    assert borrowed.min_cosine == 0.25 and borrowed.calibration == own.calibration
    with pytest.raises(UserError, match="no cosine is known"):
        chain_of(settings, "all-mpnet-base-v2")
    unknown = load_settings("local", env={}, overrides=["llm.model=other"], outputs=tmp_path)
    with pytest.raises(UserError, match="no calibration"):
        chain_of(unknown, "all-MiniLM-L6-v2")


def test_a_calibrated_chain_says_whose_map_decides(tmp_path: Path) -> None:
    settings = load_settings(
        "local", env={}, overrides=["labeling.top_k=2", "labeling.lexical_top_k=1"], outputs=tmp_path
    )
    bare = ScriptedEngine(lambda prompt: "Yes")
    engine = StoredEngine("scripted", lambda: bare, ResponseStore(tmp_path / "responses.sqlite"))
    (evaluation,) = evaluate_labeller(
        collection_set(tiny()),
        settings,
        [chain_of(settings, "thenlper/gte-large", 0.5)],
        engine=engine,
        encoder_of=lambda name: OverlapEncoder(),
    )
    report = evaluation.report
    assert report.calibration is not None and report.decides_by == "calibrated"
    # The scripted log-probabilities give every pair one raw score, whose probability is below the cut-off.
    assert {row.probability for row in evaluation.pairs if row.passed} != {None}
    text = render_markdown([report])
    assert "calibrated on the candidates of all-MiniLM-L6-v2" in text
    pooled = bool(report.calibration["lexical_top_k"])
    assert ("calibrated without BM25's candidates" in text) is not pooled


# -- a cosine for another encoder ------------------------------------------------------------------


def ladder(queries: int = 50) -> Scored:
    """Cosine .50 .. .99; the higher half is right, the lower half is right every fifth time."""
    pairs = tuple((f"q{n % queries}", round(0.5 + n / 200, 3), n >= 50 or n % 5 == 0) for n in range(100))
    return Scored(pairs, queries, 60)


def test_the_lowest_cosine_that_meets_the_precision_is_proposed() -> None:
    scored = ladder()
    low, reached = lowest_at(scored, 0.6)
    assert reached and (low.cosine, low.pairs, low.right) == (0.5, 100, 60)
    point, reached = lowest_at(scored, 0.8)
    assert reached and point.precision.value is not None and point.precision.value >= 0.8
    below = scored.at(round(point.cosine - 0.01, 2))
    assert below.precision.value is not None and below.precision.value < 0.8
    assert point.recall.hits == point.right and point.recall.of == 60
    wrong = Scored(tuple((q, c, False) for q, c, _ in scored.pairs), 50, 60)
    assert lowest_at(wrong, 0.5)[1] is False
    with pytest.raises(UserError, match="too few"):
        lowest_at(Scored(scored.pairs[:5], 5, 5), 0.5)
    with pytest.raises(UserError, match="too few"):
        lowest_at(Scored((), 5, 5), 0.5)


def test_an_encoder_is_proposed_its_own_cosine(tmp_path: Path) -> None:
    labelled = collection_set(many({"G1": 40, "G3": 40}))
    settings = settings_for(tmp_path)
    (proposal,) = propose_for(
        labelled, settings, ["overlap"], like=("overlap", 1.0), encoder_of=lambda name: OverlapEncoder()
    )
    assert proposal.reached and proposal.at.precision == proposal.like.precision  # type: ignore[union-attr]
    # Nothing lies between 0 and 1 here: the lowest cosine with the same candidates is just above 0.
    assert proposal.at.cosine == 0.01
    assert proposal.at.pairs == 80 and proposal.target_from == "overlap at 1"
    assert proposal.curve[0].pairs == 160
    for both in ({}, {"like": ("overlap", 0.5), "precision": 0.5}):
        with pytest.raises(UserError, match="one target"):
            propose_for(labelled, settings, ["overlap"], **both)  # type: ignore[arg-type]
    with pytest.raises(UserError, match="no candidate at"):
        propose_for(
            labelled, settings, ["overlap"], like=("overlap", 1.1), encoder_of=lambda name: OverlapEncoder()
        )


# -- the project's own notes -----------------------------------------------------------------------


def scored_tool(word: str, identifier: str, duplicate_of: str | None = None) -> ScoredTool:
    description = f"Finds what there is about {word}."
    return ScoredTool(
        id=identifier,
        source="crewai",
        name=f"{word} finder",
        description=description,
        description_origin="class",
        kind="tool",
        granularity="tool",
        group_id=identifier,
        auth_required="no",
        deprecated=Deprecation(state=False),
        provenance=Provenance(
            artifact="a", artifact_version="1", sha256="0", path="p", backend="client", parser_version="1"
        ),
        provider="p",
        duplicate_group=duplicate_of or identifier,
        tool_text=tool_text(f"{word} finder", description),
        r_cons=0.5,
        w_src=0.9,
        r_qual=0.5,
        r_static=0.6,
        reliable=False,
    )


CATALOG = [scored_tool(w, f"crewai:{w.title()}") for w in WORDS]
CATALOG.append(scored_tool("weather", "crewai:Zephyr", "crewai:Weather"))
REQUESTS: list[dict[str, Any]] = [
    {"id": "r1", "text": "weather in Turku this evening", "gold": ["crewai:Weather"]},
    {"id": "r2", "text": "Weather in Turku this evening!", "gold": ["crewai:Flight"]},
    {"id": "r3", "text": "book me a haircut", "gold": []},
    {"id": "r4", "text": "where on earth is my parcel", "gold": ["crewai:Absent"]},
    {"id": "c1", "text": "what parcel rates are there", "gold": ["crewai:Parcel"], "fold": "calibration"},
]


def requests_file(tmp_path: Path) -> Path:
    path = tmp_path / "requests.jsonl"
    path.write_text("".join(json.dumps(r) + "\n" for r in REQUESTS))
    return path


def test_noted_tools_are_judged_like_a_collection(tmp_path: Path) -> None:
    requests = load_requests(requests_file(tmp_path))
    labelled = noted_set(requests, CATALOG)
    # Duplicates of a noted tool are right, the calibration fold stays out, an absent tool is no gold.
    by_text = {q.text: q for q in labelled.queries}
    assert by_text["weather in Turku this evening"].gold >= {"crewai:Weather", "crewai:Zephyr"}
    assert "what parcel rates are there" not in by_text
    assert by_text["where on earth is my parcel"].gold == frozenset()
    assert set(labelled.strata()) == {"none", "single"}
    assert [q.text for q in noted_set(requests, CATALOG, folds=("calibration",)).queries] == [
        "what parcel rates are there"
    ]
    engine, _ = scripted(tmp_path)
    (evaluation,) = evaluate_labeller(
        labelled, settings_for(tmp_path), engine=engine, encoder_of=lambda name: OverlapEncoder()
    )
    assert evaluation.report.kind == "noted"
    nothing = next(s for s in evaluation.report.strata if s.name == "none")
    # A request without a right tool that finds none is no error, and has no recall.
    assert nothing.stages[-1].recall.value is None
    assert "the writers' notes" in render_markdown([evaluation.report])


def test_sets_without_notes_or_fold_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "plain.jsonl"
    path.write_text('{"id": "a", "text": "no notes here"}\n')
    with pytest.raises(UserError, match="no noted tools"):
        noted_set(load_requests(path), CATALOG)
    path.write_text('{"id": "a", "text": "weather now", "gold": ["crewai:Weather"], "fold": "calibration"}\n')
    with pytest.raises(UserError, match="no request of fold label"):
        noted_set(load_requests(path), CATALOG)


# -- the command ----------------------------------------------------------------------------------


def write_collection(folder: Path, name: str = "tiny") -> Path:
    folder.mkdir(exist_ok=True)
    queries = [{"query_id": q.id, "query": q.text, "group": q.group, "gold": list(q.gold)} for q in QUERIES]
    tools = [{"tool_id": t.id, "name": t.name, "description": t.description} for t in TOOLS]
    for kind, rows in (("queries", queries), ("tools", tools)):
        (folder / f"{name}_{kind}.jsonl").write_text("".join(json.dumps(r) + "\n" for r in rows))
    return folder


@pytest.fixture
def command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """``ecoagent label`` with the scripted verifier and the word-overlap encoder."""
    engine, _ = scripted(tmp_path)
    monkeypatch.setattr(judge_module, "open_engine", lambda settings, progress=None: engine)
    for module in ("ecoagent.labeling.judge", "ecoagent.labeling.cosine"):
        monkeypatch.setattr(f"{module}.stored_encoder", lambda *a: OverlapEncoder())
    fixed = [
        "--profile", "local", "--set", f'outputs="{tmp_path / "outputs"}"',
        "--set", 'labeling.verifier_score="raw"', "--set", 'labeling.verifier_form="score"',
        "--set", "labeling.verifier_threshold=0.5", "--set", "labeling.min_cosine=0.5",
        "--set", "labeling.top_k=2", "--set", "labeling.lexical_top_k=0",
    ]  # fmt: skip
    return lambda *arguments: CliRunner().invoke(app, ["label", *map(str, arguments), *fixed])


def test_command_writes_report_table_and_list(tmp_path: Path, command: Callable[..., Any]) -> None:
    folder = write_collection(tmp_path / "sets")
    out = tmp_path / "results" / "labeller.json"
    done = command("--evaluate-on", folder / "tiny", "--out", out, "--json")
    assert done.exit_code == 0, done.output
    (report,) = load_reports(out)
    assert (report.collection, report.kept_pairs) == ("tiny", 5)
    assert out.with_suffix(".md").read_text() == render_markdown([report])
    assert (out.parent / "labeller_not_gold.csv").read_text().count("\n") == 3
    shown = command("--evaluate-on", folder, "--collection", "tiny", "--out", out)
    assert shown.exit_code == 0 and "after deduplication" in shown.output


def test_command_names_what_is_wrong(tmp_path: Path, command: Callable[..., Any]) -> None:
    folder = write_collection(tmp_path / "sets")
    write_collection(folder, "other")
    out = ("--out", tmp_path / "l.json")
    empty = tmp_path / "empty"
    empty.mkdir()
    for arguments, said in (
        (("--evaluate-on", empty, *out), "holds no test collection"),
        (("--evaluate-on", folder, *out), "other, tiny"),
        (("--evaluate-on", folder / "absent", *out), "absent does not exist"),
        (("--evaluate-on", tmp_path / "no" / "where", *out), "does not exist"),
        (("--evaluate-on", folder / "tiny"), "to keep the report"),
        (("--evaluate-on", "noted", *out), "run `ecoagent score` first"),
        (("--evaluate-on", folder / "tiny", "--out", tmp_path / "l.txt"), "is no .json file"),
        (("--evaluate-on", folder / "tiny", "--encoder", "all-MiniLM-L6-v2@7", *out), "ENCODER@COSINE"),
        (("--evaluate-on", folder / "tiny", "--like", "a@0.5", *out), "targets of --propose-cosine"),
        (("--propose-cosine",), "one target"),
        (("--propose-cosine", "--like", "all-MiniLM-L6-v2"), "has no cosine"),
        (("--collection", "tiny"), "--evaluate-on DIR"),
        (("--encoder", "all-mpnet-base-v2"), "labeling.encoder"),
        (("--calibrate", tmp_path / "c.json", "--propose-cosine", "--at-precision", "0.5"), "alone"),
    ):
        done = command(*arguments)
        assert done.exit_code == 2, (arguments, done.output)
        assert said in done.output, (arguments, done.output)


def test_dry_run_estimates_and_does_nothing(tmp_path: Path, command: Callable[..., Any]) -> None:
    folder = write_collection(tmp_path / "sets")
    out = tmp_path / "labeller.json"
    done = command("--evaluate-on", folder / "tiny", "--out", out, "--dry-run", "--json")
    assert done.exit_code == 0, done.output
    planned = json.loads(done.stdout)
    assert planned["queries_to_draw_from"] == 4 and planned["pairs_verified_at_most"] == 8
    assert planned["minutes_at_most"] >= planned["minutes_at_least"]
    assert not out.exists()


def test_command_judges_noted_tools_and_proposes(tmp_path: Path, command: Callable[..., Any]) -> None:
    settings = settings_for(tmp_path)
    write_table(
        RunContext.create(settings).paths.core / "tools.parquet",
        sorted(CATALOG, key=lambda t: t.id),
        ScoredTool,
    )
    queries = ("--set", f'labeling.queries="{requests_file(tmp_path)}"')
    done = command("--evaluate-on", "noted", *queries)
    assert done.exit_code == 0, done.output
    results = RunContext.create(settings).paths.out / "results"
    assert load_reports(results / "labeller.json")[0].collection == "requests"
    few = command("--propose-cosine", "--like", "all-MiniLM-L6-v2@0.5", *queries)
    assert few.exit_code == 2 and "too few" in few.output
    folder = tmp_path / "many"
    folder.mkdir()
    collection = many({"A": 20, "B": 20})
    (folder / "m_queries.jsonl").write_text(
        "".join(
            json.dumps({"query_id": q.id, "query": q.text, "group": q.group, "gold": list(q.gold)}) + "\n"
            for q in collection.queries
        )
    )
    (folder / "m_tools.jsonl").write_text(
        "".join(
            json.dumps({"tool_id": t.id, "name": t.name, "description": t.description}) + "\n"
            for t in collection.tools
        )
    )
    out = tmp_path / "cosines.json"
    proposed = command("--propose-cosine", "--evaluate-on", folder, "--at-precision", "0.25", "--out", out)
    assert proposed.exit_code == 0, proposed.output
    (proposal,) = json.loads(out.read_text())["proposals"]
    assert proposal["at"]["cosine"] == 0.01 and proposal["reached"]


def test_a_query_keeps_its_place_in_plain_values() -> None:
    labelled = LabelledSet("s", "l", "noted", (LabelledQuery("q", "t", "x", frozenset()),), (), {}, {}, "d")
    assert [q.id for q in draw_order(labelled, 0)] == ["q"]
    assert weights(labelled, labelled.queries) == {"x": 1.0}
