"""Calibration turns raw scores into probabilities that hold, and proposes thresholds by the data."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest
from sklearn.metrics import roc_auc_score
from typer.testing import CliRunner

from ecoagent.cli.app import app
from ecoagent.labeling import calibration_run, find_calibration, load_calibrations, load_requests
from ecoagent.labeling.calibrate import (
    Calibration,
    LabelledPair,
    auc,
    fit_calibration,
    propose_cosine,
    propose_threshold,
)
from ecoagent.labeling.calibration_run import calibrate_verifier, write_calibrations
from ecoagent.labeling.verify import Form
from ecoagent.llm import StoredEngine
from ecoagent.llm.store import ResponseStore
from ecoagent.runs import RunContext, digest, file_lock, write_table
from ecoagent.schema import ScoredTool
from ecoagent.settings import UserError, load_settings
from tests.unit.llm_scripted import ScriptedEngine
from tests.unit.test_label_stage import WORDS, OverlapEncoder, tool


def simulated(seed: int = 0, queries: int = 120, bias: float = 2.0) -> list[LabelledPair]:
    """Pairs of a verifier that is good but says yes too readily."""
    rng = random.Random(seed)
    pairs = []
    for q in range(queries):
        for t in range(5):
            right = rng.random() < 0.25
            odds = rng.gauss(1.5 if right else -1.5, 1.2) + bias
            raw = 1 / (1 + 2.718281828 ** (-2 * odds))
            cosine = min(1.0, max(0.0, rng.gauss(0.45 if right else 0.3, 0.1)))
            pairs.append(LabelledPair(f"q{q:03d}", f"t{t}", right, round(raw, 6), round(cosine, 6)))
    pairs.append(LabelledPair("q000", "t9", True, 0.5, 0.0, candidate=False))
    return pairs


def fitted(pairs: list[LabelledPair]) -> Calibration:
    return fit_calibration(
        pairs,
        model="m",
        form="yes_no",
        encoder="e",
        requests="r",
        requests_digest="0",
        auc_by_form={"yes_no": 0.9},
        form_pairs=10,
        min_cosine=-1.0,
    )


def test_auc_equals_the_library_with_ties() -> None:
    rng = random.Random(3)
    labels = [rng.random() < 0.4 for _ in range(200)]
    scores = [round(rng.random() + 0.3 * label, 1) for label in labels]
    assert auc(labels, scores) == pytest.approx(roc_auc_score(labels, scores), abs=5e-5)
    with pytest.raises(UserError, match="both are needed"):
        auc([True, True], [0.1, 0.2])


def test_probabilities_are_calibrated_on_fresh_pairs() -> None:
    found = fitted(simulated(0))
    assert found.pairs == 600
    assert found.auc > 0.9
    assert found.log_loss[found.method] == min(found.log_loss.values())
    fresh = simulated(1)
    bands: dict[int, list[tuple[float, bool]]] = {}
    for pair in fresh:
        p = found.probability(pair.raw)
        assert 0 <= p <= 1
        bands.setdefault(min(int(p * 4), 3), []).append((p, pair.right))
    for band in bands.values():
        if len(band) >= 60:
            mean = sum(p for p, _ in band) / len(band)
            assert sum(r for _, r in band) / len(band) == pytest.approx(mean, abs=0.12)
    # A raw score of 0.85 of a verifier biased to yes is far from certain.
    assert found.probability(0.85) < 0.5


def test_probability_never_falls_as_the_raw_score_rises() -> None:
    found = fitted(simulated(2))
    steps = [found.probability(i / 200) for i in range(201)]
    assert steps == sorted(steps)
    isotonic = found.model_copy(update={"method": "isotonic", "knots_x": [0.2, 0.8], "knots_y": [0.1, 0.9]})
    assert [isotonic.probability(x) for x in (0.0, 0.5, 1.0)] == [0.1, 0.5, 0.9]


def test_fit_does_not_depend_on_the_order_of_pairs() -> None:
    pairs = simulated(4)
    assert fitted(pairs) == fitted(list(reversed(pairs)))


def test_proposed_cosine_keeps_its_share() -> None:
    right = [0.30 + i / 100 for i in range(20)]
    assert propose_cosine(right, keeps=0.95) == 0.31
    assert propose_cosine(right, keeps=1.0) == 0.30
    with pytest.raises(UserError, match="no right pair"):
        propose_cosine([])


def test_proposed_threshold_prefers_precision_then_recall() -> None:
    right = [True] * 8 + [False] * 2 + [True] * 2 + [False] * 8
    scores = [0.9] * 8 + [0.9] * 2 + [0.4] * 2 + [0.4] * 8
    cut, precision, recall = propose_threshold(right, scores, 0.8)
    assert (cut, precision, recall) == (0.45, 0.8, 0.8)
    # Out of reach: the best F1.
    assert propose_threshold(right, scores, 0.95)[0] == 0.45
    with pytest.raises(UserError, match="too few pairs"):
        propose_threshold([True], [0.9], 0.8)


def test_files_round_trip_and_errors_name_the_remedy(tmp_path: Path) -> None:
    found = fitted(simulated(5))
    path = write_calibrations(tmp_path / "c.json", [found])
    assert load_calibrations(path) == [found]
    assert find_calibration("m", "e", "yes_no", path) == found
    assert find_calibration("m", "e", "score", path) is None
    changed = found.model_copy(update={"prompt_sha256": "other"})
    write_calibrations(path, [changed])
    assert find_calibration("m", "e", "yes_no", path) is None
    path.write_text('{"calibrations": [{"model": "m"}]}')
    with pytest.raises(UserError, match="no calibration file"):
        load_calibrations(path)
    with pytest.raises(UserError, match="does not exist"):
        load_calibrations(tmp_path / "absent.json")


@pytest.mark.parametrize("profile", ["local", "smoke"])
def test_shipped_profiles_have_a_calibration_for_the_present_prompt(profile: str) -> None:
    settings = load_settings(profile)
    labeling = settings.labeling
    assert labeling.verifier_score == "calibrated"
    found = find_calibration(settings.llm.model, labeling.encoder, labeling.verifier_form)
    assert found is not None, "the prompt or a model changed: measure again"
    fold = [r.model_dump(mode="json") for r in load_requests().requests if r.fold == "calibration"]
    assert found.requests_digest == digest(fold), "the calibration fold changed: measure again"
    assert found.auc > 0.7
    assert found.auc_by_form[labeling.verifier_form] == max(found.auc_by_form.values())


def test_temperature_is_chosen_where_a_bias_would_fit_noise() -> None:
    # An unbiased verifier that is three times too sure: log-odds / 3 is the truth.
    rng = random.Random(9)
    pairs = []
    for n in range(1500):
        odds = rng.gauss(0, 1.0)
        right = rng.random() < 1 / (1 + 2.718281828 ** (-odds))
        raw = 1 / (1 + 2.718281828 ** (-3 * odds))
        pairs.append(LabelledPair(f"q{n // 5:03d}", f"t{n % 5}", right, round(raw, 6), 0.5))
    found = fitted(pairs)
    assert set(found.log_loss) == {"temperature", "platt", "isotonic"}
    scaled = fitted(pairs).model_copy(update={"method": "temperature", "intercept": None, "slope": 1 / 3})
    assert scaled.probability(0.5) == 0.5
    assert scaled.probability(0.95) == pytest.approx(1 / (1 + (0.05 / 0.95) ** (1 / 3)), abs=1e-6)
    assert found.log_loss["temperature"] <= found.log_loss["isotonic"]
    assert found.method == min(found.log_loss, key=lambda m: found.log_loss[m])
    if found.method == "temperature":
        assert found.intercept is None and found.slope == pytest.approx(1 / 3, abs=0.05)
    # A verifier that is biased to yes needs the bias.
    assert fitted(simulated(0)).method != "temperature"


def test_shipped_calibrations_from_before_the_third_map_still_load() -> None:
    for entry in load_calibrations():
        assert entry.lexical_top_k == 0 or "temperature" in entry.log_loss
        assert 0 <= entry.probability(0.5) <= 1


def test_pooled_pairs_are_fitted_whatever_their_cosine() -> None:
    pairs = simulated(6)
    low = [LabelledPair(f"q{n:03d}", "t7", False, 0.4, 0.01, pooled=n % 2 == 0) for n in range(20)]
    common = {"model": "m", "form": "yes_no", "encoder": "e", "requests": "r", "requests_digest": "0"}
    made = fit_calibration(
        [*pairs, *low],
        **common,  # type: ignore[arg-type]
        auc_by_form={"yes_no": 0.9},
        form_pairs=10,
        min_cosine=0.02,
        lexical_top_k=3,
    )
    assert made.lexical_top_k == 3
    at_cosine = sum(p.candidate and p.cosine >= 0.02 for p in pairs)
    assert made.pairs == at_cosine + 10


def noted_requests(tmp_path: Path) -> Path:
    rows = [
        {
            "id": f"c{n:02d}",
            "text": f"{word} or {WORDS[(n + 1) % len(WORDS)]} about number {n} {n}x {n}y {n}z",
            "gold": [f"crewai:{word.title()}"],
            "fold": "calibration",
        }
        for n, word in enumerate(WORDS * 4)
    ]
    path = tmp_path / "requests.jsonl"
    path.write_text("".join(json.dumps(r) + "\n" for r in rows))
    return path


def test_form_is_chosen_by_auc_over_all_pairs_and_pooling_adds_candidates(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A scripted stand-in whose written scores are right and whose grades cannot be read."""

    def script(prompt: str) -> str | None:
        name = prompt.split("Tool:")[-1].split()[0]
        first = prompt.rsplit("Request:", 1)[1].split()[0]
        if "How well" not in prompt:
            return "hm"
        return '{"score": 0.9}' if name == first else '{"score": 0.1}'

    bare = ScriptedEngine(script)
    engine = StoredEngine("scripted", lambda: bare, ResponseStore(tmp_path / "responses.sqlite"))
    monkeypatch.setattr(calibration_run, "open_engine", lambda settings, progress=None: engine)
    monkeypatch.setattr(calibration_run, "load_encoder", lambda *a, **k: OverlapEncoder())
    monkeypatch.setattr(calibration_run.ModelStore, "path", lambda self, name: tmp_path)
    tools = [tool(w, f"crewai:{w.title()}") for w in WORDS]

    def calibrated(pooled: int, *forms: Form) -> Calibration:
        settings = load_settings(
            "local",
            env={},
            overrides=[
                f'labeling.queries="{noted_requests(tmp_path)}"',
                "labeling.top_k=2",
                f"labeling.lexical_top_k={pooled}",
            ],
            outputs=tmp_path / "outputs",
        )
        return calibrate_verifier(settings, tools, forms=forms, form_requests=6)

    alone, more = calibrated(0, "score", "grade"), calibrated(3, "score", "grade")
    assert alone.form == "score" and alone.auc_by_form["score"] == 1.0
    assert alone.auc_by_form["grade"] == 0.5 and alone.unreadable_by_form["grade"] == alone.form_pairs
    assert alone.unreadable_by_form["score"] == 0
    assert (alone.lexical_top_k, more.lexical_top_k) == (0, 3)
    assert alone.pairs == 48 and more.pairs > alone.pairs
    assert alone.curve and sum(b["pairs"] for b in alone.curve) == alone.pairs
    with pytest.raises(UserError, match="no answer of Qwen"):
        calibrated(0, "grade")


