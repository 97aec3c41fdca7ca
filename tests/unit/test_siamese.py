"""The siamese encoder: one model for both sides, its training and precision, its row of the offline table."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from ecoagent.evaluation.gpu_check import made_up, random_encoder
from ecoagent.models import ModelStore
from ecoagent.retrieval import (
    EXPANSION,
    RANKERS,
    NotAvailable,
    RankerResources,
    SentenceEncoder,
    TextSet,
    TrainingResult,
    build_siamese,
    build_towers,
    expansion_of,
    find_ranker,
    load_encoder,
    load_two_tower,
    rank_dense,
    save_expansion,
    save_two_tower,
    train_two_tower,
    training,
)
from ecoagent.retrieval.checkpoints import training_key
from ecoagent.retrieval.losses import InfoNCELoss
from ecoagent.runs import sha256_file
from ecoagent.settings import BaselineSettings, ModelSettings, SiameseSettings, TrainSettings, UserError

ROWS, VALIDATION = made_up(tools=8, words=6)
ROWS = [replace(row, negatives=row.negatives if n % 3 else ()) for n, row in enumerate(ROWS)]
TEXTS = [ROWS[0].tool, ROWS[0].query, ROWS[7].query, "a"]
PREFIXES = {"query_prefix": "ask: ", "tool_prefix": "tool: "}
SETTINGS = TrainSettings(
    towers="one",
    query_encoder="tiny",
    tool_encoder="tiny",
    pooling="mean",
    batch_size=5,
    max_length=16,
    learning_rate=1e-3,
    warmup_ratio=0.1,
)
"""24 rows in batches of 5: 5 steps."""
PAIR = SETTINGS.model_copy(update={"towers": "two"})


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    texts = [text for row in (*ROWS, *VALIDATION.rows) for text in (row.query, row.tool)]
    folder = tmp_path_factory.mktemp("weights") / "tiny"
    return random_encoder(folder, [*texts, "ask: tool: a"], layers=2, hidden=32, heads=2, dropout=0.1)


def train(tiny: Path, output: Path, settings: TrainSettings = SETTINGS, **more: Any) -> TrainingResult:
    asked = {"query_path": tiny, "tool_path": tiny, "output": output, "seed": 0, "device": "cpu", **more}
    return train_two_tower(ROWS, settings, **asked)


def digests(folder: Path) -> dict[str, str]:
    return {p.relative_to(folder).as_posix(): sha256_file(p) for p in folder.rglob("*") if p.is_file()}


@pytest.fixture(scope="module")
def plain(tiny: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[TrainingResult, Path]:
    output = tmp_path_factory.mktemp("plain") / "siamese"
    return train(tiny, output), output


# One model


def both_sides(encoder: SentenceEncoder) -> tuple[Any, Any]:
    return encoder.encode_queries(TEXTS), encoder.encode_documents(TEXTS)


def test_a_text_has_one_vector_on_both_sides_before_and_after_training(
    tiny: Path, plain: tuple[TrainingResult, Path]
) -> None:
    before = both_sides(SentenceEncoder(build_towers(SETTINGS, tiny, tiny, device="cpu"), name="x"))
    after = both_sides(load_two_tower(plain[1], device="cpu"))
    for queries, documents in (before, after):
        assert (queries == documents).all()
        assert np.abs(np.linalg.norm(queries, axis=1) - 1).max() < 1e-6
    assert np.abs(before[0] - after[0]).max() > 1e-3, "it has learnt something"


def test_two_towers_of_the_same_settings_do_not(tiny: Path, tmp_path: Path) -> None:
    train(tiny, tmp_path / "two", PAIR)
    queries, documents = both_sides(load_two_tower(tmp_path / "two", device="cpu"))
    assert np.abs(queries - documents).max() > 1e-3


def test_it_has_the_weights_of_one_model(tiny: Path) -> None:
    one, two = (build_towers(s, tiny, tiny, device="cpu") for s in (SETTINGS, PAIR))
    size = [sum(p.numel() for p in model.parameters()) for model in (one, two)]
    assert size[1] == 2 * size[0]
    alone = load_encoder(tiny, name="x", pooling="mean", max_length=16, device="cpu")
    found = SentenceEncoder(one, name="x").encode_queries(TEXTS)
    assert (found == alone.encode_queries(TEXTS)).all()


def test_the_second_folder_is_not_looked_at(tiny: Path, tmp_path: Path) -> None:
    model = build_towers(SETTINGS, tiny, tmp_path / "nowhere", device="cpu")
    assert len(TEXTS) == len(SentenceEncoder(model, name="x").encode_documents(TEXTS))
    with pytest.raises(UserError, match="holds no"):
        build_towers(PAIR, tiny, tmp_path / "nowhere", device="cpu")


def test_it_is_saved_and_reloaded_exactly_with_both_prefixes(tiny: Path, tmp_path: Path) -> None:
    model = build_siamese(tiny, pooling="cls", max_length=12, device="cpu", **PREFIXES)  # type: ignore[arg-type]
    save_two_tower(model, tmp_path / "saved")
    again = load_two_tower(tmp_path / "saved", device="cpu")
    assert again.model.prompts == {"query": "ask: ", "document": "tool: "}
    assert again.model.max_seq_length == 12
    for one, two in zip(both_sides(SentenceEncoder(model, name="x")), both_sides(again), strict=True):
        assert (one == two).all()
    bare = load_encoder(tiny, name="x", pooling="cls", max_length=12, device="cpu")
    queries, documents = both_sides(again)
    for text, query, document in zip(TEXTS, queries, documents, strict=True):
        expected = bare.encode_queries([f"ask: {text}", f"tool: {text}"])
        assert np.abs(expected - np.stack([query, document])).max() < 1e-6


def test_training_reads_both_prefixes_and_keeps_them(
    tiny: Path, plain: tuple[TrainingResult, Path], tmp_path: Path
) -> None:
    result = train(tiny, tmp_path / "out", SETTINGS.model_copy(update=PREFIXES))
    assert result.losses[0] != plain[0].losses[0]
    kept = load_two_tower(tmp_path / "out", device="cpu")
    assert kept.model.prompts == {"query": "ask: ", "document": "tool: "}
    assert np.abs(np.subtract(*both_sides(kept))).max() > 1e-3


def test_towers_of_two_models_cannot_be_one() -> None:
    with pytest.raises(ValueError, match=r"train\.query_encoder and train\.tool_encoder alike"):
        TrainSettings(towers="one")
    assert TrainSettings(towers="one", query_encoder="m", tool_encoder="m").towers == "one"


# Training


def test_two_trainings_with_one_seed_give_the_same_bytes(
    tiny: Path, plain: tuple[TrainingResult, Path], tmp_path: Path
) -> None:
    assert train(tiny, tmp_path / "again") == plain[0]
    assert digests(tmp_path / "again") == digests(plain[1])
    assert sum(name.endswith(".safetensors") for name in digests(plain[1])) == 1
    assert train(tiny, tmp_path / "other", seed=1) != plain[0]
    assert digests(tmp_path / "other") != digests(plain[1])


def test_it_learns(tiny: Path, tmp_path: Path) -> None:
    settings = SETTINGS.model_copy(update={"epochs": 6.0})
    train(tiny, tmp_path / "out", settings)
    before = SentenceEncoder(build_towers(settings, tiny, tiny, device="cpu"), name="x")
    found = [
        VALIDATION.measure(encoder, settings, 0)["MRR"] or 0.0
        for encoder in (before, load_two_tower(tmp_path / "out", device="cpu"))
    ]
    assert found[1] > found[0]


class BrokenOffError(Exception):
    """Ends a training where a kill would."""


def test_a_training_that_was_broken_off_ends_with_the_same_bytes(
    tiny: Path, plain: tuple[TrainingResult, Path], tmp_path: Path
) -> None:
    settings = SETTINGS.model_copy(update={"checkpoint_every": 2})
    steps: list[float] = []

    def stop(loss: float) -> None:
        steps.append(loss)
        if len(steps) == 3:
            raise BrokenOffError

    store = tmp_path / "checkpoints"
    with pytest.raises(BrokenOffError):
        train(tiny, tmp_path / "out", settings, checkpoints=store, on_step=stop)
    taken: list[float] = []
    # What another encoder is trained with is nothing to this one's checkpoint.
    other = settings.model_copy(update={"siamese": SiameseSettings(learning_rate=1e-6)})
    train(tiny, tmp_path / "out", other, checkpoints=store, on_step=taken.append)
    assert taken == plain[0].losses[2:] and digests(tmp_path / "out") == digests(plain[1])


def test_a_checkpoint_hangs_on_the_trainings_own_settings_alone(tiny: Path) -> None:
    def key(**changed: Any) -> str:
        return training_key(ROWS, SETTINGS.model_copy(update=changed), 0, None, (tiny, tiny), ["cpu"])

    assert key() == key(siamese=SiameseSettings(epochs=9)) == key(checkpoint_every=7)
    assert len({key(), key(towers="two"), key(cpu_bfloat16=True), key(epochs=9.0)}) == 4


def test_two_processes_train_it_as_one_does(tmp_path: Path) -> None:
    texts = [text for row in ROWS for text in (row.query, row.tool)]
    still = random_encoder(tmp_path / "still", texts, layers=2, hidden=32, heads=2, dropout=0.0)
    settings = SETTINGS.model_copy(update={"mask_false_negatives": True})
    one = train(still, tmp_path / "one", settings)
    two = train(still, tmp_path / "two", settings.model_copy(update={"processes": 2}))
    assert two.batch_sizes == one.batch_sizes and two.losses == pytest.approx(one.losses, abs=2e-4)
    found = [load_two_tower(tmp_path / n, device="cpu").encode_queries(TEXTS) for n in ("one", "two")]
    assert np.abs(found[0] - found[1]).max() < 1e-3


# Precision


@pytest.mark.parametrize(
    ("found", "multiplies"),
    [
        ({}, False),
        ({"avx512_f": True, "avx512_bf16": False, "amx_bf16": False}, False),
        ({"avx512_bf16": True}, True),
        ({"amx_bf16": True, "avx512_bf16": False}, True),
    ],
)
def test_bfloat16_is_for_cpus_that_multiply_it(
    monkeypatch: pytest.MonkeyPatch, found: dict[str, bool], multiplies: bool
) -> None:
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: found)
    assert training.multiplies_bfloat16() is multiplies
    asked = TrainSettings(cpu_bfloat16=True)
    assert training._precision(asked, False) == ("bfloat16" if multiplies else "float32")
    assert training._precision(TrainSettings(), False) == "float32"


@pytest.mark.parametrize(
    ("mixed", "there", "expected"),
    [(True, True, "bfloat16"), (True, False, "float16"), (False, True, "float32")],
)
def test_a_gpu_has_its_own_setting(
    monkeypatch: pytest.MonkeyPatch, mixed: bool, there: bool, expected: str
) -> None:
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda: there)
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: pytest.fail("it is about the GPU"))
    for on_cpu in (True, False):
        settings = TrainSettings(mixed_precision=mixed, cpu_bfloat16=on_cpu)
        assert training._precision(settings, True) == expected


def test_without_bfloat16_it_is_trained_in_float32_and_says_so(
    tiny: Path, plain: tuple[TrainingResult, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = SETTINGS.model_copy(update={"cpu_bfloat16": True})
    monkeypatch.setattr(training, "multiplies_bfloat16", lambda: False)
    assert train(tiny, tmp_path / "falls-back", asked) == plain[0] and plain[0].precision == "float32"
    assert digests(tmp_path / "falls-back") == digests(plain[1])
    monkeypatch.setattr(training, "multiplies_bfloat16", lambda: True)
    half = train(tiny, tmp_path / "half", asked)
    assert half.precision == "bfloat16" and half.losses != plain[0].losses
    assert half.losses == pytest.approx(plain[0].losses, rel=0.2, abs=0.2)
    kept = load_two_tower(tmp_path / "half", device="cpu")
    assert {p.dtype for p in kept.model.parameters()} == {torch.float32}
    assert train(tiny, tmp_path / "half-again", asked) == half
    assert digests(tmp_path / "half-again") == digests(tmp_path / "half")


@pytest.mark.parametrize("settings", [SETTINGS, PAIR], ids=["one", "two"])
def test_mixed_precision_is_validated_as_the_saved_weights_are(
    tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, settings: TrainSettings
) -> None:
    monkeypatch.setattr(training, "multiplies_bfloat16", lambda: True)
    asked = settings.model_copy(update={"cpu_bfloat16": True, "validate_every": 2.0})
    result = train(tiny, tmp_path / "out", asked, validation=VALIDATION)
    assert result.precision == "bfloat16" and [v["step"] for v in result.validations] == [0, 2, 4, 5]
    before = SentenceEncoder(build_towers(settings, tiny, tiny, device="cpu"), name="x")
    after = load_two_tower(tmp_path / "out", device="cpu")
    for measured, encoder in ((result.validations[0], before), (result.validations[-1], after)):
        assert {"step": measured["step"], **VALIDATION.measure(encoder, settings, 0)} == measured
    # And the training goes on in mixed precision: validated or not, the same bytes.
    train(tiny, tmp_path / "unwatched", asked.model_copy(update={"validate_every": None}))
    assert digests(tmp_path / "unwatched") == digests(tmp_path / "out")


class Lookup(torch.nn.Module):
    """A model that reads its vectors from its input."""

    def forward(self, features: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        return {"sentence_embedding": features["v"]}


LOSSES: list[dict[str, Any]] = [
    {},
    {"mask_false_negatives": True},
    {"symmetric_weight": 1.0},
    {"distill_weight": 0.5, "mask_false_negatives": True},
]


def loss_of(columns: list[torch.Tensor], half: bool, **options: Any) -> torch.Tensor:
    rows = [replace(row, negatives=(ROWS[9].tool,), teacher=(2.0, 1.0)) for row in ROWS[:6]]
    loss = InfoNCELoss(Lookup(), rows, TrainSettings(**options))
    with torch.autocast("cpu", torch.bfloat16, enabled=half):
        found: torch.Tensor = loss([{"v": column} for column in columns], torch.arange(6))
    return found


@pytest.mark.parametrize("options", LOSSES, ids=lambda o: "+".join(o) or "plain")
def test_the_loss_is_taken_in_single_precision_under_autocast(options: dict[str, Any]) -> None:
    drawn = torch.randn(3, 6, 32, generator=torch.Generator().manual_seed(3))
    columns = [column.requires_grad_() for column in drawn]
    single, mixed = (loss_of(columns, half, **options) for half in (False, True))
    assert single.dtype == mixed.dtype == torch.float32
    assert mixed.item() == pytest.approx(single.item(), abs=1e-6)
    gradients = [torch.autograd.grad(value, columns) for value in (single, mixed)]
    for one, two in zip(*gradients, strict=True):
        assert torch.allclose(one, two, atol=1e-7)
    # The very product that it is about is off in half precision.
    with torch.autocast("cpu", torch.bfloat16):
        assert float((drawn[0] @ drawn[1].T - (drawn[0].double() @ drawn[1].double().T)).abs().max()) > 1e-3


@pytest.mark.parametrize("options", LOSSES, ids=lambda o: "+".join(o) or "plain")
def test_vectors_in_half_precision_give_the_loss_of_the_same_numbers(options: dict[str, Any]) -> None:
    drawn = torch.randn(3, 6, 32, generator=torch.Generator().manual_seed(4)).bfloat16()
    found = loss_of([*drawn], True, **options)
    assert found.dtype == torch.float32
    assert float(found) == pytest.approx(float(loss_of([*drawn.float()], False, **options)), abs=1e-6)


# The row


QUERIES = TextSet(("q:1", "q:2"), (ROWS[0].query, ROWS[5].query))


def resources(folder: Path | None, **siamese: Any) -> RankerResources:
    def path(name: str) -> Path:
        raise UserError(f"{name} is not asked for")

    return RankerResources(TrainSettings(siamese=SiameseSettings(**siamese)), path, siamese=folder)


def test_its_row_ranks_by_the_trained_encoder(plain: tuple[TrainingResult, Path]) -> None:
    ranker = RANKERS["siamese"]
    run = ranker.rank(resources(plain[1]), QUERIES, VALIDATION.tools, 5, None)
    assert run == rank_dense(load_two_tower(plain[1]), QUERIES, VALIDATION.tools, 5, name="siamese")
    assert ranker.trained and ranker.dense and not ranker.own and ranker.role == ""


def test_its_row_says_what_ran() -> None:
    ranker, paper = RANKERS["siamese"], TrainSettings()
    assert ranker.label(paper) == "Siamese encoder (all-MiniLM-L6-v2, trained)"
    assert ranker.model(paper) == "all-MiniLM-L6-v2" and ranker.licence(paper) == "Apache-2.0"
    other = TrainSettings(siamese=SiameseSettings(encoder="BAAI/bge-m3", expansion_weight=0.5))
    assert ranker.label(other) == "Siamese encoder (bge-m3, trained, training queries in tool vectors)"
    assert ranker.models(other) == ("BAAI/bge-m3",)


def test_untrained_it_is_a_row_that_was_not_run(plain: tuple[TrainingResult, Path]) -> None:
    with pytest.raises(NotAvailable, match=r"has not been trained.*ecoagent train"):
        RANKERS["siamese"].rank(resources(None), QUERIES, VALIDATION.tools, 3, None)
    with pytest.raises(NotAvailable, match=r"without train\.siamese\.expansion_weight.*ecoagent train"):
        RANKERS["siamese"].rank(resources(plain[1], expansion_weight=0.5), QUERIES, VALIDATION.tools, 3, None)


def test_weights_that_cannot_be_had_are_told_beforehand(tmp_path: Path) -> None:
    def fault(encoder: str, pull: str, **local: Path) -> str | None:
        settings = TrainSettings(siamese=SiameseSettings(encoder=encoder))
        store = ModelStore(ModelSettings(dir=tmp_path, local=local))
        return find_ranker("siamese").fault(settings, BaselineSettings.model_validate({"pull": pull}), store)

    assert fault("all-MiniLM-L6-v2", "packages") is None
    assert "baselines.pull = none fetches none" in str(fault("all-MiniLM-L6-v2", "none"))
    assert "no pinned source of mine is known" in str(fault("mine", "all"))
    assert fault("mine", "none", mine=tmp_path) is None


def test_queries_in_the_tool_vectors_are_added_when_it_ranks(
    plain: tuple[TrainingResult, Path], tiny: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "siamese"
    save_two_tower(load_two_tower(plain[1]).model, folder)
    encoder = load_two_tower(folder)
    save_expansion(folder / EXPANSION, expansion_of(ROWS, encoder))
    bare, wide = (resources(folder, expansion_weight=weight).encoder_of("siamese") for weight in (0.0, 2.0))
    tools = list(VALIDATION.tools.texts)
    assert (bare.encode_documents(tools) == encoder.encode_documents(tools)).all()
    assert np.abs(wide.encode_documents(tools) - encoder.encode_documents(tools)).max() > 0.05
    assert (wide.encode_queries(tools) == encoder.encode_queries(tools)).all()
    (folder / EXPANSION).write_bytes(b"PK\x03\x04 cut short")
    with pytest.raises(UserError, match="holds no vectors of training queries") as raised:
        resources(folder, expansion_weight=2.0).encoder_of("siamese")
    assert not isinstance(raised.value, NotAvailable)
