"""InfoNCE, batches without false negatives, and a training that repeats to the byte."""

from __future__ import annotations

import json
import random
from collections import Counter
from pathlib import Path

import pytest
import torch

from ecoagent.models import ModelStore
from ecoagent.retrieval import (
    TrainingRow,
    contrastive_loss,
    load_two_tower,
    plan_batches,
    train_two_tower,
    training_rows,
    warmup_steps,
)
from ecoagent.retrieval.losses import info_nce
from ecoagent.runs import sha256_file
from ecoagent.schema import PairRow
from ecoagent.settings import TrainSettings, UserError, load_settings

GOLDEN = json.loads((Path(__file__).parents[1] / "golden" / "info_nce.json").read_text())


def tensor(name: str) -> torch.Tensor:
    return torch.tensor(GOLDEN[name], dtype=torch.float64)


@pytest.mark.parametrize("tau", [0.05, 1.0])
def test_loss_equals_golden_values(tau: float) -> None:
    q, p, hard = tensor("Q"), tensor("P"), tensor("hard")
    assert float(info_nce(q, p, temperature=tau)) == pytest.approx(GOLDEN["expected"][f"tau{tau}"], abs=1e-6)
    expected = GOLDEN["expected"][f"tau{tau}_hard"]
    assert float(info_nce(q, p, hard, temperature=tau)) == pytest.approx(expected, abs=1e-6)


def test_masked_negatives_do_not_count() -> None:
    q, p, hard = tensor("Q"), tensor("P"), tensor("hard")
    none = torch.zeros(len(q), 2, dtype=torch.bool)
    plain = info_nce(q, p, temperature=0.05)
    assert float(info_nce(q, p, hard, temperature=0.05, negative_mask=none)) == pytest.approx(float(plain))
    first = none.clone()
    first[:, 0] = True
    only = info_nce(q, p, hard[:, :1], temperature=0.05)
    assert float(info_nce(q, p, hard, temperature=0.05, negative_mask=first)) == pytest.approx(float(only))


def test_without_hard_negatives_it_is_the_library_ranking_loss() -> None:
    from sentence_transformers.sentence_transformer.losses import MultipleNegativesRankingLoss

    q, p = tensor("Q"), tensor("P")
    loss = MultipleNegativesRankingLoss(torch.nn.Identity(), scale=1 / 0.05)
    theirs = loss.compute_loss_from_embeddings([q, p], None)
    assert float(theirs) == pytest.approx(float(info_nce(q, p, temperature=0.05)), abs=1e-9)


def pair(query: str, tool: str, kind: str | None = None, score: float = 0.5, split: str = "train") -> PairRow:
    return PairRow.model_validate(
        {
            "query_id": query,
            "tool_id": tool,
            "label": 0 if kind else 1,
            "negative_type": kind,
            "score": score,
            "split": split,
        }
    )


GROUPS = {"a": "a", "a2": "a", "b": "b", "c": "c", "d": "d"}
TEXTS = {tool: f"text of {tool}" for tool in GROUPS}


def test_rows_take_hard_negatives_first_and_never_a_copy_of_a_gold() -> None:
    pairs = [
        pair("q1", "a"),
        pair("q1", "b"),
        pair("q1", "d", "random"),
        pair("q1", "c", "hard", 0.4),
        pair("q1", "a2", "hard", 0.9),
        pair("q2", "c"),
        pair("q3", "d", split="val"),
        pair("q3", "a", "hard", split="val"),
    ]
    rows = training_rows(
        pairs, {"q1": "one", "q2": "two", "q3": "three"}, TEXTS, GROUPS, split="train", hard_negatives=2
    )
    assert [(r.query_id, r.tool_id, r.negatives) for r in rows] == [
        ("q1", "a", ("text of c", "text of d")),
        ("q1", "b", ("text of c", "text of d")),
        ("q2", "c", ()),
    ]
    assert rows[0].gold_groups == frozenset({"a", "b"}) and rows[0].group == "a"
    with pytest.raises(UserError, match="tool 'a'"):
        training_rows(pairs, {"q1": "one"}, {}, GROUPS, split="train", hard_negatives=1)


def synthetic_rows(n: int, groups: int, seed: int = 0) -> list[TrainingRow]:
    rng = random.Random(seed)
    rows = []
    for i in range(n):
        golds = rng.sample(range(groups), rng.choice([1, 1, 1, 2]))
        named = frozenset(f"g{g}" for g in golds)
        rows += [TrainingRow(f"q{i}", f"query {i}", f"t{g}", f"tool {g}", (), f"g{g}", named) for g in golds]
    return rows


@pytest.mark.parametrize(("n", "groups", "size"), [(60, 5, 8), (200, 40, 16), (7, 2, 4), (50, 50, 8)])
def test_no_batch_holds_a_false_negative(n: int, groups: int, size: int) -> None:
    rows = synthetic_rows(n, groups)
    plan = plan_batches(rows, size, 2, seed=0)
    for epoch in (0, 1):
        batches = [batch for at, batch in plan if at == epoch]
        assert Counter(i for batch in batches for i in batch) == Counter(range(len(rows)))
        for batch in batches:
            assert 1 <= len(batch) <= size
            for i in batch:
                others = {rows[j].group for j in batch if j != i}
                assert not others & (rows[i].gold_groups | {rows[i].group})
    assert plan == plan_batches(rows, size, 2, seed=0) != plan_batches(rows, size, 2, seed=1)
    assert [b for at, b in plan if at == 0] != [b for at, b in plan if at == 1]


