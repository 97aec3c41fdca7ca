"""Arms of the encoder ablation differ in one respect each; what they are judged on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ecoagent.evaluation.benchmarks import make_benchmark
from ecoagent.evaluation.datasets import load_core
from ecoagent.evaluation.encoder_arms import (
    CHOICE,
    CHOSEN,
    EXPANDED,
    UNTRAINED,
    Arm,
    arms_of,
    expanded,
    own_tests,
    set_tests,
)
from ecoagent.retrieval.collections import CollectionQuery, CollectionTool, TestCollection
from ecoagent.runs import read_table, write_table
from ecoagent.schema import QrelRow, QueryRow, ScoredTool
from ecoagent.settings import SiameseSettings, TrainSettings, UserError, load_settings
from tests.unit.fixture_run import fixture_settings, write_fixture_run

LOCAL = load_settings("local", env={}).train


def changed(one: TrainSettings, two: TrainSettings) -> dict[str, tuple[Any, Any]]:
    before, after = one.model_dump(), two.model_dump()
    return {name: (before[name], after[name]) for name in before if before[name] != after[name]}


@pytest.mark.parametrize("train", [LOCAL, TrainSettings()], ids=["local", "paper"])
def test_each_arm_is_one_change_away(train: TrainSettings) -> None:
    arms = {arm.name: arm for arm in arms_of(train)}
    chosen = arms[CHOSEN].settings
    assert chosen == train.as_siamese and arms["rated"].settings == train
    expected = {
        "untrained": {},
        "siamese": {},
        "other_pooling": {"pooling": ("mean", "cls")},
        "no_hard_negatives": {"hard_negatives": (1, 0)},
        "no_mask": {"mask_false_negatives": (True, False)},
        "symmetric": {"symmetric_weight": (0.0, 1.0)},
        "two_towers": {"towers": ("one", "two")},
    }
    found = {name: changed(chosen, arm.settings) for name, arm in arms.items() if name != "rated"}
    assert found == expected
    assert [name for name, arm in arms.items() if not arm.trained] == [UNTRAINED]
    assert list(arms)[:2] == [UNTRAINED, CHOSEN] and len({arm.label for arm in arms.values()}) == len(arms)


def test_another_pooling_is_the_one_that_is_not_set() -> None:
    train = LOCAL.model_copy(update={"siamese": SiameseSettings(pooling="cls")})
    arms = {arm.name: arm for arm in arms_of(train)}
    assert changed(arms[CHOSEN].settings, arms["other_pooling"].settings) == {"pooling": ("cls", "mean")}
    assert "mean pooling" in arms["other_pooling"].label and "CLS" in arms[CHOSEN].what


def test_a_further_model_is_an_arm_before_and_after_training() -> None:
    arms = {arm.name: arm for arm in arms_of(LOCAL, ["someone/bge", "all-mpnet-base-v2"])}
    assert list(arms)[-4:] == [
        "untrained_bge", "siamese_bge", "untrained_all-mpnet-base-v2", "siamese_all-mpnet-base-v2",
    ]  # fmt: skip
    for name, trained in (("untrained_bge", False), ("siamese_bge", True)):
        assert arms[name].trained is trained and arms[name].models == ("someone/bge",)
        difference = changed(arms[CHOSEN].settings, arms[name].settings)
        assert set(difference) == {"query_encoder", "tool_encoder"}
    for twice in (["a/x", "a/x"], ["a/x", "b/x"], [LOCAL.siamese.encoder]):
        with pytest.raises(UserError, match="one model twice"):
            arms_of(LOCAL, twice)


def test_models_of_an_arm_are_those_it_starts_from() -> None:
    arms = {arm.name: arm for arm in arms_of(TrainSettings())}
    assert arms["rated"].models == (
        "facebook/dragon-plus-query-encoder",
        "facebook/dragon-plus-context-encoder",
    )
    assert arms["two_towers"].models == ("all-MiniLM-L6-v2",)


def test_the_expanded_arm_is_the_chosen_one_under_another_name() -> None:
    chosen = next(arm for arm in arms_of(LOCAL) if arm.name == CHOSEN)
    wide = expanded(chosen)
    assert (wide.name, wide.settings, wide.trained) == (EXPANDED, chosen.settings, True)
    assert isinstance(wide, Arm) and wide.label != chosen.label and "1 x the mean vector" in wide.what


# What they are judged on


def test_choices_are_made_on_validation_splits_and_none_is_left_out(tmp_path: Path) -> None:
    ctx = write_fixture_run(fixture_settings(tmp_path))
    data = load_core(ctx.paths.core)
    tests = own_tests(data)
    assert [s.name for s in tests.splits] == [
        "syn.val", "real.val", "syn.test", "syn.cold", "real.test", "syn.test+cold",
    ]  # fmt: skip
    assert {(s.set_name, s.split) for s in tests.splits[:2]} == set(CHOICE)
    assert tests.tools == data.tools
    whole = {s.name: s for s in tests.splits}
    for split in tests.splits[:-1]:
        assert split.queries.ids == data.judged(split.set_name, split.split).ids
    pooled = whole["syn.test+cold"]
    assert set(pooled.queries.ids) == {*whole["syn.test"].queries.ids, *whole["syn.cold"].queries.ids}
    for split in tests.splits:
        names = tests.clusters[split.name]
        assert len(names) == len(split.queries) == len(split.golds)
        assert all(split.golds[query] == data.golds[query] for query in split.queries.ids)
    # Queries of one tool are together.
    first = dict(zip(pooled.queries.ids, tests.clusters[pooled.name], strict=True))
    for one, cluster in first.items():
        for two, other in first.items():
            assert (cluster == other) == bool(pooled.golds[one] & pooled.golds[two])


def test_duplicates_count_as_one_cluster(tmp_path: Path) -> None:
    ctx = write_fixture_run(fixture_settings(tmp_path))
    path = ctx.paths.core / "tools.parquet"
    tools = read_table(path).to_dicts()
    for tool in tools[:6]:
        tool["duplicate_group"] = tools[0]["id"]
    write_table(path, tools, ScoredTool)
    data = load_core(ctx.paths.core)
    tests = own_tests(data)
    [test] = [s for s in tests.splits if s.name == "syn.test"]
    same = {tools[n]["id"] for n in range(6)}
    names = zip(test.queries.ids, tests.clusters[test.name], strict=True)
    found = {name for query, name in names if test.golds[query] & same}
    assert found == {tools[0]["id"]}


def test_without_a_judged_query_there_is_nothing_to_compare(tmp_path: Path) -> None:
    ctx = write_fixture_run(fixture_settings(tmp_path))
    core = ctx.paths.core
    write_table(core / "real_queries.parquet", [], QueryRow)
    write_table(core / "real_qrels.parquet", [], QrelRow)
    assert [s.name for s in own_tests(load_core(core)).splits] == [
        "syn.val", "syn.test", "syn.cold", "syn.test+cold",
    ]  # fmt: skip
    rows = [r | {"split": "train"} for r in read_table(core / "syn_queries.parquet").to_dicts()]
    write_table(core / "syn_queries.parquet", rows, QueryRow)
    with pytest.raises(UserError, match="no split to judge on has a judged query"):
        own_tests(load_core(core))


def test_a_set_is_asked_without_its_instructions() -> None:
    tools = tuple(CollectionTool(i, f"name {i}", f"does {i}", "") for i in "abc")
    queries = (
        CollectionQuery("q1", "first", "", ("a",), instruction="Find it."),
        CollectionQuery("q2", "second", "", ("a", "b"), instruction="Find it."),
        CollectionQuery("q3", "third", "", ("c",), instruction="Find it."),
    )
    benchmark = make_benchmark(TestCollection("mine", queries, tools, "MIT", "here"))
    tests = set_tests(benchmark)
    [split] = tests.splits
    assert (split.name, split.queries.texts) == ("mine.test", ("first", "second", "third"))
    names = tests.clusters["mine.test"]
    assert names[0] == names[1] != names[2] and tests.tools == benchmark.tools
