"""Lexical baselines: TF-IDF (scikit-learn) and BM25 (bm25s), with one analysis."""

from __future__ import annotations

import numpy as np

from ecoagent.retrieval.analysis import analyzer
from ecoagent.retrieval.runs import RankedRun, TextSet, TopK
from ecoagent.settings import LexicalAnalysis

BLOCK = 512


def rank_tfidf(
    queries: TextSet, tools: TextSet, k: int, *, name: str = "tfidf", analysis: LexicalAnalysis = "english"
) -> RankedRun:
    """Cosine of TF-IDF vectors: raw counts, smoothed idf over the tools, L2 norm."""
    kept = TopK(name, tools.ids, k, matches_only=True)
    terms = analyzer(analysis)
    corpus = [terms(text) for text in tools.texts]
    if not any(corpus):
        kept.add(queries.ids, np.zeros((len(queries), len(tools)), dtype=np.float32))
        return kept.run()
    from sklearn.feature_extraction.text import TfidfVectorizer

    vectorizer = TfidfVectorizer(analyzer=list)
    index = vectorizer.fit_transform(corpus).T.tocsr()
    for start in range(0, len(queries), BLOCK):
        block = vectorizer.transform(terms(text) for text in queries.texts[start : start + BLOCK])
        kept.add(queries.ids[start : start + BLOCK], (block @ index).toarray())
    return kept.run()


def rank_bm25(
    queries: TextSet,
    tools: TextSet,
    k: int,
    *,
    name: str = "bm25",
    analysis: LexicalAnalysis = "english",
    k1: float = 1.5,
    b: float = 0.75,
) -> RankedRun:
    """Okapi BM25, Lucene's idf, over every tool; ``k1`` and ``b`` are bm25s's defaults."""
    kept = TopK(name, tools.ids, k, matches_only=True)
    terms = analyzer(analysis)
    corpus = [terms(text) for text in tools.texts]
    vocabulary = {word for text in corpus for word in text}
    index = None
    if vocabulary:
        import bm25s

        index = bm25s.BM25(k1=k1, b=b, method="lucene")
        index.index(corpus, show_progress=False)
    for query, text in zip(queries.ids, queries.texts, strict=True):
        # A query without a known word matches nothing; bm25s cannot be asked for it.
        known = [word for word in terms(text) if word in vocabulary]
        if index is not None and known:
            scores = np.asarray(index.get_scores(known), dtype=np.float32)
        else:
            scores = np.zeros(len(tools), dtype=np.float32)
        kept.add([query], scores[None, :])
    return kept.run()