def test_batches_stay_full_and_fractions_of_epochs_count() -> None:
    rows = [
        TrainingRow(f"q{i}", "q", f"t{i % 20}", "t", (), f"g{i % 20}", frozenset({f"g{i % 20}"}))
        for i in range(200)
    ]
    assert [len(batch) for _, batch in plan_batches(rows, 10, 1, seed=0)] == [10] * 20
    assert len(plan_batches(rows, 10, 2.5, seed=0)) == 50
    assert plan_batches([], 10, 1, seed=0) == []


def test_warmup_is_a_share_of_the_steps_or_a_number() -> None:
    assert warmup_steps(TrainSettings(), 50) == 1000
    assert warmup_steps(TrainSettings(warmup_ratio=0.1), 55) == 6
    assert warmup_steps(TrainSettings(warmup_steps=None), 55) == 0


SUBJECTS = ("Slack", "Trello", "Gmail", "Stripe", "GitHub", "Notion")
VERBS = ("send", "move", "mail", "charge", "merge", "write")


def real_rows() -> list[TrainingRow]:
    rows = []
    for i in range(12):
        k = i % 6
        other = f"{SUBJECTS[(k + 1) % 6]}: {VERBS[(k + 1) % 6]} things."
        rows.append(
            TrainingRow(
                f"q{i}",
                f"how can I {VERBS[k]} number {i}",
                SUBJECTS[k],
                f"{SUBJECTS[k]}: {VERBS[k]} things.",
                (other,) if i % 3 else (),
                SUBJECTS[k],
                frozenset({SUBJECTS[k]}),
            )
        )
    return rows


@pytest.fixture(scope="module")
def minilm() -> Path:
    return ModelStore(load_settings("local", env={}).models).path("all-MiniLM-L6-v2")


def test_training_learns_and_repeats_to_the_byte(minilm: Path, tmp_path: Path) -> None:
    shorter = ["train.batch_size=4", "train.epochs=2", "train.max_length=16", "train.cpu_bfloat16=false"]
    settings = load_settings("local", overrides=shorter, env={}).train
    rows, seen = real_rows(), []
    results = [
        train_two_tower(
            rows,
            settings,
            query_path=minilm,
            tool_path=minilm,
            output=tmp_path / name,
            seed=seed,
            on_step=seen.append,
            device="cpu",
        )
        for name, seed in (("one", 0), ("two", 0), ("other", 1))
    ]
    assert results[0] == results[1] != results[2]
    assert seen == [loss for result in results for loss in result.losses]
    assert results[0].steps == 6 and results[0].epochs == [0, 0, 0, 1, 1, 1]
    assert results[0].warmup_steps == 1 and results[0].precision == "float32"
    sums = {
        name: {
            p.relative_to(tmp_path / name): sha256_file(p)
            for p in (tmp_path / name).rglob("*")
            if p.is_file()
        }
        for name in ("one", "two", "other")
    }
    assert sums["one"] == sums["two"] != sums["other"]
    losses = [
        contrastive_loss(load_two_tower(folder), rows, batch_size=4, temperature=0.05, seed=0)
        for folder in (_untrained(minilm, tmp_path), tmp_path / "one")
    ]
    assert losses[1] < losses[0]


def test_one_tool_without_negatives_trains_without_a_signal(minilm: Path, tmp_path: Path) -> None:
    """The smallest run has a single training tool: its rows cannot share a batch."""
    rows = [TrainingRow(f"q{i}", f"query {i}", "t", "tool", (), "t", frozenset({"t"})) for i in range(2)]
    found = train_two_tower(
        rows,
        TrainSettings(batch_size=2, max_length=8),
        query_path=minilm,
        tool_path=minilm,
        output=tmp_path / "out",
        seed=0,
        device="cpu",
    )
    assert found.losses == [0.0, 0.0] and found.batch_sizes == [1, 1]


def _untrained(minilm: Path, tmp_path: Path) -> Path:
    from ecoagent.retrieval import build_two_tower, save_two_tower

    save_two_tower(build_two_tower(minilm, minilm, max_length=16, device="cpu"), tmp_path / "untrained")
    return tmp_path / "untrained"


def test_nothing_to_train_on_and_divergence_are_user_errors(minilm: Path, tmp_path: Path) -> None:
    settings = TrainSettings(batch_size=4, warmup_ratio=0.0, max_length=8)
    # Beyond what the settings allow, so that it does diverge.
    settings = settings.model_copy(update={"learning_rate": 1e30})
    with pytest.raises(UserError, match="no training pairs"):
        train_two_tower([], settings, query_path=minilm, tool_path=minilm, output=tmp_path, seed=0)
    with pytest.raises(UserError, match="diverged"):
        train_two_tower(
            real_rows(),
            settings,
            query_path=minilm,
            tool_path=minilm,
            output=tmp_path / "out",
            seed=0,
            device="cpu",
        )
    assert not (tmp_path / "out").exists()
