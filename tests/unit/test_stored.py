"""Vectors kept by text: nothing is encoded twice, and how a store was filled does not show."""

from __future__ import annotations

import hashlib
import os
import random
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ecoagent.retrieval import Encoder, SentenceEncoder, StoredEncoder, load_encoder, store_size, stored
from ecoagent.retrieval.vector_file import VectorFile
from ecoagent.settings import load_settings

ROOT = Path(__file__).parents[2]
WORDS = ["send", "mail", "list", "rows", "post", "a", "message", "to", "the", "channel", "weather", "card"]


class Counting:
    """A text's vector is drawn from its hash; counts what it is asked."""

    name, dim = "counting", 8

    def __init__(self) -> None:
        self.seen: list[str] = []

    def encode_queries(
        self, texts: Sequence[str], on_batch: Callable[[int], None] | None = None
    ) -> np.ndarray:
        return self.encode_documents(texts, on_batch)

    def encode_documents(
        self, texts: Sequence[str], on_batch: Callable[[int], None] | None = None
    ) -> np.ndarray:
        self.seen += texts
        rows = [
            np.random.default_rng(int(hashlib.md5(t.encode()).hexdigest()[:8], 16)).normal(size=8)
            for t in texts
        ]
        if on_batch is not None:
            on_batch(len(texts))
        return np.array(rows, dtype=np.float32).reshape(-1, 8)


def never() -> Encoder:
    raise AssertionError("the model was loaded")


def sentences(seed: int, n: int) -> list[str]:
    rng = random.Random(seed)
    return [" ".join(rng.choices(WORDS, k=rng.randint(1, 40))) + f" {i}" for i in range(n)]


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A BERT of two layers with random weights, as sentence-transformers loads it."""
    import torch
    from transformers import BertConfig, BertModel, BertTokenizerFast

    folder = tmp_path_factory.mktemp("tiny")
    vocabulary = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS, *"0123456789", ":", "query"]
    (folder / "vocab.txt").write_text("\n".join(vocabulary))
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=len(vocabulary),
        hidden_size=48,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=96,
        max_position_embeddings=64,
    )
    BertModel(config).save_pretrained(folder)
    BertTokenizerFast(vocab_file=str(folder / "vocab.txt")).save_pretrained(folder)
    return folder


def steady(tiny: Path, batch: int = 16) -> SentenceEncoder:
    return load_encoder(
        tiny, name="tiny", query_prefix="query: ", batch_size=batch, device="cpu", steady=True, max_length=50
    )


def test_a_second_run_encodes_nothing_and_a_new_text_itself_alone(tmp_path: Path) -> None:
    texts = sentences(0, 30)
    inner = Counting()
    first = StoredEncoder("counting", "d1", tmp_path, lambda: inner)
    told: list[int] = []
    found = first.encode_documents([*texts, texts[0]], told.append)
    assert np.array_equal(found, Counting().encode_documents([*texts, texts[0]]))
    assert sorted(inner.seen) == sorted(texts) and sum(told) == 30 and first.encoded == 30
    again = StoredEncoder("counting", "d1", tmp_path, never)
    told.clear()
    assert np.array_equal(again.encode_documents(texts[::-1], told.append), found[:30][::-1])
    assert sum(told) == 30 and again.encoded == 0 and again.dim == 8
    inner.seen.clear()
    more = StoredEncoder("counting", "d1", tmp_path, lambda: inner)
    more.encode_documents([*texts[:10], "a new tool", *texts[10:]])
    assert inner.seen == ["a new tool"] and more.encoded == 1
    size = more.size()
    assert (size.vectors, size.files) == (31, 1) and size.bytes > 31 * 8 * 4
    more.encode_queries(texts[:2])
    assert store_size(tmp_path).vectors == 33 and store_size(tmp_path).files == 2
    assert store_size(tmp_path / "none").files == 0
    with pytest.raises(AssertionError, match="loaded"):
        StoredEncoder("counting", "another model", tmp_path, never).encode_documents(texts)


@settings(max_examples=8, deadline=None)
@given(seed=st.integers(0, 10_000), cuts=st.lists(st.integers(0, 40), max_size=3), batch=st.integers(1, 20))
def test_a_store_filled_in_any_order_and_any_split_holds_the_same_vectors(
    tiny: Path, seed: int, cuts: list[int], batch: int
) -> None:
    texts = sentences(3, 40)
    right = steady(tiny).encode_documents(texts)
    order = random.Random(seed).sample(texts, len(texts))
    inner = steady(tiny, batch)
    with TemporaryDirectory() as folder:
        for start, stop in zip([0, *sorted(cuts)], [*sorted(cuts), 40], strict=True):
            one = StoredEncoder("tiny", "d1", Path(folder), lambda: inner)
            one.encode_documents(order[start:stop])
        filled = StoredEncoder("tiny", "d1", Path(folder), never)
        assert np.array_equal(filled.encode_documents(texts), right)


def test_steady_encoding_is_the_plain_one_to_the_last_digits(tiny: Path) -> None:
    texts = sentences(4, 60)
    plain = load_encoder(tiny, name="tiny", query_prefix="query: ", device="cpu", max_length=50)
    one = steady(tiny)
    assert np.allclose(one.encode_documents(texts), plain.encode_documents(texts), atol=1e-6)
    # The prefix counts: a query that it pushes over a width or the limit is cut where it would be.
    assert np.allclose(one.encode_queries(texts), plain.encode_queries(texts), atol=1e-6)
    assert not np.allclose(one.encode_queries(texts), one.encode_documents(texts), atol=1e-3)
    alone = np.concatenate([one.encode_documents([text]) for text in texts])
    assert np.array_equal(alone, one.encode_documents(texts))
    assert one.encode_documents([]).shape == (0, 48)


def test_damage_is_made_anew(tmp_path: Path) -> None:
    texts = sentences(5, 20)
    right = Counting().encode_documents(texts)
    StoredEncoder("c", "d", tmp_path, Counting).encode_documents(texts)
    [path] = tmp_path.glob("*.sqlite")
    whole = path.read_bytes()
    another = sqlite3.connect(tmp_path / "other.db")
    another.execute("CREATE TABLE vectors (x INTEGER)")
    another.close()
    for damage in (
        b"",
        whole[:50],
        whole[: len(whole) // 2],
        b"\0" * len(whole),
        whole[:4096] + b"\xff" * (len(whole) - 4096),
        (tmp_path / "other.db").read_bytes(),
    ):
        path.write_bytes(damage)
        inner = Counting()
        assert np.array_equal(StoredEncoder("c", "d", tmp_path, lambda: inner).encode_documents(texts), right)  # noqa: B023
        assert len(inner.seen) == 20
        assert np.array_equal(StoredEncoder("c", "d", tmp_path, never).encode_documents(texts), right)


def test_a_vector_whose_bytes_changed_is_encoded_again_alone(tmp_path: Path) -> None:
    texts = sentences(6, 10)
    right = StoredEncoder("c", "d", tmp_path, Counting).encode_documents(texts)
    [path] = tmp_path.glob("*.sqlite")
    wrong = np.ascontiguousarray(right[3]).tobytes()
    data = bytearray(path.read_bytes())
    place = data.index(wrong)
    data[place] ^= 1
    path.write_bytes(bytes(data))
    inner = Counting()
    assert np.array_equal(StoredEncoder("c", "d", tmp_path, lambda: inner).encode_documents(texts), right)
    assert inner.seen == [texts[3]]


WORKER = """
import sys, time
from pathlib import Path
from tests.unit.test_stored import Counting, sentences
from ecoagent.retrieval import StoredEncoder, stored
stored.CHUNK = 5
class Slow(Counting):
    def encode_documents(self, texts, on_batch=None):
        time.sleep(float(sys.argv[3]))
        return super().encode_documents(texts, on_batch)
