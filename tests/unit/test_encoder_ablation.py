"""The encoder ablation: what is trained, kept, judged and compared; resumption, also after a kill."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from typer.testing import CliRunner, Result

from ecoagent.cli.ablate import ablate_app
from ecoagent.evaluation import encoder_trainings
from ecoagent.evaluation.benchmarks import Benchmark, make_benchmark
from ecoagent.evaluation.datasets import load_core
from ecoagent.evaluation.encoder_ablation import EncoderAblation
from ecoagent.evaluation.encoder_arms import CHOSEN, EXPANDED, UNTRAINED
from ecoagent.evaluation.train_stage import validation_of
from ecoagent.models import ModelStore
from ecoagent.retrieval import SentenceEncoder, TrainingResult, TrainingRow
from ecoagent.retrieval.collections import CollectionQuery, CollectionTool, TestCollection
from ecoagent.runs import Progress, RunContext, execute, read_json, read_table, write_json, write_table
from ecoagent.schema import QrelRow
from ecoagent.settings import TrainSettings, UserError
from tests.unit.fixture_run import fixture_settings, write_fixture_run
from tests.unit.test_benchmarks import write_set
from tests.unit.tiny_bert import write_tiny_bert

ARMS = [
    "untrained", "siamese", "expanded", "other_pooling", "no_hard_negatives", "no_mask", "symmetric",
    "two_towers", "rated",
]  # fmt: skip
TRAINED = 7
"""Arms that are trained; the expanded one shares a training."""


class Words(torch.nn.Module):
    """A model of words by hash, so that the stage runs without weights."""

    dim = 64
    max_seq_length = 64

    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.zeros(3, 4))

    def get_embedding_dimension(self) -> int:
        return self.dim

    def encode_query(self, texts: list[str], **how: Any) -> Any:
        rows = np.zeros((len(texts), self.dim), dtype=np.float32)
        for n, text in enumerate(texts):
            for word in text.lower().split():
                rows[n, hashlib.sha256(word.encode()).digest()[0] % self.dim] += 1
        return rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-9)

    encode_document = encode_query


@dataclass(frozen=True)
class Asked:
    """A training that was asked for."""

    pairs: int
    settings: TrainSettings
    seed: int
    folder: Path
    validated: bool
    teachers: int

    @property
    def arm(self) -> str:
        """By its folder, which is a temporary one beside ``<arm>-<number>``."""
        return self.folder.parent.name.removeprefix(".tmp-").split(".")[0]


class Trainings(list[Asked]):
    """Trainings asked for."""

    stop_after: int | None = None
    """Trainings after which the process is stopped."""

    @property
    def arms(self) -> list[str]:
        return [asked.arm for asked in self]


@pytest.fixture
def trained(monkeypatch: pytest.MonkeyPatch) -> Trainings:
    """What was asked to be trained; nothing is."""
    calls = Trainings()

    def train(rows: Sequence[TrainingRow], settings: Any, **asked: Any) -> TrainingResult:
        if len(calls) == calls.stop_after:
            (asked["output"]).mkdir()
            (asked["output"] / "half").write_text("of it")
            raise KeyboardInterrupt
        teachers = sum(row.teacher is not None for row in rows)
        validated = asked["validation"] is not None
        calls.append(Asked(len(rows), settings, asked["seed"], asked["output"], validated, teachers))
        asked["output"].mkdir()
        (asked["output"] / "weights").write_text("large")
        return TrainingResult([1.0, 0.5], [0, 0], [len(rows)], 0, "float32")

    def words(*given: Any, name: str = "words", **more: Any) -> SentenceEncoder:
        return SentenceEncoder(Words(), name=name)

    monkeypatch.setattr(encoder_trainings, "train_two_tower", train)
    monkeypatch.setattr(encoder_trainings, "build_towers", lambda *a, **k: Words())
    monkeypatch.setattr(encoder_trainings, "load_two_tower", words)
    monkeypatch.setattr(ModelStore, "path", lambda self, name, progress=None: Path(name))
    monkeypatch.setattr(ModelStore, "digest", lambda self, name: name)
    return calls


def make_run(outputs: Path, *overrides: str) -> RunContext:
    return write_fixture_run(fixture_settings(outputs, *overrides))


def a_set(name: str, queries: int = 3) -> Benchmark:
    tools = tuple(CollectionTool(f"t{n}", f"amber {n}", f"anchor apple {n}", "") for n in range(4))
    asked = tuple(CollectionQuery(f"q{n}", f"amber apple {n}", "", (f"t{n}",)) for n in range(queries))
    return make_benchmark(TestCollection(name, asked, tools, "MIT", "here"))


def ask(ctx: RunContext, *sets: Benchmark, **asked: Any) -> dict[str, Any]:
    stage = EncoderAblation(sets, **asked)
    stage.prepare(ctx)
    execute(stage, ctx)
    found: dict[str, Any] = read_json(ctx.paths.out / "results" / "encoder_ablation.json")
    return found


def without_times(content: dict[str, Any]) -> dict[str, Any]:
    """All but the seconds that trainings took."""
    return content | {"arms": [{k: v for k, v in a.items() if k != "seconds"} for a in content["arms"]]}


# The table


def test_every_arm_is_judged_on_every_split(tmp_path: Path, trained: Trainings) -> None:
    ctx = make_run(tmp_path)
    content = ask(ctx, a_set("restbench"))
    assert [a["arm"] for a in content["arms"]] == ARMS and content["chosen"] == CHOSEN
    assert trained.arms == [f"{arm}-0" for arm in ARMS if arm not in (UNTRAINED, EXPANDED)]
    assert {asked.seed for asked in trained} == {0} and not (ctx.paths.raw / "train").exists()
    places = [
        ("syn", "val"), ("real", "val"), ("syn", "test"), ("syn", "cold"), ("real", "test"),
        ("syn", "test+cold"), ("restbench", "test"),
    ]  # fmt: skip
    assert [(r["set"], r["split"], r["arm"]) for r in content["rows"]] == [
        (*place, arm) for place in places for arm in ARMS
    ]
    for row in content["rows"]:
        low, high = row["interval"]
        assert 0 <= low <= row["MRR"] <= high <= 1 and row["tools"] <= row["queries"]
        assert row["by_seed"] == [row["MRR"]]
        assert ("against_untrained" in row) == (row["arm"] != UNTRAINED)
        assert ("against_chosen" in row) == (row["arm"] != CHOSEN)
        # The stub's encoders are the same for every arm but the expanded one.
        if row["arm"] not in (CHOSEN, EXPANDED, UNTRAINED):
            assert row["against_chosen"] == {"difference": 0.0, "interval": [0.0, 0.0], "p": 1.0}
    by_place = {(r["set"], r["split"], r["arm"]): r for r in content["rows"]}
    assert by_place["syn", "test", EXPANDED]["MRR"] != by_place["syn", "test", CHOSEN]["MRR"]
    assert by_place["restbench", "test", EXPANDED]["MRR"] == by_place["restbench", "test", CHOSEN]["MRR"]
    assert [s["set"] for s in content["sets"]] == ["restbench"]
    assert any("One seed" in note for note in content["notes"])


def test_arms_are_described_by_what_they_were(tmp_path: Path, trained: Trainings) -> None:
    arms = {a["arm"]: a for a in ask(make_run(tmp_path))["arms"]}
    pairs = arms[CHOSEN]["pairs"]
    assert pairs == trained[0].pairs > 0
    for name, arm in arms.items():
        if name == UNTRAINED:
            assert (arm["pairs"], arm["steps"], arm["precision"], arm["seconds"]) == (None,) * 4
        else:
            assert (arm["pairs"], arm["steps"], arm["precision"]) == (pairs, 2, "float32")
            assert arm["seconds"] >= 0
        assert arm["parameters"] == 12
    assert arms["two_towers"]["towers"] == "two" and arms[CHOSEN]["towers"] == "one"
    assert arms["other_pooling"]["pooling"] == "cls" and arms[EXPANDED]["label"] != arms[CHOSEN]["label"]
    asked = {a.arm: a.settings for a in trained}
    assert asked["no_mask-0"].mask_false_negatives is False and asked["siamese-0"].towers == "one"


def test_baselines_are_those_of_the_same_queries(tmp_path: Path, trained: Trainings) -> None:
    ctx, shown = make_run(tmp_path), a_set("restbench")
    data = load_core(ctx.paths.core)
    size = len(data.judged("syn", "test"))
    metrics = {"metrics": {"MRR": 0.5}, "intervals": {"MRR": [0.4, 0.6]}, "label": "BM25"}

    def row(ranker: str, place: str, split: str, queries: int, **more: Any) -> dict[str, Any]:
        return {"ranker": ranker, "set": place, "split": split, "n_queries": queries, **metrics, **more}

    offline = [
        row("bm25", "syn", "test", size, status="run"),
        row("rated", "syn", "test", size, status="run"),
        row("siamese", "syn", "test", size, status="run"),
        row("toolllm", "syn", "test", size, status="not run"),
        row("tfidf", "syn", "test", size - 1, status="run"),
    ]
    write_json(ctx.paths.out / "results" / "offline.json", {"rows": offline})
    judged = [
        row("bm25", "restbench", "test", 3, status="run", asked="query"),
        row("bm25", "restbench", "test", 3, status="run", asked="instruction"),
    ]
    sets = [{"set": "restbench", "content": shown.content}]
    path = ctx.paths.out / "results" / "benchmarks.json"
    write_json(path, {"rows": judged, "sets": sets})
    found = ask(ctx, shown)["baselines"]
    kept = {"ranker": "bm25", "label": "BM25", "MRR": 0.5, "interval": [0.4, 0.6]}
    assert found == [
        kept | {"set": "syn", "split": "test"},
        kept | {"set": "restbench", "split": "test"},
    ]
    # Judged on other queries of that name.
    write_json(path, {"rows": judged, "sets": [{"set": "restbench", "content": "another"}]})
    assert ask(ctx, shown)["baselines"] == found[:1]
    assert len(trained) == TRAINED


def test_one_of_the_seeds_is_the_runs_own(tmp_path: Path, trained: Trainings) -> None:
    content = ask(make_run(tmp_path, "seed=5"), seeds=2, only=["no_mask"])
    assert content["seeds"] == [5, 6] and not any("One seed" in note for note in content["notes"])
    assert [(a.arm, a.seed) for a in trained] == [
        ("siamese-0", 5), ("no_mask-0", 5), ("siamese-1", 6), ("no_mask-1", 6),
    ]  # fmt: skip
    by_arm = {r["arm"]: r for r in content["rows"] if (r["set"], r["split"]) == ("syn", "val")}
    assert len(by_arm[UNTRAINED]["by_seed"]) == 1, "there is nothing to draw"
    assert len(by_arm[CHOSEN]["by_seed"]) == len(by_arm[EXPANDED]["by_seed"]) == 2


# What is kept


def shards_of(ctx: RunContext) -> dict[str, int]:
    folder = ctx.paths.raw / "encoder_ablation"
    return {p.name: (p / "_shard.json").stat().st_mtime_ns for p in folder.iterdir()}


def test_a_further_set_is_judged_without_training(tmp_path: Path, trained: Trainings) -> None:
    ctx = make_run(tmp_path)
    first = ask(ctx, a_set("one"))
    assert len(trained) == TRAINED
    before = shards_of(ctx)
    both = ask(ctx, a_set("one"), a_set("two/three"))
    assert len(trained) == TRAINED, "nothing is trained for it"
    after = shards_of(ctx)
    assert {name: after[name] for name in before} == before
    assert len(after) - len(before) == TRAINED + 1, "one shard for each arm's encoder"
    assert [r for r in both["rows"] if r["set"] != "two/three"] == first["rows"]
    # The same as asking for both at once.
    other = make_run(tmp_path / "other")
    assert without_times(ask(other, a_set("one"), a_set("two/three"))) == without_times(both)
    # Another content of the same name is judged anew, and it alone.
    ask(ctx, a_set("one", queries=2), a_set("two/three"))
    changed = {name for name, when in shards_of(ctx).items() if when != after[name]}
    assert changed == {name for name in after if name.endswith("+one")}
    assert len(trained) == 2 * TRAINED
    assert ask(ctx)["sets"] == [] and len(trained) == 2 * TRAINED


def test_further_seeds_and_models_train_what_is_new_alone(tmp_path: Path, trained: Trainings) -> None:
    ctx = make_run(tmp_path)
    ask(ctx)
    content = ask(ctx, seeds=3, other_seeds=1)
    assert trained.arms[TRAINED:] == ["siamese-1", "siamese-2"]
    by_arm = {r["arm"]: len(r["by_seed"]) for r in content["rows"]}
    assert by_arm[CHOSEN] == by_arm[EXPANDED] == 3 and by_arm["no_mask"] == by_arm[UNTRAINED] == 1
    del trained[:]
    content = ask(ctx, seeds=3, other_seeds=1, encoders=["someone/bge"])
    assert trained.arms == ["siamese_bge-0"]
    assert [a["arm"] for a in content["arms"]][-2:] == ["untrained_bge", "siamese_bge"]
    assert {a["arm"]: a["encoder"] for a in content["arms"]}["siamese_bge"] == "someone/bge"


def test_asking_for_fewer_arms_forgets_no_training(tmp_path: Path, trained: Trainings) -> None:
    ctx = make_run(tmp_path)
    whole = ask(ctx, seeds=2)
    del trained[:]
    fewer = ask(ctx, only=["symmetric"])
    assert [a["arm"] for a in fewer["arms"]] == ["untrained", "siamese", "expanded", "symmetric"]
    assert [a["arm"] for a in ask(ctx, only=[EXPANDED])["arms"]] == ["untrained", "siamese", "expanded"]
    assert ask(ctx, seeds=2) == whole and trained == []


@pytest.mark.parametrize(
    ("override", "again"),
    [
        ("train.siamese.learning_rate=1e-4", {a for a in ARMS if a not in (UNTRAINED, EXPANDED, "rated")}),
        ("train.learning_rate=1e-4", {"rated"}),
        ("train.siamese.expansion_weight=0.7", set()),
        ("train.checkpoint_every=3", set()),
        ("evaluate.depth=12", set()),
        ("limit=20", {a for a in ARMS if a not in (UNTRAINED, EXPANDED)}),
    ],
)
def test_a_setting_trains_the_arms_that_read_it(
    tmp_path: Path, trained: Trainings, override: str, again: set[str]
) -> None:
    ask(make_run(tmp_path))
    del trained[:]
    ask(RunContext.create(fixture_settings(tmp_path, override), Progress(quiet=True)))
    assert {arm.removesuffix("-0") for arm in trained.arms} == again


def test_judgements_of_real_requests_are_no_reason_to_train(tmp_path: Path, trained: Trainings) -> None:
    ctx = make_run(tmp_path)
    first = ask(ctx, a_set("one"))
    before = shards_of(ctx)
    path = ctx.paths.core / "real_qrels.parquet"
    write_table(path, read_table(path).to_dicts()[1:], QrelRow)
    again = ask(ctx, a_set("one"))
    assert len(trained) == TRAINED and again["rows"] != first["rows"]
    kept = {name for name, when in shards_of(ctx).items() if when == before[name]}
    assert kept == {name for name in before if name.endswith("+one")}


def test_weights_may_be_removed_when_no_further_set_is_judged(tmp_path: Path, trained: Trainings) -> None:
    ctx = make_run(tmp_path)
    first = ask(ctx, only=["no_mask"])
    shutil.rmtree(ctx.paths.raw / "encoder_trainings")
    assert ask(ctx, only=["no_mask"]) == first and len(trained) == 2
    assert EncoderAblation(only=["no_mask"]).estimate(ctx)["trainings"] == 0
    assert EncoderAblation([a_set("one")], only=["no_mask"]).estimate(ctx)["trainings"] == 2
    ask(ctx, a_set("one"), only=["no_mask"])
    assert trained.arms == ["siamese-0", "no_mask-0"] * 2


def test_damaged_weights_are_trained_again_when_they_are_needed(tmp_path: Path, trained: Trainings) -> None:
    ctx = make_run(tmp_path)
    first = ask(ctx, only=["no_mask"])
    (ctx.paths.raw / "encoder_trainings" / "no_mask-0" / "model" / "weights").write_text("damaged")
    assert ask(ctx, only=["no_mask"]) == first and len(trained) == 2
    ask(ctx, a_set("one"), only=["no_mask"])
    assert trained.arms[2:] == ["no_mask-0"]


def test_forced_arms_are_trained_anew_and_others_stay(tmp_path: Path, trained: Trainings) -> None:
    ctx = make_run(tmp_path)
    ask(ctx)
    del trained[:]
    stage = EncoderAblation(only=["no_mask"])
    stage.prepare(ctx, anew=True)
    execute(stage, ctx, force=True)
    assert trained.arms == ["siamese-0", "no_mask-0"]
    ask(ctx)
    assert len(trained) == 2


# Stopped on the way


def test_finished_arms_are_kept(tmp_path: Path, trained: Trainings) -> None:
    ctx = make_run(tmp_path)
    trained.stop_after = 3
    with pytest.raises(KeyboardInterrupt):
        ask(ctx, a_set("one"))
    assert not (ctx.paths.out / "results" / "encoder_ablation.json").exists()
    folders = sorted(p.name for p in (ctx.paths.raw / "encoder_trainings").iterdir())
    assert folders == ["no_hard_negatives-0", "other_pooling-0", "siamese-0"], "nothing half done"
    planned = EncoderAblation([a_set("one")]).estimate(ctx)
    assert planned["trainings"] == TRAINED - 3
    trained.stop_after = None
    unbroken = make_run(tmp_path / "other")
    assert without_times(ask(ctx, a_set("one"))) == without_times(ask(unbroken, a_set("one")))
    assert len(trained) == 2 * TRAINED
    again = ask(ctx, a_set("one"))
    assert len(trained) == 2 * TRAINED and again == ask(ctx, a_set("one")), "up to date"


REAL = [
    "train.query_encoder=tiny", "train.tool_encoder=tiny", "train.siamese.encoder=tiny",
    "train.max_length=16", "train.siamese.max_length=16", "train.cpu_bfloat16=false",
]  # fmt: skip


FEW = ["other_pooling", "no_mask", "two_towers"]


def real_run(outputs: Path, tiny: Path) -> RunContext:
    return make_run(outputs, f'models.local={{tiny = "{tiny}"}}', *REAL)


KILLED = """
import os, signal, sys
from pathlib import Path
from ecoagent.evaluation import encoder_trainings
from ecoagent.runs import Progress, RunContext
from tests.unit.fixture_run import fixture_settings
from tests.unit.test_encoder_ablation import FEW, REAL, a_set, ask
train, done = encoder_trainings.train_two_tower, []
def killed(rows, settings, *, on_step, **asked):
    def step(loss):
        if len(done) == 2:
            os.kill(os.getpid(), signal.SIGKILL)
        on_step(loss)
    result = train(rows, settings, on_step=step, **asked)
    done.append(result)
    return result
