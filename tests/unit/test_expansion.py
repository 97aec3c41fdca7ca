"""Training queries in tool vectors: what moves where, files, and lengths that stay 1."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import settings as examples
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from ecoagent.evaluation.gpu_check import made_up
from ecoagent.retrieval import (
    ExpandedEncoder,
    SentenceEncoder,
    TrainingRow,
    expansion_of,
    load_expansion,
    save_expansion,
)
from ecoagent.retrieval.expansion import _key
from ecoagent.retrieval.stored import keep_vectors
from ecoagent.runs import sha256_file
from ecoagent.settings import UserError

ROWS, VALIDATION = made_up(tools=6, words=6)
TOOLS = [row.tool for row in ROWS[::3]]


class TableModel:
    """A model whose vectors are looked up, or drawn by the text's bytes."""

    def __init__(self, known: dict[str, Any] | None = None, dim: int = 8) -> None:
        self.known, self.dim = known or {}, dim

    def get_embedding_dimension(self) -> int:
        return self.dim

    def encode_query(self, texts: list[str], **how: Any) -> Any:
        found = [self.known.get(text, self.drawn(text)) for text in texts]
        rows = np.array(found, dtype=np.float32)
        return rows / np.linalg.norm(rows, axis=1, keepdims=True)

    encode_document = encode_query

    def drawn(self, text: str) -> Any:
        return np.random.default_rng([*text.encode()]).normal(size=self.dim)


@pytest.fixture
def encoder() -> SentenceEncoder:
    return SentenceEncoder(TableModel(), name="table")


def test_it_is_the_mean_of_the_queries_of_a_text(encoder: SentenceEncoder) -> None:
    twin = [replace(ROWS[0], tool_id="copy"), replace(ROWS[0], tool_id="copy", query="one more")]
    found = expansion_of([*ROWS, *twin], encoder)
    assert set(found) == {_key(tool) for tool in TOOLS}
    for tool in TOOLS:
        queries = sorted({row.query for row in (*ROWS, *twin) if row.tool == tool})
        expected = encoder.encode_queries(queries).mean(axis=0)
        assert found[_key(tool)] == pytest.approx(expected, abs=1e-6)
        assert found[_key(tool)].dtype == np.float32 and np.linalg.norm(found[_key(tool)]) < 1
    # The order of the pairs changes no bit.
    again = expansion_of([*twin, *reversed(ROWS)], encoder)
    assert all((found[key] == again[key]).all() for key in found)


def test_a_known_text_moves_toward_its_queries_and_an_unknown_one_stays(encoder: SentenceEncoder) -> None:
    wide = ExpandedEncoder(encoder, expansion_of(ROWS, encoder), 1.0)
    texts = [*TOOLS, "never seen", TOOLS[0]]
    plain, moved = encoder.encode_documents(texts), wide.encode_documents(texts)
    assert np.abs(np.linalg.norm(moved, axis=1) - 1).max() < 1e-6
    for place, tool in enumerate(TOOLS):
        queries = encoder.encode_queries([row.query for row in ROWS if row.tool == tool])
        assert (queries @ moved[place]).mean() > (queries @ plain[place]).mean() + 0.05
        expected = plain[place] + queries.mean(axis=0)
        assert moved[place] == pytest.approx(expected / np.linalg.norm(expected), abs=1e-6)
    assert (moved[-2] == plain[-2]).all() and (moved[-1] == moved[0]).all()
    assert (wide.encode_queries(texts) == encoder.encode_queries(texts)).all()


def test_a_weight_of_nothing_changes_no_direction(encoder: SentenceEncoder) -> None:
    wide = ExpandedEncoder(encoder, expansion_of(ROWS, encoder), 0.0)
    assert wide.encode_documents(TOOLS) == pytest.approx(encoder.encode_documents(TOOLS), abs=1e-7)


def test_a_heavier_weight_brings_it_nearer(encoder: SentenceEncoder) -> None:
    found = expansion_of(ROWS, encoder)
    queries = encoder.encode_queries([row.query for row in ROWS if row.tool == TOOLS[0]])
    near = [
        float((queries @ ExpandedEncoder(encoder, found, weight).encode_documents(TOOLS[:1])[0]).mean())
        for weight in (0.0, 0.5, 1.0, 4.0)
    ]
    assert near == sorted(near) and near[-1] > near[0]


UNIT = arrays.arrays(np.float64, 4, elements=st.floats(-1, 1, width=32)).filter(
    lambda v: float(np.linalg.norm(v)) > 0.1
)


