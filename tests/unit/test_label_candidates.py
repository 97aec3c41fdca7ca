"""Pooling adds BM25's tools to the encoder's and changes none of these."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ecoagent.labeling.candidates import CandidatePair, Candidates, find_candidates
from ecoagent.labeling.prepare import prepare
from ecoagent.labeling.requests import Request, RequestSet
from ecoagent.retrieval.dense import rank_dense
from ecoagent.retrieval.lexical import rank_bm25
from ecoagent.retrieval.runs import TextSet
from ecoagent.schema import NormalizedTool, tokens
from tests.unit.test_label_stage import tool

WORDS = ("parcel", "song", "train", "bed", "rain", "bread", "lamp", "river")


class LetterEncoder:
    """Unit vectors of letter counts: cosines that owe nothing to words. Counts its calls."""

    name, dim = "letters", 26

    def __init__(self) -> None:
        self.calls: list[int] = []

    def _encode(self, texts: Sequence[str], on_batch: Any = None) -> np.ndarray:
        self.calls.append(len(texts))
        rows = np.ones((len(texts), self.dim), dtype=np.float32) * 0.01
        for i, text in enumerate(texts):
            for letter in text.lower():
                if "a" <= letter <= "z":
                    rows[i, ord(letter) - ord("a")] += 1
        if on_batch:
            on_batch(len(texts))
        return rows / np.linalg.norm(rows, axis=1, keepdims=True)

    encode_queries = encode_documents = _encode


def dense_only(
    queries: dict[str, str], tools: Sequence[tuple[str, str]], top_k: int, min_cosine: float
) -> Candidates:
    """What the chain was before pooling."""
    ids = sorted(queries)
    ranked = rank_dense(
        LetterEncoder(),
        TextSet(tuple(ids), tuple(queries[i] for i in ids)),
        TextSet(tuple(i for i, _ in tools), tuple(t for _, t in tools)),
        top_k,
    )
    kept, below = [], []
    for n, query in enumerate(ranked.query_ids):
        found = zip(ranked.tool_ids[n], ranked.scores[n], strict=True)
        for rank, (name, score) in enumerate(found, start=1):
            (kept if score >= min_cosine else below).append(CandidatePair(query, name, score, rank))
    return Candidates(tuple(kept), tuple(below))


TEXTS = st.lists(st.sampled_from(WORDS), min_size=1, max_size=4).map(" ".join)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(TEXTS, min_size=1, max_size=5),
    st.lists(TEXTS, min_size=1, max_size=9),
    st.integers(1, 4),
    st.integers(0, 4),
    st.sampled_from([-1.0, 0.5, 0.8, 0.95, 1.1]),
)
def test_pooling_keeps_the_dense_ones_and_adds_the_rest(
    query_texts: list[str], tool_texts: list[str], top_k: int, lexical: int, cosine: float
) -> None:
    queries = {f"q{i}": t for i, t in enumerate(query_texts)}
    tools = [(f"t{i}", t) for i, t in enumerate(tool_texts)]
    alone = dense_only(queries, tools, top_k, cosine)
    pooled = find_candidates(
        LetterEncoder(), queries, tools, top_k=top_k, min_cosine=cosine, lexical_top_k=lexical
    )
    if lexical == 0:
        assert pooled == alone
    asked = TextSet(tuple(sorted(queries)), tuple(queries[i] for i in sorted(queries)))
    catalog = TextSet(tuple(i for i, _ in tools), tuple(t for _, t in tools))
    run = rank_bm25(asked, catalog, max(lexical, 1), analysis="plain")
    best = {
        (q, t): rank
        for q, found in zip(run.query_ids, run.tool_ids, strict=True)
        for rank, t in enumerate(found[:lexical], start=1)
    }
    dense = [p for p in pooled.kept if p.retriever != "bm25"]
    assert [(p.query_id, p.tool_id, p.cosine, p.rank) for p in dense] == [
        (p.query_id, p.tool_id, p.cosine, p.rank) for p in alone.kept
    ]
    for pair in pooled.kept:
        found = (pair.query_id, pair.tool_id) in best
        assert found == (pair.retriever != "dense")
        if found:
            assert tokens(queries[pair.query_id]) & tokens(dict(tools)[pair.tool_id])
        if pair.retriever == "bm25":
            assert pair.rank == best[pair.query_id, pair.tool_id]
    pairs = [(p.query_id, p.tool_id) for p in (*pooled.kept, *pooled.below)]
    assert len(pairs) == len(set(pairs))
    assert set(best) <= {(p.query_id, p.tool_id) for p in pooled.kept}
    assert pooled.below == tuple(p for p in alone.below if (p.query_id, p.tool_id) not in best)
    assert [p.query_id for p in pooled.kept] == sorted(p.query_id for p in pooled.kept)
    # The cosine is the encoder's, whoever proposed the pair.
    everything = dense_only(queries, tools, len(tools), -1.0)
    cosines = {(p.query_id, p.tool_id): p.cosine for p in everything.kept}
    for pair in pooled.kept:
        assert pair.cosine == pytest.approx(cosines[pair.query_id, pair.tool_id], abs=1.5e-6)


def test_who_proposed_what() -> None:
    tools = [("t1", "parcel"), ("t2", "place r"), ("t3", "track a parcel by its number and date of posting")]
    encoder = LetterEncoder()
    told: list[int] = []
    found = find_candidates(
        encoder,
        {"q": "parcel", "p": "ZZZ"},
        tools,
        top_k=2,
        min_cosine=0.9,
        lexical_top_k=2,
        on_batch=told.append,
    )
    assert encoder.calls == told == [3, 2]
    assert [(p.query_id, p.tool_id, p.rank, p.retriever) for p in found.kept] == [
        ("q", "t1", 1, "dense+bm25"),
        ("q", "t2", 2, "dense"),
        ("q", "t3", 2, "bm25"),
    ]
    assert found.kept[2].cosine < 0.9
    assert {p.query_id for p in found.below} == {"p"}
    # One that the encoder puts among its nearest but below the cosine is BM25's alone.
    low = find_candidates(encoder, {"q": "parcel"}, tools, top_k=3, min_cosine=0.9, lexical_top_k=2)
    assert [(p.tool_id, p.rank, p.retriever) for p in low.kept] == [
        ("t1", 1, "dense+bm25"),
        ("t2", 2, "dense"),
        ("t3", 2, "bm25"),
    ]
    assert low.below == ()


def test_ties_of_bm25_go_by_id_whatever_the_order_of_the_tools() -> None:
    tools = [(i, "a parcel") for i in ("d", "b", "c", "a")]
    expected = None
    for turn in range(4):
        order = tools[turn:] + tools[:turn]
        found = find_candidates(
            LetterEncoder(), {"q": "parcel"}, order, top_k=1, min_cosine=2.0, lexical_top_k=2
        )
        named = [(p.tool_id, p.rank) for p in found.kept]
        assert named == [("a", 1), ("b", 2)]
        assert expected is None or found == expected
        expected = found


def test_labelling_keeps_to_plain_words_whatever_the_baselines_use() -> None:
    # Verdicts and calibrations that are stored are of the pairs these words propose.
    tools = [("t1", "track_parcel"), ("t2", "parcels"), ("t3", "the parcel")]
    found = find_candidates(
        LetterEncoder(), {"q": "the parcel"}, tools, top_k=1, min_cosine=2.0, lexical_top_k=3
    )
    assert [p.tool_id for p in found.kept] == ["t3"]


def _prepare(requests: list[Request], tools: Sequence[NormalizedTool], **options: Any) -> Any:
    return prepare(
        RequestSet("mine", tuple(requests), noted=False),
        tools,
        LetterEncoder,
        top_k=1,
        min_cosine=options.pop("min_cosine", 1.1),
        max_verified=None,
        limit=None,
        hold_out_calibration=False,
        seed=0,
        **options,
    )


def test_prepare_pools_and_says_both_reasons() -> None:
    tools = [tool("parcel", "crewai:Parcel"), tool("song", "crewai:Song")]
    requests = [Request(id="a", text="my parcel"), Request(id="b", text="zzz")]
    alone = _prepare(requests, tools)
    assert len(alone.rejects) == 2 and not alone.verified
    assert all(r.reason == "no_candidate" and "BM25" not in r.detail for r in alone.rejects)
    pooled = _prepare(requests, tools, lexical_top_k=1)
    assert [(p.tool_id, p.retriever) for p in pooled.pairs(pooled.verified)] == [("crewai:Parcel", "bm25")]
    (left,) = pooled.rejects
    assert left.reason == "no_candidate"
    assert left.detail.startswith("request b; nearest crewai:")
    assert left.detail.endswith("< 1.1; BM25: no tool shares a word with it")
