"""Encoders, exact search, lexical baselines and their ties."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from ecoagent.models import ModelStore
from ecoagent.retrieval import (
    Encoder,
    RankedRun,
    SentenceEncoder,
    TextSet,
    build_two_tower,
    load_encoder,
    load_two_tower,
    rank_bm25,
    rank_dense,
    rank_tfidf,
    rank_vectors,
    save_two_tower,
)
from ecoagent.settings import UserError, load_settings

QUERIES = TextSet(("q:1", "q:2", "q:3"), ("send a message to slack", "weather in Paris", "zzz qqq"))
TOOLS = TextSet(
    ("b", "a", "c", "d"),
    (
        "Slack: send a message.",
        "Slack: send a message.",
        "Weather forecast of a city.",
        "Trello: move a card.",
    ),
)


@pytest.fixture(scope="session")
def minilm() -> Path:
    return ModelStore(load_settings("local", env={}).models).path("all-MiniLM-L6-v2")


@pytest.fixture(scope="session")
def encoder(minilm: Path) -> SentenceEncoder:
    return load_encoder(minilm, name="MiniLM")


def test_vectors_are_unit_rows_in_order_and_equal_to_the_library(
    encoder: SentenceEncoder, minilm: Path
) -> None:
    texts = ["short", "a much longer text about sending messages to people", "short", "mid length text"]
    found = encoder.encode_queries(texts)
    assert isinstance(encoder, Encoder)
    assert found.dtype == np.float32 and found.shape == (4, encoder.dim)
    assert np.allclose(np.linalg.norm(found, axis=1), 1, atol=1e-6)
    assert (found[0] == found[2]).all()
    from sentence_transformers import SentenceTransformer

    direct = SentenceTransformer(str(minilm)).encode(texts, normalize_embeddings=True)
    assert np.abs(direct - found).max() < 1e-6
    assert encoder.encode_documents([]).shape == (0, encoder.dim)


def test_order_of_texts_does_not_change_a_bit(encoder: SentenceEncoder) -> None:
    rng = np.random.default_rng(0)
    texts = [" ".join(["word"] * int(n)) + f" {i}" for i, n in enumerate(rng.integers(1, 30, 150))]
    order = rng.permutation(len(texts))
    straight = encoder.encode_documents(texts)
    shuffled = encoder.encode_documents([texts[i] for i in order])
    assert (straight[order] == shuffled).all()


def test_prefixes_pooling_and_lengths_apply(minilm: Path, encoder: SentenceEncoder) -> None:
    prefixed = load_encoder(minilm, name="x", query_prefix="query: ", document_prefix="passage: ")
    assert np.allclose(prefixed.encode_queries(["hi"]), encoder.encode_queries(["query: hi"]), atol=1e-6)
    assert np.allclose(
        prefixed.encode_documents(["hi"]), encoder.encode_documents(["passage: hi"]), atol=1e-6
    )
    cls = load_encoder(minilm, name="x", pooling="cls")
    assert float((cls.encode_queries(["hi there"]) * encoder.encode_queries(["hi there"])).sum()) < 0.999
    short = load_encoder(minilm, name="x", max_length=8)
    long = "send a message " * 20
    assert np.allclose(short.encode_queries([long]), short.encode_queries(["send a message " * 2]), atol=1e-5)
    assert load_encoder(minilm, name="x", max_length=100_000).model.max_seq_length == 512


def test_progress_counts_distinct_texts(encoder: SentenceEncoder) -> None:
    seen: list[int] = []
    encoder.encode_queries(["a", "b", "a"], seen.append)
    assert sum(seen) == 2


def test_a_folder_without_a_model_is_a_user_error(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="holds no"):
        load_encoder(tmp_path, name="x")


def test_towers_are_untied_and_reload_exactly(minilm: Path, tmp_path: Path) -> None:
    import torch

    model = build_two_tower(
        minilm, minilm, max_length=32, query_prefix="query: ", tool_prefix="passage: ", device="cpu"
    )
    towers = SentenceEncoder(model, name="towers")
    cls = load_encoder(minilm, name="x", pooling="cls", max_length=32)
    assert np.allclose(towers.encode_queries(["hi"]), cls.encode_queries(["query: hi"]), atol=1e-6)
    assert np.allclose(towers.encode_documents(["hi"]), cls.encode_queries(["passage: hi"]), atol=1e-6)
    before = towers.encode_documents(["hi"])
    with torch.no_grad():
        for parameter in model[0].sub_modules["query"].parameters():
            parameter.mul_(0.9)
    assert (towers.encode_documents(["hi"]) == before).all()
    save_two_tower(model, tmp_path / "towers")
    again = load_two_tower(tmp_path / "towers")
    assert (again.encode_queries(["send mail"]) == towers.encode_queries(["send mail"])).all()
    assert again.model.max_seq_length == 32
    assert again.model.prompts == {"query": "query: ", "document": "passage: "}


def test_dense_search_ranks_by_cosine_and_breaks_ties_by_id(encoder: SentenceEncoder) -> None:
    run = rank_dense(encoder, QUERIES, TOOLS, 3, name="dense")
    assert run.name == "dense" and run.query_ids == QUERIES.ids
    assert run.tool_ids[0][:2] == ["a", "b"] and run.tool_ids[1][0] == "c"
    assert run.scores[0][0] == run.scores[0][1]
    assert all(
        len(tools) == 3 and scores == sorted(scores, reverse=True)
        for tools, scores in zip(run.tool_ids, run.scores, strict=True)
    )


def test_blocks_do_not_change_dense_results(monkeypatch: pytest.MonkeyPatch) -> None:
    # Products of this size differ between block sizes in their sixth decimal.
    rng = np.random.default_rng(0)
    queries = rng.normal(size=(23, 16)).astype(np.float32)
    tools = np.repeat(rng.normal(size=(20, 16)), 2, axis=0).astype(np.float32)
    ids, names = tuple(f"q{i:02d}" for i in range(23)), tuple(f"t{i:02d}" for i in rng.permutation(40))
    whole = rank_vectors(queries, tools, ids, names, 40, name="x", decimals=3)
    monkeypatch.setattr("ecoagent.retrieval.dense.BLOCK_FLOATS", 100)
    assert rank_vectors(queries, tools, ids, names, 40, name="x", decimals=3) == whole
    for tools_found, scores in zip(whole.tool_ids, whole.scores, strict=True):
        keys = [(-score, tool) for score, tool in zip(scores, tools_found, strict=True)]
        assert keys == sorted(keys)


@pytest.mark.parametrize("rank", [rank_tfidf, rank_bm25])
def test_lexical_rankers_find_words_tie_by_id_and_leave_out_what_does_not_match(rank: object) -> None:
    run: RankedRun = rank(QUERIES, TOOLS, 4)  # type: ignore[operator]
    assert run.tool_ids[0][:2] == ["a", "b"] and run.scores[0][0] == run.scores[0][1]
    assert run.tool_ids[1] == ["c"]
    assert run.tool_ids[2] == [] and run.scores[2] == []
    empty: RankedRun = rank(QUERIES, TextSet(("a",), ("...",)), 4)  # type: ignore[operator]
    assert empty.tool_ids == [[], [], []]


def test_bm25_equals_the_formula() -> None:
    tools = TextSet(("x", "y", "z"), ("mail mail send", "send card", "weather city today now"))
    found = rank_bm25(TextSet(("q",), ("send mail",)), tools, 3, analysis="plain")
    k1, b, n, average = 1.5, 0.75, 3, 3.0

    def weight(tf: int, length: int, df: int) -> float:
        idf = np.log(1 + (n - df + 0.5) / (df + 0.5))
        return float(idf * tf / (tf + k1 * (1 - b + b * length / average)))

    expected = {"x": weight(1, 3, 2) + weight(2, 3, 1), "y": weight(1, 2, 2)}
    assert found.tool_ids[0] == ["x", "y"]
    assert found.scores[0] == pytest.approx([expected["x"], expected["y"]], abs=2e-6)


def test_text_sets_and_runs_refuse_what_does_not_fit() -> None:
    with pytest.raises(UserError, match="'a' occurs twice"):
        TextSet(("a", "a"), ("x", "y"))
    with pytest.raises(UserError, match="1 ids but 0 texts"):
        TextSet(("a",), ())
    with pytest.raises(UserError, match="1 queries but 0 rankings"):
        RankedRun("x", ("q",), [], [])