texts = sentences(7, 100)
encoder = StoredEncoder("c", "d", Path(sys.argv[1]), Slow)
encoder.encode_documents(texts[::int(sys.argv[2])])
print(encoder.encoded)
"""


def worker(folder: Path, step: int, pause: float) -> subprocess.Popen[str]:
    environment = {**os.environ, "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}"}
    return subprocess.Popen(
        [sys.executable, "-c", WORKER, str(folder), str(step), str(pause)],
        env=environment,
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
    )


def test_two_processes_fill_one_store(tmp_path: Path) -> None:
    both = [worker(tmp_path, step, 0.01) for step in (1, -1)]
    assert all(process.wait(300) == 0 for process in both)
    texts = sentences(7, 100)
    found = StoredEncoder("c", "d", tmp_path, never)
    assert np.array_equal(found.encode_documents(texts), Counting().encode_documents(texts))
    assert found.size().vectors == 100


def test_kill_midway_keeps_what_was_done(tmp_path: Path) -> None:
    process = worker(tmp_path, 1, 0.2)
    file = VectorFile(tmp_path / "none")
    deadline = time.monotonic() + 300
    while time.monotonic() < deadline and process.poll() is None:
        for path in tmp_path.glob("*.sqlite"):
            file = VectorFile(path)
        if file.count() >= 10:
            process.send_signal(signal.SIGKILL)
            break
        time.sleep(0.05)
    assert process.wait(60) == -signal.SIGKILL
    done = file.count()
    assert 10 <= done < 100 and done % 5 == 0
    inner, texts = Counting(), sentences(7, 100)
    after = StoredEncoder("c", "d", tmp_path, lambda: inner)
    assert np.array_equal(after.encode_documents(texts), Counting().encode_documents(texts))
    assert len(inner.seen) == 100 - done


def test_what_changes_a_vector_is_part_of_its_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    weights = tmp_path / "weights"
    weights.mkdir()
    (weights / "config.json").write_text("{}")
    chosen = load_settings(
        "local",
        env={},
        overrides=[f'models.local={{"mine" = "{weights}"}}'],
        outputs=tmp_path / "outputs",
    )
    built: list[dict[str, object]] = []

    def load(path: Path, **how: object) -> Counting:
        built.append(how)
        return Counting()

    monkeypatch.setattr(stored, "load_encoder", load)
    ways: list[dict[str, object]] = [
        {},
        {"pooling": "cls"},
        {"max_length": 64},
        {"query_prefix": "q: "},
        {"document_prefix": "d: "},
    ]
    for way in ways:
        stored.stored_encoder(chosen, "mine", **way).encode_documents(["a"])  # type: ignore[arg-type]
        stored.stored_encoder(chosen, "mine", **way).encode_documents(["a"])  # type: ignore[arg-type]
    assert len(built) == len(ways) and all(how["steady"] for how in built)
    (weights / "config.json").write_text("{ }")
    stored.stored_encoder(chosen, "mine").encode_documents(["a"])
    monkeypatch.setattr(stored, "processor", lambda: "another")
    stored.stored_encoder(chosen, "mine").encode_documents(["a"])
    assert len(built) == len(ways) + 2
    assert store_size(stored.store_folder(chosen)).files == len(built)