@examples(deadline=None)
@given(st.lists(st.tuples(UNIT, UNIT), min_size=1, max_size=6), st.floats(0, 100), st.booleans())
def test_rows_stay_of_length_one(pairs: list[tuple[Any, Any]], weight: float, opposed: bool) -> None:
    tools = [f"tool {n}" for n in range(len(pairs))]
    known: dict[str, Any] = {}
    rows = []
    for n, (tool, query) in enumerate(pairs):
        # The sum of opposed vectors vanishes with a weight of 1.
        known |= {f"tool {n}": tool, f"query {n}": -tool if opposed else query}
        rows.append(TrainingRow(f"q{n}", f"query {n}", f"t{n}", f"tool {n}", (), "g", frozenset({"g"})))
    encoder = SentenceEncoder(TableModel(known, dim=4), name="table")
    for chosen in (weight, 1.0):
        wide = ExpandedEncoder(encoder, expansion_of(rows, encoder), chosen)
        vectors = wide.encode_documents([*tools, "another"])
        assert vectors.dtype == np.float32 and vectors.shape == (len(pairs) + 1, 4)
        assert np.abs(np.linalg.norm(vectors, axis=1) - 1).max() < 1e-5


def test_progress_counts_as_the_plain_encoder_does(encoder: SentenceEncoder) -> None:
    wide = ExpandedEncoder(encoder, expansion_of(ROWS, encoder), 1.0)
    seen: list[int] = []
    wide.encode_documents([*TOOLS, TOOLS[0]], seen.append)
    assert sum(seen) == len(TOOLS) and (wide.name, wide.dim) == (encoder.name, encoder.dim)


def test_behind_a_store_it_is_as_steady_as_the_plain_one(tmp_path: Path) -> None:
    inner = SentenceEncoder(TableModel(), name="table", batch_size=5)
    wide = ExpandedEncoder(inner, {}, 1.0)
    assert not wide.steady and wide.batch_size == 5
    kept = keep_vectors("wide", "content", tmp_path, lambda: wide)
    assert kept.inner() is wide and wide.steady
    assert ExpandedEncoder(SentenceEncoder(TableModel(), name="x", steady=True), {}, 1.0).steady


def test_a_file_gives_back_what_was_written_in_the_same_bytes(
    encoder: SentenceEncoder, tmp_path: Path
) -> None:
    found = expansion_of(ROWS, encoder)
    one = save_expansion(tmp_path / "one.npz", found)
    two = save_expansion(tmp_path / "two.npz", dict(reversed(found.items())))
    assert sha256_file(one) == sha256_file(two)
    again = load_expansion(one)
    assert set(again) == set(found) and all((again[key] == found[key]).all() for key in found)


def test_damaged_files_are_named_with_a_remedy(encoder: SentenceEncoder, tmp_path: Path) -> None:
    path = save_expansion(tmp_path / "expansion.npz", expansion_of(ROWS, encoder))
    whole = path.read_bytes()
    middle = bytearray(whole)
    middle[len(whole) // 2] ^= 0xFF
    damaged = {
        "empty": b"",
        "text": b"not an archive",
        "cut short": whole[: len(whole) // 2],
        "head alone": whole[:4],
        "changed": bytes(middle),
    }
    for what, content in damaged.items():
        path.write_bytes(content)
        with pytest.raises(UserError, match=r"expansion\.npz holds no vectors.*ecoagent train"):
            load_expansion(path)
            pytest.fail(what)
    path.unlink()
    with pytest.raises(UserError, match="FileNotFoundError"):
        load_expansion(path)


@pytest.mark.parametrize(
    "content",
    [
        {"keys": np.array(["a"])},
        {"keys": np.array(["a", "b"]), "vectors": np.zeros((1, 4), np.float32)},
        {"keys": np.array(["a"]), "vectors": np.zeros(4, np.float32)},
        {"keys": np.array(["a"]), "vectors": np.zeros((1, 4))},
        {"keys": np.array([object()], dtype=object), "vectors": np.zeros((1, 4), np.float32)},
    ],
    ids=["no vectors", "too few", "flat", "doubles", "objects"],
)
def test_archives_of_another_form_are_refused(tmp_path: Path, content: dict[str, Any]) -> None:
    with (tmp_path / "expansion.npz").open("wb") as file:
        np.savez(file, **content)
    with pytest.raises(UserError, match="holds no vectors of training queries"):
        load_expansion(tmp_path / "expansion.npz")


def test_a_plain_array_is_refused(tmp_path: Path) -> None:
    with (tmp_path / "expansion.npz").open("wb") as file:
        np.save(file, np.zeros((2, 2), np.float32))
    with pytest.raises(UserError, match="holds no vectors of training queries"):
        load_expansion(tmp_path / "expansion.npz")
