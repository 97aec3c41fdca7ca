"""Lexical baselines: TF-IDF (scikit-learn) and BM25 (bm25s), with one tokenisation."""

from __future__ import annotations

import re

import numpy as np

from ecoagent.retrieval.runs import RankedRun, TextSet, TopK
from ecoagent.schema import normalize_query

BLOCK = 512
_WORD = re.compile(r"\w+")


def words(text: str) -> list[str]:
    r"""``\w+`` runs of the normalised text, in order, repeats kept."""
    return _WORD.findall(normalize_query(text))


def rank_tfidf(queries: TextSet, tools: TextSet, k: int, *, name: str = "tfidf") -> RankedRun:
    """Cosine of TF-IDF vectors: raw counts, smoothed idf over the tools, L2 norm."""
    kept = TopK(name, tools.ids, k, matches_only=True)
    if not any(words(text) for text in tools.texts):
        kept.add(queries.ids, np.zeros((len(queries), len(tools)), dtype=np.float32))
        return kept.run()
    from sklearn.feature_extraction.text import TfidfVectorizer

    vectorizer = TfidfVectorizer(analyzer=words)
    index = vectorizer.fit_transform(tools.texts).T.tocsr()
    for start in range(0, len(queries), BLOCK):
        block = vectorizer.transform(queries.texts[start : start + BLOCK])
        kept.add(queries.ids[start : start + BLOCK], (block @ index).toarray())
    return kept.run()


def rank_bm25(
    queries: TextSet, tools: TextSet, k: int, *, name: str = "bm25", k1: float = 1.5, b: float = 0.75
) -> RankedRun:
    """Okapi BM25, Lucene's idf, over every tool; ``k1`` and ``b`` are bm25s's defaults."""
    kept = TopK(name, tools.ids, k, matches_only=True)
    corpus = [words(text) for text in tools.texts]
    vocabulary = {word for text in corpus for word in text}
    index = None
    if vocabulary:
        import bm25s

        index = bm25s.BM25(k1=k1, b=b, method="lucene")
        index.index(corpus, show_progress=False)
    for query, text in zip(queries.ids, queries.texts, strict=True):
        # A query without a known word matches nothing; bm25s cannot be asked for it.
        known = [word for word in words(text) if word in vocabulary]
        if index is not None and known:
            scores = np.asarray(index.get_scores(known), dtype=np.float32)
        else:
            scores = np.zeros(len(tools), dtype=np.float32)
        kept.add([query], scores[None, :])
    return kept.run()
