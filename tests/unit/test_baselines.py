"""Baselines of Table 1 on tiny random checkpoints of their architectures, against direct forward passes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from transformers import AutoModel, AutoModelForMaskedLM, AutoModelForSequenceClassification, AutoTokenizer

from ecoagent.models import ModelStore, known_models
from ecoagent.retrieval import (
    BASELINES,
    RANKERS,
    Encoder,
    NotAvailable,
    RankedRun,
    RankerResources,
    TextSet,
    find_ranker,
    first_stage,
    load_reranker,
    load_sparse,
    rank_bm25,
    reciprocal_rank_fusion,
    rerank,
)
from ecoagent.settings import BaselineSettings, ModelSettings, TrainSettings, UserError, load_settings
from tests.unit.tiny_models import POSITIONS, WORDS, tiny_bert, tiny_distilbert, tiny_xlmr

TABLE_1 = (
    *("TF-IDF", "BM25", "Ada-002", "BGE-M3", "GTE-Large", "E5-Large-v2", "DRAGON", "SPLADE-v3"),
    *("BGE-Reranker", "ToolLLM", "RATED w/o Contrastive", "RATED"),
)
LONG = " ".join(WORDS * 3)
TEXTS = ("send a message to slack", "weather in paris", "create file", LONG, "weather in paris")
QUERIES = TextSet(("q:1", "q:2"), ("send a message", "weather now"))
TOOLS = TextSet(
    tuple("fbadec"),
    (
        "slack : send a message .",
        "slack : send a message .",
        "weather forecast of the city .",
        "trello : move a card .",
        "calendar : create event .",
        LONG,
    ),
)
LOCAL = load_settings("local", env={}).train


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A tiny checkpoint of the right architecture for each model of the declarations."""
    root = tmp_path_factory.mktemp("models")
    made = {
        "BAAI/bge-m3": tiny_xlmr(root / "m3", 1),
        "thenlper/gte-large": tiny_bert(root / "gte", 2),
        "intfloat/e5-large-v2": tiny_bert(root / "e5", 3),
        "facebook/dragon-plus-query-encoder": tiny_bert(root / "dragon-q", 4),
        "facebook/dragon-plus-context-encoder": tiny_bert(root / "dragon-c", 5),
        "naver/splade-v3": tiny_bert(root / "splade", 6, head=True),
        "splade-tiny-msmarco": tiny_distilbert(root / "splade-tiny", 7),
        "BAAI/bge-reranker-v2-m3": tiny_xlmr(root / "reranker", 8, outputs=1),
        "ToolBench/ToolBench_IR_bert_based_uncased": tiny_bert(root / "toolllm", 9),
    }
    return made


def resources(
    folders: dict[str, Path], settings: TrainSettings | None = None, **more: Any
) -> RankerResources:
    def path(name: str) -> Path:
        if name not in folders:
            raise UserError(f"the weights of {name} could not be had", remedy="pull them")
        return folders[name]

    return RankerResources(settings or TrainSettings(), path, **more)


def direct(folder: Path, texts: Sequence[str], pooling: str, *, max_length: int = POSITIONS) -> Any:
    """Vectors by transformers alone, one text a pass, not normalised."""
    tokenizer, model = AutoTokenizer.from_pretrained(folder), AutoModel.from_pretrained(folder).eval()
    rows = []
    for text in texts:
        tokens = tokenizer(text, truncation=True, max_length=max_length, return_tensors="pt")
        with torch.no_grad():
            states = model(**tokens).last_hidden_state[0]
        rows.append((states[0] if pooling == "cls" else states.mean(0)).numpy())
    return np.stack(rows)


def unit(rows: Any) -> Any:
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