@pytest.mark.parametrize(
    "content",
    [
        b"", b'{"calibrations": [{', b"\xff\xfe\x00", b"[" * 100_000, b"[]", b'{"calibrations": 3}',
    ],
)  # fmt: skip
def test_damaged_files_are_named(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "c.json"
    path.write_bytes(content)
    with pytest.raises(UserError, match=r"c\.json"):
        load_calibrations(path)


@pytest.mark.parametrize(
    "change",
    [
        {"slope": float("nan"), "method": "temperature"},
        {"slope": None, "method": "platt"},
        {"method": "isotonic", "knots_x": [], "knots_y": []},
        {"method": "isotonic", "knots_x": [0.1, 0.2], "knots_y": [0.5]},
        {"method": "isotonic", "knots_x": [0.2, 0.1], "knots_y": [0.4, 0.5]},
        {"threshold": float("inf")},
    ],
)
def test_maps_that_tell_nothing_are_refused(tmp_path: Path, change: dict[str, object]) -> None:
    path = tmp_path / "c.json"
    entry = load_calibrations()[0].model_dump(mode="json") | change
    path.write_text(json.dumps({"calibrations": [entry]}))
    with pytest.raises(UserError, match=r"c\.json is no calibration file: entry 1"):
        load_calibrations(path)


def measured_run(tmp_path: Path) -> list[str]:
    """Options of a run that has a catalog and requests."""
    chosen = [f'outputs="{tmp_path}"', f'labeling.queries="{noted_requests(tmp_path)}"']
    ctx = RunContext.create(load_settings("local", env={}, overrides=chosen))
    tools = [tool(w, f"crewai:{w.title()}") for w in WORDS]
    write_table(ctx.paths.core / "tools.parquet", sorted(tools, key=lambda t: t.id), ScoredTool)
    return ["--profile", "local", *(part for c in chosen for part in ("--set", c))]


def test_calibrate_tells_its_cost_and_looks_at_the_file_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def never(*a: object, **k: object) -> None:
        raise AssertionError("measured before the file was read")

    monkeypatch.setattr(calibration_run, "calibrate_verifier", never)
    options, target = measured_run(tmp_path), tmp_path / "c.json"
    run = CliRunner()
    done = run.invoke(app, ["label", "--calibrate", str(target), "--dry-run", "--json", *options])
    assert done.exit_code == 0, done.output
    planned = json.loads(done.stdout)
    keys = ("pairs_verified", "requests", "tokens_in", "minutes")
    assert all(planned[f"{key}_at_most"] > 0 for key in keys)
    assert not target.exists()
    target.write_text("{")
    done = run.invoke(app, ["label", "--calibrate", str(target), *options])
    assert done.exit_code == 2 and "no calibration file" in done.output
    target.unlink()
    with file_lock(target, tmp_path / "store"):
        done = run.invoke(app, ["label", "--calibrate", str(target), *options])
    assert done.exit_code == 2 and "being written" in done.output


@pytest.mark.parametrize(
    "arguments",
    [
        ("--propose-cosine", "--at-precision", "0.5", "--encoder", "nope"),
        ("--propose-cosine", "--like", "nope@0.5"),
        ("--evaluate-on", "noted", "--encoder", "nope@0.5", "--out", "x.json"),
        ("--set", 'labeling.encoder="nope"'),
        ("--calibrate", "c.json", "--set", 'labeling.encoder="nope"'),
    ],
)
def test_unknown_encoders_are_named_first(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    options = ["--profile", "local", "--set", f'outputs="{tmp_path}"']
    done = CliRunner().invoke(app, ["label", *arguments, *options, "--dry-run"])
    assert done.exit_code == 2 and "'nope' is not known" in done.output, done.output
