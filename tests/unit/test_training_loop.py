"""A training on its way: curves, early stopping, checkpoints, options of the loss, several processes."""

from __future__ import annotations

import json
import math
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
import torch
from hypothesis import given
from hypothesis import settings as examples
from hypothesis import strategies as st

from ecoagent.evaluation import gpu_check
from ecoagent.evaluation.gpu_check import made_up, random_encoder
from ecoagent.evaluation.train_stage import teacher_scores
from ecoagent.retrieval import (
    TrainingResult,
    TrainingRow,
    Validation,
    load_two_tower,
    plan_batches,
    train_two_tower,
    training,
    validation_steps,
)
from ecoagent.retrieval.fitting import share
from ecoagent.retrieval.losses import InfoNCELoss, distillation, info_nce
from ecoagent.runs import sha256_file
from ecoagent.settings import TrainSettings, UserError, load_settings

ROWS, VALIDATION = made_up(tools=8, words=6)
ROWS = [
    replace(row, negatives=row.negatives if n % 3 else (), teacher=(2.0, 1.0) if n % 3 else (2.0,))
    for n, row in enumerate(ROWS)
]
SETTINGS = TrainSettings(batch_size=5, epochs=2, max_length=16, learning_rate=1e-3, warmup_ratio=0.1)
"""24 rows in batches of 5: 10 steps."""


def encoder_in(folder: Path, dropout: float = 0.1) -> Path:
    texts = [text for row in (*ROWS, *VALIDATION.rows) for text in (row.query, row.tool)]
    return random_encoder(folder, texts, layers=2, hidden=32, heads=2, dropout=dropout)


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return encoder_in(tmp_path_factory.mktemp("weights") / "tiny")


def train(tiny: Path, output: Path, settings: TrainSettings = SETTINGS, **more: Any) -> TrainingResult:
    asked = {"query_path": tiny, "tool_path": tiny, "output": output, "seed": 0, "device": "cpu", **more}
    rows = asked.pop("rows", ROWS)
    return train_two_tower(rows, settings, **asked)


def digests(folder: Path) -> dict[str, str]:
    return {p.relative_to(folder).as_posix(): sha256_file(p) for p in folder.rglob("*") if p.is_file()}