@pytest.mark.parametrize(
    ("name", "pooling", "prefixes"),
    [
        ("bge_m3", "cls", ("", "")),
        ("gte_large", "mean", ("", "")),
        ("e5_large_v2", "mean", ("query: ", "passage: ")),
        ("toolllm", "mean", ("", "")),
    ],
)
def test_a_dense_baseline_is_its_makers_forward_pass(
    folders: dict[str, Path], name: str, pooling: str, prefixes: tuple[str, str]
) -> None:
    encoder = resources(folders).encoder_of(name)
    assert isinstance(encoder, Encoder)
    (folder,) = (folders[m] for m in BASELINES[name].models)
    for prefix, encode in zip(prefixes, (encoder.encode_queries, encoder.encode_documents), strict=True):
        expected = unit(direct(folder, [prefix + text for text in TEXTS], pooling))
        assert np.abs(encode(TEXTS) - expected).max() < 1e-5
        other = "mean" if pooling == "cls" else "cls"
        assert np.abs(encode(TEXTS) - unit(direct(folder, TEXTS, other))).max() > 0.05


def test_e5_puts_its_prefixes_before_the_text(folders: dict[str, Path]) -> None:
    encoder = resources(folders).encoder_of("e5_large_v2")
    bare = unit(direct(folders["intfloat/e5-large-v2"], TEXTS, "mean"))
    assert np.abs(encoder.encode_queries(TEXTS) - bare).max() > 0.05
    assert np.abs(encoder.encode_queries(TEXTS) - encoder.encode_documents(TEXTS)).max() > 0.05


def test_dragon_has_two_encoders_and_scores_by_the_raw_dot_product(folders: dict[str, Path]) -> None:
    query, context = BASELINES["dragon"].models
    run = find_ranker("dragon").rank(resources(folders), QUERIES, TOOLS, 6, None)
    vectors = direct(folders[query], QUERIES.texts, "cls"), direct(folders[context], TOOLS.texts, "cls")
    scores = vectors[0] @ vectors[1].T
    assert np.abs(np.linalg.norm(vectors[0], axis=1) - 1).min() > 0.5
    for row, (tools, found) in enumerate(zip(run.tool_ids, run.scores, strict=True)):
        expected = dict(zip(TOOLS.ids, scores[row], strict=True))
        assert found == pytest.approx([expected[tool] for tool in tools], abs=6e-4)
        assert found == sorted(found, reverse=True) and len(tools) == 6
        # b and f are one text: they tie, whatever the last bits of a product.
        assert tools.index("f") == tools.index("b") + 1


@pytest.mark.parametrize(("name", "model"), [("splade_v3", "naver/splade-v3"), ("splade_tiny", None)])
def test_splade_weighs_the_vocabulary(folders: dict[str, Path], name: str, model: str | None) -> None:
    folder = folders[model or "splade-tiny-msmarco"]
    encoder = load_sparse(folder, name=name)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    direct_model = AutoModelForMaskedLM.from_pretrained(folder).eval()

    def weights(text: str) -> Any:
        tokens = tokenizer(text, truncation=True, max_length=POSITIONS, return_tensors="pt")
        tokens.pop("token_type_ids", None)
        with torch.no_grad():
            return torch.log1p(torch.relu(direct_model(**tokens).logits[0])).max(0).values.numpy()

    expected = np.stack([weights(text) for text in TEXTS])
    assert np.abs(encoder.encode_queries(TEXTS).toarray() - expected).max() < 1e-5
    assert np.abs(encoder.encode_documents(TEXTS).toarray() - expected).max() < 1e-5
    assert encoder.encode_queries([]).shape == (0, expected.shape[1])
    seen: list[int] = []
    run = find_ranker(name).rank(resources(folders), QUERIES, TOOLS, 4, seen.append)
    assert sum(seen) == len(set(QUERIES.texts)) + len(set(TOOLS.texts))
    products = np.stack([weights(t) for t in QUERIES.texts]) @ np.stack([weights(t) for t in TOOLS.texts]).T
    for row in range(len(QUERIES)):
        best = dict(zip(TOOLS.ids, products[row], strict=True))
        assert run.scores[row] == pytest.approx([best[t] for t in run.tool_ids[row]], abs=1e-3)
        assert run.scores[row] == pytest.approx(sorted(best.values(), reverse=True)[:4], abs=1e-3)