encoder_trainings.train_two_tower = killed
settings = fixture_settings(Path(sys.argv[1]), f'models.local={{tiny = "{sys.argv[2]}"}}', *REAL)
ask(RunContext.create(settings, Progress(quiet=True)), a_set("one"), only=FEW, limit=12)
"""


def test_killed_in_a_training_it_goes_on_to_the_same_table(tmp_path: Path) -> None:
    """With real trainings of a tiny model: SIGKILL in the third, everything before it is kept."""
    tiny = write_tiny_bert(tmp_path / "tiny")
    ctx = real_run(tmp_path / "killed", tiny)
    found = subprocess.run(
        [sys.executable, "-c", KILLED, str(tmp_path / "killed"), str(tiny)],
        cwd=Path(__file__).parents[2],
        env={**os.environ, "OMP_NUM_THREADS": str(torch.get_num_threads())},
        capture_output=True,
        check=False,
    )
    assert found.returncode == -signal.SIGKILL, found.stderr.decode()[-2000:]
    store = ctx.paths.raw / "encoder_trainings"
    whole = {p.name: p.stat().st_ino for p in store.iterdir() if not p.name.startswith(".tmp-")}
    assert set(whole) == {"siamese-0", "other_pooling-0"}
    assert [p.name for p in store.glob(".tmp-no_mask-0*")], "the third was at work"
    content = ask(ctx, a_set("one"), only=FEW, limit=12)
    assert {name: (store / name).stat().st_ino for name in whole} == whole
    assert not list(ctx.paths.raw.rglob(".tmp-*"))
    unbroken = real_run(tmp_path / "unbroken", tiny)
    assert without_times(content) == without_times(ask(unbroken, a_set("one"), only=FEW, limit=12))
    assert {a["pairs"] for a in content["arms"][1:]} == {12}
    size = {a["arm"]: a["parameters"] for a in content["arms"]}
    assert size["two_towers"] == 2 * size["siamese"] == 2 * size["untrained"]
    for name in ("siamese-0", "no_mask-0", "two_towers-0"):
        one, two = (c.paths.raw / "encoder_trainings" / name / "model" for c in (ctx, unbroken))
        files = sorted(p.relative_to(one) for p in one.rglob("*") if p.is_file())
        assert files and all((one / f).read_bytes() == (two / f).read_bytes() for f in files)


# What a training is given


def test_a_training_that_may_stop_early_is_validated(tmp_path: Path, trained: Trainings) -> None:
    stops = ["train.validate_every=0.5", "train.early_stopping=MRR"]
    ctx = make_run(tmp_path, *stops)
    ask(ctx, only=["rated"])
    assert [a.validated for a in trained] == [True, True]
    assert not validation_of(load_core(ctx.paths.core), ctx.settings.train).empty
    del trained[:]
    ask(make_run(tmp_path / "plain", stops[0]), only=["rated"])
    assert [a.validated for a in trained] == [False, False], "it would change no weight"


def test_teacher_scores_reach_every_arm(tmp_path: Path, trained: Trainings) -> None:
    ctx = make_run(tmp_path / "run")
    pairs = read_table(ctx.paths.core / "syn_pairs.parquet").to_dicts()
    path = tmp_path / "scores.jsonl"

    def write(score: float) -> None:
        rows = ({"query_id": p["query_id"], "tool_id": p["tool_id"], "score": score} for p in pairs)
        path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")

    write(1.0)
    asked = [f'train.teacher_scores="{path}"', "train.distill_weight=1.0"]
    ctx = RunContext.create(fixture_settings(tmp_path / "run", *asked), Progress(quiet=True))
    ask(ctx, only=["rated"])
    assert [a.teachers for a in trained] == [a.pairs for a in trained] != [0, 0]
    ask(ctx, only=["rated"])
    assert len(trained) == 2
    write(2.0)
    ask(ctx, only=["rated"])
    assert len(trained) == 4, "other scores are another training"


def test_limits_cap_the_pairs(tmp_path: Path, trained: Trainings) -> None:
    content = ask(make_run(tmp_path), only=["rated"], limit=12)
    assert {a.pairs for a in trained} == {12} and any("capped at 12" in n for n in content["notes"])
    del trained[:]
    content = ask(make_run(tmp_path / "own", "limit=7"), only=["rated"])
    assert {a.pairs for a in trained} == {7} and any("capped at 7" in n for n in content["notes"])


def test_a_set_may_not_bear_the_name_of_a_set_of_the_build() -> None:
    for name in ("syn", "real"):
        with pytest.raises(UserError, match=f"a collection is called {name!r}"):
            EncoderAblation([a_set(name)])


# The command


def call(ctx: RunContext, *words: str) -> Result:
    outputs = f'outputs="{ctx.settings.outputs}"'
    return CliRunner().invoke(ablate_app, ["encoder", "--run", ctx.paths.root.name, "--set", outputs, *words])


def test_command_plans_measures_and_adds_a_set(tmp_path: Path, trained: Trainings) -> None:
    ctx = make_run(tmp_path / "outputs")
    planned = call(ctx, "--seeds", "2", "--other-seeds", "1", "--dry-run", "--json")
    assert planned.exit_code == 0, planned.output
    facts = json.loads(planned.stdout)["encoder ablation"]
    assert facts["trainings"] == TRAINED + 1 and facts["minutes on 2 cores"] > 0
    [size] = [s.size_mb for s in ModelStore(ctx.settings.models).status() if s.name == "all-MiniLM-L6-v2"]
    assert facts["MB of weights"] == round((size or 0) * (TRAINED + 1 + 2)), "two arms have two towers"
    assert trained == [] and not (ctx.paths.raw / "encoder_ablation").exists()
    assert call(ctx, "--dry-run").exit_code == 0
    done = call(ctx, "--limit", "40", "--json")
    assert done.exit_code == 0 and json.loads(done.stdout)["chosen"] == CHOSEN
    # The limit is not left behind as the run's own.
    assert read_json(ctx.paths.manifest)["settings"]["limit"] is None
    sets = write_set(tmp_path / "sets", "restbench")
    shown = call(ctx, "--limit", "40", "--benchmark", f"{sets}/restbench", "--queries", "2")
    assert shown.exit_code == 0 and len(trained) == TRAINED, shown.output
    assert "restbench" in shown.stdout and "against siamese" in shown.stdout
    written = read_json(ctx.paths.out / "results" / "encoder_ablation.json")
    assert {r["queries"] for r in written["rows"] if r["set"] == "restbench"} == {2}
    forced = call(ctx, "--limit", "40", "--arm", "no_mask", "--force")
    assert forced.exit_code == 0 and len(trained) == TRAINED + 2


def test_command_names_what_it_does_not_know(tmp_path: Path, trained: Trainings) -> None:
    ctx = make_run(tmp_path)
    wrong = call(ctx, "--arm", "no_maks")
    assert wrong.exit_code == 2 and "--arm 'no_maks' is not known" in wrong.output
    assert "did you mean 'no_mask'" in wrong.output
    assert "did you mean 'expanded'" in call(ctx, "--arm", "expandd").output
    assert call(ctx, "--arm", "expanded", "--dry-run").exit_code == 0
    assert call(ctx, "--arm", "siamese_bge", "--dry-run").exit_code == 2
    assert call(ctx, "--arm", "siamese_bge", "--model", "someone/bge", "--dry-run").exit_code == 0
    wrong = call(ctx, "--collection", "one")
    assert wrong.exit_code == 2 and "give --benchmark DIR" in wrong.output
    wrong = call(ctx, "--model", "all-MiniLM-L6-v2")
    assert wrong.exit_code == 2 and "one model twice" in wrong.output
    wrong = call(ctx, "--benchmark", str(tmp_path / "nowhere"))
    assert wrong.exit_code == 2 and "nowhere" in wrong.output
    assert call(RunContext.create(fixture_settings(tmp_path, run="absent"))).exit_code == 2
    assert trained == []


def test_a_model_that_is_in_no_table_is_named(tmp_path: Path) -> None:
    wrong = call(make_run(tmp_path), "--model", "all-MiniLM-L9-v2", "--dry-run")
    assert wrong.exit_code == 2 and "all-MiniLM-L9-v2" in wrong.output