@pytest.fixture(scope="module")
def plain(tiny: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[TrainingResult, Path]:
    output = tmp_path_factory.mktemp("plain") / "towers"
    return train(tiny, output), output


# Curves


def test_validating_on_the_way_changes_no_byte_of_the_weights(
    tiny: Path, plain: tuple[TrainingResult, Path], tmp_path: Path
) -> None:
    result = train(
        tiny, tmp_path / "towers", SETTINGS.model_copy(update={"validate_every": 3}), validation=VALIDATION
    )
    assert [v["step"] for v in result.validations] == [0, 3, 6, 9, 10]
    assert digests(tmp_path / "towers") == digests(plain[1]) and result.losses == plain[0].losses
    assert (result.kept_step, result.planned_steps) == (10, 10) and plain[0].validations == []
    # The curve ends with what the saved towers give.
    last = VALIDATION.measure(load_two_tower(tmp_path / "towers", device="cpu"), SETTINGS, 0)
    assert {"step": 10, **last} == result.validations[-1]
    assert result.validations[-1]["loss"] != result.validations[0]["loss"]


def test_when_it_is_validated() -> None:
    assert validation_steps(None, 10, 1) == frozenset()
    assert validation_steps(4, 10, 1) == {4, 8, 10}
    assert validation_steps(0.25, 100, 0.5) == {50, 100}
    assert validation_steps(0.5, 20, 2) == {5, 10, 15, 20}
    assert validation_steps(0.01, 3, 1) == {1, 2, 3}
    assert validation_steps(50, 10, 1) == {10} and validation_steps(1, 0, 1) == frozenset()


# Early stopping


@dataclass(frozen=True)
class Scripted(Validation):
    """Gives the MRRs it was told, and keeps what the towers said each time."""

    script: tuple[float, ...] = ()
    seen: list[Any] = field(default_factory=list)

    def measure(self, encoder: Any, settings: TrainSettings, seed: int) -> dict[str, float | None]:
        self.seen.append(encoder.encode_queries(["probe"]))
        value = self.script[len(self.seen) - 1]
        return {"loss": 1.0 - value, "MRR": value}


def scripted(*script: float) -> Scripted:
    v = VALIDATION
    return Scripted(v.rows, v.queries, v.tools, v.golds, script)


@pytest.mark.parametrize("metric", ["MRR", "loss"])
def test_it_stops_after_patience_and_keeps_the_best_weights(tiny: Path, tmp_path: Path, metric: str) -> None:
    asked = {"validate_every": 2.0, "early_stopping": metric, "patience": 2}
    judge = scripted(0.1, 0.3, 0.5, 0.5, 0.4, 0.9)
    result = train(tiny, tmp_path / "towers", SETTINGS.model_copy(update=asked), validation=judge)
    assert [v["step"] for v in result.validations] == [0, 2, 4, 6, 8] and result.steps == 8
    assert (result.kept_step, result.planned_steps) == (4, 10) and len(result.batch_sizes) == 8
    kept = load_two_tower(tmp_path / "towers", device="cpu").encode_queries(["probe"])
    assert (kept == judge.seen[2]).all() and not (kept == judge.seen[4]).all()


def test_a_training_that_only_harms_keeps_what_it_started_from(tiny: Path, tmp_path: Path) -> None:
    asked = {"validate_every": 5.0, "early_stopping": "MRR"}
    judge = scripted(0.5, 0.4, 0.3)
    result = train(tiny, tmp_path / "towers", SETTINGS.model_copy(update=asked), validation=judge)
    assert result.kept_step == 0 and result.steps == 10
    kept = load_two_tower(tmp_path / "towers", device="cpu").encode_queries(["probe"])
    assert (kept == judge.seen[0]).all()


def test_stopping_needs_something_to_stop_by(tiny: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="validate_every"):
        load_settings("local", overrides=["train.early_stopping=MRR"], env={})
    settings = TrainSettings(validate_every=2, early_stopping="MRR")
    with pytest.raises(UserError, match="needs validation queries"):
        train(tiny, tmp_path / "towers", settings)
    assert TrainSettings().early_stopping == "off" == load_settings("paper", env={}).train.early_stopping


# Checkpoints


class BrokenOffError(Exception):
    """Ends a training where a kill would."""


def stop_at(step: int) -> Any:
    seen: list[float] = []

    def on_step(loss: float) -> None:
        seen.append(loss)
        if len(seen) == step:
            raise BrokenOffError

    return on_step


def test_a_training_that_was_broken_off_ends_with_the_same_bytes(tiny: Path, tmp_path: Path) -> None:
    # Stops early after the break, with the best weights from before it.
    asked = {"validate_every": 1.0, "early_stopping": "MRR", "patience": 4, "checkpoint_every": 3}
    settings, scores = SETTINGS.model_copy(update=asked), (0.1, 0.2, 0.6, 0.3, 0.5, 0.6, 0.4, 0.3)
    unbroken = train(tiny, tmp_path / "unbroken", settings, validation=scripted(*scores))
    assert unbroken.kept_step == 2 and unbroken.steps == 6
    store = tmp_path / "checkpoints"
    with pytest.raises(BrokenOffError):
        train(
            tiny,
            tmp_path / "resumed",
            settings,
            validation=scripted(*scores),
            checkpoints=store,
            on_step=stop_at(5),
        )
    assert [p.name for p in sorted(store.glob("step-*"))] == ["step-000000003"]
    taken: list[float] = []
    resumed = train(
        tiny,
        tmp_path / "resumed",
        settings,
        validation=scripted(*scores[4:]),
        checkpoints=store,
        on_step=taken.append,
    )
    assert taken == unbroken.losses[3:] and resumed == unbroken
    assert digests(tmp_path / "resumed") == digests(tmp_path / "unbroken")
    assert not store.exists()


def test_only_a_whole_checkpoint_of_the_same_training_is_used(
    tiny: Path, plain: tuple[TrainingResult, Path], tmp_path: Path
) -> None:
    store, settings = tmp_path / "checkpoints", SETTINGS.model_copy(update={"checkpoint_every": 2})
    with pytest.raises(BrokenOffError):
        train(tiny, tmp_path / "one", settings, checkpoints=store, on_step=stop_at(5))
    (kept,) = store.glob("step-*")
    # A later one that was cut short, and one whose writing never ended.
    (store / "step-000000006").mkdir()
    (store / "step-000000006" / "progress.json").write_text('{"key": "', encoding="utf-8")
    (store / ".tmp-writing" / "checkpoint-8").mkdir(parents=True)
    taken: list[float] = []
    other = train(tiny, tmp_path / "two", settings, checkpoints=store, seed=1, on_step=stop_at(1000))
    assert other.steps == 10 and other.losses != plain[0].losses and not store.exists()
    with pytest.raises(BrokenOffError):
        train(tiny, tmp_path / "one", settings, checkpoints=store, on_step=stop_at(5))
    assert kept.is_dir()
    (store / "step-000000006").mkdir()
    # How often one is written changes nothing.
    settings = SETTINGS.model_copy(update={"checkpoint_every": 7})
    again = train(tiny, tmp_path / "one", settings, checkpoints=store, on_step=taken.append)
    assert len(taken) == 6 and again == plain[0] and digests(tmp_path / "one") == digests(plain[1])


KILLED = """
import os, signal, sys
from pathlib import Path
from tests.unit.test_training_loop import SETTINGS, train
store = Path(sys.argv[2]) / "checkpoints"
steps = []
def on_step(loss):
    steps.append(loss)
    if len(steps) == 7:
        os.kill(os.getpid(), signal.SIGKILL)
settings = SETTINGS.model_copy(update={"checkpoint_every": 2})
train(Path(sys.argv[1]), Path(sys.argv[2]) / "towers", settings, checkpoints=store, on_step=on_step)
"""


def test_a_killed_process_leaves_a_checkpoint_to_go_on_from(
    tiny: Path, plain: tuple[TrainingResult, Path], tmp_path: Path
) -> None:
    environment = {**os.environ, "OMP_NUM_THREADS": str(torch.get_num_threads())}
    root = Path(__file__).parents[2]
    done = subprocess.run(
        [sys.executable, "-c", KILLED, str(tiny), str(tmp_path)],
        cwd=root,
        env=environment,
        capture_output=True,
        check=False,
    )
    assert done.returncode == -signal.SIGKILL, done.stderr.decode()[-2000:]
    taken: list[float] = []
    settings = SETTINGS.model_copy(update={"checkpoint_every": 2})
    store = tmp_path / "checkpoints"
    train(tiny, tmp_path / "towers", settings, checkpoints=store, on_step=taken.append)
    assert taken == plain[0].losses[6:] and digests(tmp_path / "towers") == digests(plain[1])


# Precision


def test_mixed_precision_is_recorded_and_keeps_float32_weights(
    tiny: Path, plain: tuple[TrainingResult, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(training, "_precision", lambda settings, on_gpu: "bfloat16")
    result = train(tiny, tmp_path / "towers")
    assert result.precision == "bfloat16" and plain[0].precision == "float32"
    assert result.losses != plain[0].losses
    assert result.losses == pytest.approx(plain[0].losses, rel=0.2, abs=0.2)
    towers = load_two_tower(tmp_path / "towers", device="cpu")
    assert {p.dtype for p in towers.model.parameters()} == {torch.float32}


# Batches


@st.composite
def row_lists(draw: st.DrawFn) -> list[TrainingRow]:
    groups = draw(st.integers(1, 8))
    golds = draw(st.lists(st.sets(st.integers(0, groups - 1), min_size=1, max_size=3), max_size=25))
    return [
        TrainingRow(f"q{n}", "q", f"t{g}.{n % 2}", "t", (), f"g{g}", frozenset(f"g{x}" for x in chosen))
        for n, chosen in enumerate(golds)
        for g in sorted(chosen)
    ]


@examples(max_examples=150, deadline=None)
@given(row_lists(), st.integers(2, 9), st.integers(0, 3), st.booleans(), st.integers(1, 4))
def test_no_group_twice_in_a_batch_however_it_is_shared_out(
    rows: list[TrainingRow], size: int, seed: int, masked: bool, processes: int
) -> None:
    plan = plan_batches(rows, size, 1, seed, masked=masked)
    assert Counter(n for _, batch in plan for n in batch) == Counter(range(len(rows)))
    for _, batch in plan:
        assert 1 <= len(batch) <= size
        groups = [rows[n].group for n in batch]
        assert len(set(groups)) == len(groups)
        for n in [] if masked else batch:
            assert not (set(groups) - {rows[n].group}) & rows[n].gold_groups
        shares = [share(batch, rank, processes, -7) for rank in range(processes)]
        assert len({len(s) for s in shares}) == 1
        assert sorted(n for s in shares for n in s if n != -7) == sorted(batch)


def test_masked_batches_are_fuller() -> None:
    """Every query has all tools as golds: without the mask no two rows fit together."""
    golds = frozenset("abcd")
    rows = [TrainingRow(f"q{n}", "q", t, t, (), t, golds) for n in range(4) for t in "abcd"]
    assert len(plan_batches(rows, 4, 1, 0)) == 16 and len(plan_batches(rows, 4, 1, 0, masked=True)) == 4


# Options of the loss


class Lookup(torch.nn.Module):
    """A model that reads its vectors from its input."""

    def forward(self, features: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        return {"sentence_embedding": features["v"]}


def vectors(*shape: int) -> torch.Tensor:
    found = torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape)), dtype=torch.float64)
    return torch.nn.functional.normalize(found, dim=-1)


LOSS_ROWS = [
    TrainingRow("q0", "q0", "a", "A", ("C", "D"), "a", frozenset({"a", "b"}), (3.0, 1.0, 2.0)),
    TrainingRow("q1", "q1", "b", "B", ("A",), "b", frozenset({"b"}), (1.0, 0.5)),
    TrainingRow("q2", "q2", "c", "C", (), "c", frozenset({"c"}), (1.0,)),
]
Q, P, N = vectors(3, 5), vectors(3, 5).flip(0), vectors(3, 2, 5)
HAVE = torch.tensor([[True, True], [True, False], [False, False]])


def loss_with(**options: Any) -> float:
    loss = InfoNCELoss(Lookup(), LOSS_ROWS, TrainSettings(**options))
    return float(loss([{"v": v} for v in (Q, P, N[:, 0], N[:, 1])], torch.tensor([0, 1, 2])))


def by_hand(scores: list[list[float]], gold: list[int]) -> float:
    terms = [math.log(sum(math.exp(s) for s in row)) - row[g] for row, g in zip(scores, gold, strict=True)]
    return sum(terms) / len(terms)


def logits(tau: float = 0.05) -> tuple[Any, Any]:
    return (Q @ P.T / tau).tolist(), (torch.einsum("bd,bhd->bh", Q, N) / tau).tolist()


def test_defaults_are_equation_3_and_masked_negatives_are_none() -> None:
    plain = float(info_nce(Q, P, N, temperature=0.05, negative_mask=HAVE))
    assert loss_with() == pytest.approx(plain, abs=1e-12)
    s, h = logits()
    assert plain == pytest.approx(by_hand([s[0] + h[0], s[1] + h[1][:1], s[2]], [0, 1, 2]), abs=1e-9)


def test_masking_leaves_out_golds_of_the_query_and_counts_a_tool_once() -> None:
    s, h = logits()
    # q0: tool 1 is a gold of it, tool 2 a hard negative as well; q1: tool 0 a hard negative as well.
    kept = [[s[0][0], *h[0]], [s[1][1], s[1][2], h[1][0]], s[2]]
    assert loss_with(mask_false_negatives=True) == pytest.approx(by_hand(kept, [0, 0, 2]), abs=1e-9)


def test_symmetric_term_reads_the_scores_from_the_tools_side() -> None:
    s, _ = logits()
    back = by_hand([list(column) for column in zip(*s, strict=True)], [0, 1, 2])
    assert loss_with(symmetric_weight=0.5) == pytest.approx(loss_with() + 0.5 * back, abs=1e-9)
    # With the mask, q0 is no negative of tool 1, which is a gold of it.
    masked = [[s[0][0], s[1][0], s[2][0]], [s[1][1], s[2][1]], [s[0][2], s[1][2], s[2][2]]]
    expected = loss_with(mask_false_negatives=True) + by_hand(masked, [0, 0, 2])
    assert loss_with(mask_false_negatives=True, symmetric_weight=1.0) == pytest.approx(expected, abs=1e-9)


def test_distillation_is_the_divergence_from_the_teacher() -> None:
    s, h = logits()

    def softmax(values: list[float]) -> list[float]:
        total = sum(math.exp(v) for v in values)
        return [math.exp(v) / total for v in values]

    kl = 0.0
    for row, student in zip(LOSS_ROWS, ([s[0][0], *h[0]], [s[1][1], h[1][0]], [s[2][2]]), strict=True):
        want = softmax([t / 2.0 for t in row.teacher or ()])
        kl += sum(p * math.log(p / q) for p, q in zip(want, softmax(student), strict=True)) / 3
    found = loss_with(distill_weight=0.7, distill_temperature=2.0)
    assert found == pytest.approx(loss_with() + 0.7 * kl, abs=1e-6)
    candidates = torch.cat([P[:, None], N], dim=1)
    own = torch.einsum("bd,bcd->bc", Q, candidates)
    everything = torch.ones(3, 3, dtype=torch.bool)
    same = distillation(Q, candidates, everything, own, temperature=0.05, softness=0.05)
    assert same.abs().max() < 1e-9


def test_distillation_needs_a_score_for_every_candidate(tmp_path: Path) -> None:
    rows = [*LOSS_ROWS[:2], replace(LOSS_ROWS[2], teacher=None)]
    with pytest.raises(UserError, match="'q2' has no teacher score"):
        InfoNCELoss(Lookup(), rows, TrainSettings(distill_weight=1.0))
    path = tmp_path / "scores.jsonl"
    path.write_text('{"query_id": "q", "tool_id": "t", "score": 2}\n', encoding="utf-8")
    assert teacher_scores(path) == {("q", "t"): 2.0} and teacher_scores(None) == {}
    path.write_text('{"query_id": "q", "tool_id": "t"}\n', encoding="utf-8")
    with pytest.raises(UserError, match="score"):
        teacher_scores(path)


# Several processes


def test_two_processes_train_as_one_does(tmp_path: Path) -> None:
    """Without dropout the same batches give the same losses and towers, up to rounding, every option on."""
    still = encoder_in(tmp_path / "still", dropout=0.0)
    rows, _ = made_up(tools=8, words=6)
    rows = [replace(r, teacher=(2.0, 1.0)) if n % 3 else replace(r, negatives=(), teacher=(2.0,))
            for n, r in enumerate(rows)]  # fmt: skip
    asked = {
        "symmetric_weight": 0.5,
        "distill_weight": 0.5,
        "mask_false_negatives": True,
        "validate_every": 5.0,
        "checkpoint_every": 4,
    }
    settings = SETTINGS.model_copy(update=asked)
    one = train(still, tmp_path / "one", settings, rows=rows, validation=VALIDATION)
    seen: list[float] = []
    two = train(
        still,
        tmp_path / "two",
        settings.model_copy(update={"processes": 2}),
        rows=rows,
        validation=VALIDATION,
        checkpoints=tmp_path / "checkpoints",
        on_step=seen.append,
    )
    assert seen == two.losses and two.batch_sizes == one.batch_sizes
    assert two.losses == pytest.approx(one.losses, abs=2e-4)
    assert [v["step"] for v in two.validations] == [0, 5, 10]
    assert two.validations[-1]["loss"] == pytest.approx(one.validations[-1]["loss"], abs=1e-3)
    texts = [row.query for row in rows]
    found = [load_two_tower(tmp_path / n, device="cpu").encode_queries(texts) for n in ("one", "two")]
    assert np.abs(found[0] - found[1]).max() < 1e-3
    assert not (tmp_path / "checkpoints").exists()


@dataclass(frozen=True)
class Held(Validation):
    """Does not come back from its ``last`` measurement: where a kill finds the processes is settled."""

    last: int = 0
    seen: list[int] = field(default_factory=list)

    def measure(self, encoder: Any, settings: TrainSettings, seed: int) -> dict[str, float | None]:
        self.seen.append(0)
        if len(self.seen) == self.last:
            time.sleep(300)
        return super().measure(encoder, settings, seed)


def held(last: int) -> Held:
    v = VALIDATION
    return Held(v.rows, v.queries, v.tools, v.golds, last)


SEVERAL = {
    "processes": 2,
    "checkpoint_every": 2,
    "validate_every": 1.0,
    "early_stopping": "loss",
    "patience": 9,
}
KILLED_TOGETHER = """
import json, os, signal, sys
from pathlib import Path
import psutil
from tests.unit.test_training_loop import SETTINGS, SEVERAL, held, train
folder, last, whole_group = Path(sys.argv[2]), int(sys.argv[3]), sys.argv[4] == "group"
steps = []
def on_step(loss):
    steps.append(loss)
    # The first process goes on to a measurement that it does not come back from.
    if len(steps) == int(sys.argv[5]):
        started = [p.pid for p in psutil.Process().children(recursive=True)]
        (folder / "started.json").write_text(json.dumps(started))
        os.killpg(0, signal.SIGKILL) if whole_group else os.kill(os.getpid(), signal.SIGKILL)
settings = SETTINGS.model_copy(update=SEVERAL)
train(Path(sys.argv[1]), folder / "towers", settings, validation=held(last),
      checkpoints=folder / "checkpoints", on_step=on_step)
"""


def running(pids: list[int]) -> list[int]:
    """Those that still run; one that ended and that nobody asked about does not."""
    found = []
    for pid in pids:
        try:
            ended = psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
        except psutil.NoSuchProcess:
            ended = True
        if not ended:
            found.append(pid)
    return found


def test_processes_that_are_killed_leave_no_orphan_and_go_on_from_their_checkpoint(
    tiny: Path, tmp_path: Path
) -> None:
    settings = SETTINGS.model_copy(update=SEVERAL)
    whole = train(tiny, tmp_path / "whole", settings, validation=VALIDATION)
    assert whole.steps == 10 and whole.kept_step > 0
    store, jobs = tmp_path / "checkpoints", tmp_path / "jobs"
    jobs.mkdir()
    # First the launcher alone, at step 5; then its group, at step 7: the third after the checkpoint.
    for what, last, steps, kept in (("launcher", 6, 5, 4), ("group", 3, 3, 6)):
        done = subprocess.run(
            [sys.executable, "-c", KILLED_TOGETHER, str(tiny), str(tmp_path), str(last), what, str(steps)],
            cwd=Path(__file__).parents[2],
            env={**os.environ, "TMPDIR": str(jobs)},
            start_new_session=True,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            check=False,
        )
        assert done.returncode == -signal.SIGKILL
        started = json.loads((tmp_path / "started.json").read_text())
        assert len(started) == 3, "torchrun and two workers"
        for _ in range(600):
            if not running(started):
                break
            time.sleep(0.1)
        assert not running(started) and not list(jobs.glob("ecoagent-train-*")), what
        assert [p.name for p in store.glob("step-*")] == [f"step-{kept:09d}"]
    taken: list[float] = []
    resumed = train(
        tiny, tmp_path / "towers", settings, validation=VALIDATION, checkpoints=store, on_step=taken.append
    )
    assert taken == whole.losses[6:] and resumed == whole
    assert digests(tmp_path / "towers") == digests(tmp_path / "whole") and not store.exists()


# The check on a GPU


def test_gpu_check_runs_dry_and_says_where_there_is_no_gpu(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert gpu_check.main(["--cpu"]) == 0
    record = json.loads(capsys.readouterr().out)
    assert record["passed"] and record["learned"] and record["device"] == "cpu (dry run)"
    assert record["validation"]["trained"]["MRR"] > record["validation"]["untrained"]["MRR"]
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert gpu_check.main([]) == 2
    shown = capsys.readouterr()
    assert "no GPU" in shown.err and "--cpu" in shown.err and shown.out == ""