def test_a_model_without_a_vocabulary_head_is_no_splade(folders: dict[str, Path]) -> None:
    with pytest.raises(UserError, match="no head over the vocabulary"):
        load_sparse(folders["thenlper/gte-large"], name="x")


def pair_logits(folder: Path, pairs: Sequence[tuple[str, str]]) -> list[float]:
    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = AutoModelForSequenceClassification.from_pretrained(folder).eval()
    found = []
    for query, text in pairs:
        tokens = tokenizer(query, text, truncation=True, max_length=POSITIONS, return_tensors="pt")
        tokens.pop("token_type_ids", None)
        with torch.no_grad():
            found.append(float(model(**tokens).logits[0, 0]))
    return found


def test_the_reranker_reads_pairs_as_a_direct_pass(folders: dict[str, Path], tmp_path: Path) -> None:
    folder = folders["BAAI/bge-reranker-v2-m3"]
    pairs = [(query, text) for query in QUERIES.texts for text in TOOLS.texts]
    scorer = load_reranker(folder, name="x", batch_size=4)
    seen: list[int] = []
    found = scorer.score(pairs, seen.append)
    assert found.tolist() == pytest.approx(pair_logits(folder, pairs), abs=1e-5)
    assert (sum(seen) == len(set(pairs)) and min(found) < 0) or max(found) > 1, "logits, not probabilities"
    with pytest.raises(UserError, match="holds no model that scores pairs: it is BertModel"):
        load_reranker(folders["thenlper/gte-large"], name="x")
    with pytest.raises(UserError, match="has 3 outputs"):
        load_reranker(tiny_xlmr(tmp_path, outputs=3), name="x")


def test_the_reranker_starts_from_dragon_and_reorders_its_head(folders: dict[str, Path]) -> None:
    run = find_ranker("bge_reranker").rank(resources(folders), QUERIES, TOOLS, 6, None)
    texts = dict(zip(TOOLS.ids, TOOLS.texts, strict=True))
    for query, tools, scores in zip(QUERIES.texts, run.tool_ids, run.scores, strict=True):
        logits = pair_logits(folders["BAAI/bge-reranker-v2-m3"], [(query, texts[t]) for t in tools])
        assert scores == pytest.approx(logits, abs=1e-5) and scores == sorted(scores, reverse=True)
        assert tools.index("f") == tools.index("b") + 1
    asked: list[str] = []

    def run_of(name: str) -> RankedRun:
        asked.append(name)
        return rank_bm25(QUERIES, TOOLS, 6)

    given = find_ranker("bge_reranker").rank(resources(folders, run_of=run_of), QUERIES, TOOLS, 6, None)
    assert asked == ["dragon"]
    assert [set(t) for t in given.tool_ids] == [set(t) for t in rank_bm25(QUERIES, TOOLS, 6).tool_ids]


def ranked(name: str, *lists: Sequence[str]) -> RankedRun:
    scores = [[float(-place) for place in range(len(tools))] for tools in lists]
    return RankedRun(name, tuple(f"q:{n}" for n in range(len(lists))), [list(t) for t in lists], scores)


def test_below_the_head_the_order_of_the_first_stage_stays() -> None:
    first = ranked("first", "edcba", "ab")
    queries, tools = TextSet(("q:0", "q:1"), ("x", "y")), TextSet(tuple("abcde"), tuple("abcde"))

    def alphabetical(pairs: Sequence[tuple[str, str]], on_batch: object) -> Any:
        assert len(pairs) == 3 + 2, "the head alone is read"
        return np.array([-float(ord(text)) for _, text in pairs], dtype=np.float32)

    run = rerank(alphabetical, first, queries, tools, 5, name="x", top=3)
    assert run.tool_ids == [list("cdeba"), ["a", "b"]]
    for scores in run.scores:
        assert all(one > two for one, two in pairwise(scores))
    assert run.scores[0][3:] == [-102.0, -103.0]
    assert rerank(alphabetical, first, queries, tools, 2, name="x", top=3).tool_ids == [
        ["c", "d"],
        ["a", "b"],
    ]

    def flat(pairs: Sequence[tuple[str, str]], on_batch: object) -> Any:
        return np.zeros(len(pairs), dtype=np.float32)

    assert rerank(flat, first, queries, tools, 5, name="x", top=3).tool_ids[0] == list("cdeba")
    with pytest.raises(UserError, match="does not answer the queries"):
        rerank(flat, first, QUERIES, TOOLS, 5, name="x")


def test_fusion_equals_its_formula() -> None:
    fused = reciprocal_rank_fusion([ranked("a", "xyz"), ranked("b", "wx")], 10, name="rrf")
    assert fused.tool_ids == [["x", "w", "y", "z"]]
    assert fused.scores[0] == pytest.approx([1 / 61 + 1 / 62, 1 / 61, 1 / 62, 1 / 63], abs=1e-15)
    assert reciprocal_rank_fusion([ranked("a", "xyz")], 2, name="rrf", constant=0).scores == [[1.0, 0.5]]
    with pytest.raises(UserError, match="same queries"):
        reciprocal_rank_fusion([ranked("a", "x"), ranked("b", "x", "y")], 3, name="rrf")
    with pytest.raises(UserError, match="no runs"):
        reciprocal_rank_fusion([], 3, name="rrf")


@given(st.lists(st.permutations("abcdef").map(lambda p: p[:4]), min_size=1, max_size=4), st.randoms())
def test_fusion_does_not_hang_on_the_order_of_the_runs(lists: list[list[str]], random: Any) -> None:
    runs = [ranked(str(n), tools) for n, tools in enumerate(lists)]
    straight = reciprocal_rank_fusion(runs, 6, name="x")
    random.shuffle(runs)
    assert reciprocal_rank_fusion(runs, 6, name="x") == straight
    keys = [(-s, t) for s, t in zip(straight.scores[0], straight.tool_ids[0], strict=True)]
    assert keys == sorted(keys) and set(straight.tool_ids[0]) == {t for tools in lists for t in tools}


def test_the_hybrid_fuses_bm25_with_the_dense_first_stage(folders: dict[str, Path]) -> None:
    run = find_ranker("hybrid").rank(resources(folders), QUERIES, TOOLS, 6, None)
    parts = [
        rank_bm25(QUERIES, TOOLS, 50),
        find_ranker("dragon").rank(resources(folders), QUERIES, TOOLS, 50, None),
    ]
    assert run == reciprocal_rank_fusion(parts, 6, name="hybrid")
    assert find_ranker("hybrid").parts(LOCAL) == ("bm25", "encoder") and first_stage(LOCAL) == "encoder"
    assert find_ranker("bge_reranker").parts(TrainSettings()) == ("dragon",)


def test_every_row_of_table_1_is_declared_and_asked_for_by_default() -> None:
    roles = {ranker.role for ranker in RANKERS.values()}
    assert set(TABLE_1) <= roles
    default = load_settings("paper", env={}).evaluate.rankers
    assert [find_ranker(name).role for name in default if name != "hybrid"] == list(TABLE_1)
    local = load_settings("local", env={}).evaluate.rankers
    assert {find_ranker(name).role for name in local} >= set(TABLE_1)
    for name, declared in BASELINES.items():
        assert name == declared.name and (declared.pooling is not None) == bool(
            declared.kind in ("dense", "two_tower")
        )
        for model in declared.models:
            assert model in known_models() or declared.terms, f"{name}: where {model} comes from"


def test_every_ranker_says_what_runs() -> None:
    paper = TrainSettings()
    assert RANKERS["encoder"].label(LOCAL) == "all-MiniLM-L6-v2 (untrained, in DRAGON's role)"
    assert RANKERS["rated"].label(LOCAL) == "RATED (all-MiniLM-L6-v2 towers)"
    assert RANKERS["rated"].label(paper) == "RATED"
    assert RANKERS["bge_reranker"].label(paper) == "BGE-Reranker-v2-m3 on the top 50 of DRAGON"
    assert RANKERS["hybrid"].label(LOCAL) == "Hybrid: BM25 + all-MiniLM-L6-v2"
    assert RANKERS["hybrid"].model(LOCAL) == "bm25s + all-MiniLM-L6-v2"
    assert RANKERS["rated"].licence(LOCAL) == "Apache-2.0" and RANKERS["bm25"].licence(LOCAL) == ""
    assert RANKERS["bge_reranker"].licence(paper) == "Apache-2.0, CC-BY-NC-4.0"
    assert RANKERS["toolllm"].licence(paper) == "not stated with the weights"
    other = BaselineSettings(model="nomic-embed-text")
    assert RANKERS["ada_002"].label(paper) == "Ada-002"
    assert RANKERS["ada_002"].label(paper, other) == "nomic-embed-text (endpoint, in Ada-002's role)"
    assert RANKERS["ada_002"].model(paper, other) == "nomic-embed-text"
    with pytest.raises(UserError, match="unknown ranker 'bm52'"):
        find_ranker("bm52")
    with pytest.raises(UserError, match="has no encoder"):
        resources({}).encoder_of("bm25")


def store(tmp_path: Path, **local: Path) -> ModelStore:
    return ModelStore(
        ModelSettings(dir=tmp_path, local={k.replace("_", "/", 1): v for k, v in local.items()})
    )


def test_what_cannot_run_here_says_why(tmp_path: Path, folders: dict[str, Path]) -> None:
    def fault(name: str, pull: str = "packages", **local: Path) -> str | None:
        baselines = BaselineSettings.model_validate({"pull": pull})
        return find_ranker(name).fault(LOCAL, baselines, store(tmp_path, **local))

    assert fault("bm25") is None and fault("rated") is None and fault("hybrid") is None
    assert "baselines.base_url" in str(fault("ada_002"))
    assert "thenlper/gte-large are not in the store" in str(fault("gte_large"))
    assert fault("gte_large", "all") is None and fault("splade_tiny") is None
    assert "baselines.pull = none" in str(fault("splade_tiny", "none"))
    assert "no pinned source" in str(fault("toolllm", "all"))
    assert fault("gte_large", "none", **{"thenlper_gte-large": tmp_path}) is None
    hybrid = find_ranker("hybrid").fault(TrainSettings(), BaselineSettings(pull="none"), store(tmp_path))
    assert hybrid is not None and hybrid.startswith("DRAGON, which it starts from, cannot run")


def test_missing_weights_are_told_from_a_missing_encoder_of_the_run(folders: dict[str, Path]) -> None:
    few = {name: path for name, path in folders.items() if "dragon" not in name and "m3" not in name}
    for name in ("bge_m3", "dragon", "bge_reranker"):
        with pytest.raises(NotAvailable, match="could not be had"):
            find_ranker(name).rank(resources(few), QUERIES, TOOLS, 3, None)
    with pytest.raises(NotAvailable, match="DRAGON, which it starts from, cannot run"):
        find_ranker("hybrid").rank(resources(few), QUERIES, TOOLS, 3, None)
    for name in ("encoder", "rated_wo_contrastive"):
        with pytest.raises(UserError) as raised:
            find_ranker(name).rank(resources(few), QUERIES, TOOLS, 3, None)
        assert not isinstance(raised.value, NotAvailable)


def test_lengths_leave_room_for_positions_behind_the_padding(folders: dict[str, Path]) -> None:
    load: Callable[[str], Any] = resources(folders).encoder_of
    assert load("bge_m3").model.max_seq_length == POSITIONS
    assert load("gte_large").model.max_seq_length == POSITIONS
    assert BASELINES["bge_m3"].max_length == 8192


def test_minilm_runs_for_real_under_its_own_name() -> None:
    models = ModelStore(load_settings("local", env={}).models)
    found = RankerResources(LOCAL, models.path)
    run = find_ranker("minilm").rank(found, QUERIES, TOOLS, 6, None)
    assert run.tool_ids[0][:2] == ["b", "f"] and run.tool_ids[1][0] == "a"
    assert find_ranker("minilm").label(LOCAL) == "all-MiniLM-L6-v2"
    with pytest.raises(UserError):
        find_ranker("rated").rank(found, QUERIES, TOOLS, 6, None)
