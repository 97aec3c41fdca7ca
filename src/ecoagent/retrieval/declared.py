"""The rows of the offline table (Table 1) as declarations: what runs, on which weights, and how."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from ecoagent.models import known_models
from ecoagent.retrieval.encoders import DEFAULT_BATCH, Pooling
from ecoagent.retrieval.runs import SCORE_DECIMALS
from ecoagent.settings import UserError

Kind = Literal[
    "tfidf", "bm25", "endpoint", "dense", "two_tower", "sparse", "reranker", "fusion",
    "pretrained", "untrained_towers", "trained_towers", "siamese",
]  # fmt: skip
"""How a row ranks; the last four are the run's own encoders, whose settings are ``train``."""

LEXICAL: frozenset[Kind] = frozenset({"tfidf", "bm25"})
OWN: frozenset[Kind] = frozenset({"pretrained", "untrained_towers", "trained_towers"})
"""Encoders a run cannot do without. The siamese one is trained only where its row is asked for."""
TRAINED: frozenset[Kind] = frozenset({"trained_towers", "siamese"})
ENCODERS: frozenset[Kind] = OWN | {"endpoint", "dense", "two_tower", "siamese"}

RERANK_TOP = 50
"""Tools of the first stage that a reranker sees (BGE-Reranker of Table 1)."""


class NotAvailable(UserError):  # noqa: N818 - names what happened; becomes a row of the table
    """What a baseline needs cannot be had here: its weights, or an answer of its endpoint."""


@dataclass(frozen=True)
class Baseline:
    """One row of the offline table.

    Prefixes, pooling, lengths and scores are those that a model's makers give with it.
    """

    name: str
    """As ``evaluate.rankers`` names it."""
    role: str
    """Its row in the paper's Table 1; empty = not in it."""
    kind: Kind
    label: str = ""
    """As tables show it; the run's own encoders are labelled by what really runs."""
    models: tuple[str, ...] = ()
    """Names in the weights store: one, or query and document encoder. The run's own stand in ``train``."""
    library: str = ""
    """What does the work where there are no weights."""
    query_prefix: str = ""
    document_prefix: str = ""
    pooling: Pooling | None = None
    max_length: int = 512
    """Tokens after which a text is cut."""
    normalize: bool = True
    """Whether scores are cosines; else plain dot products."""
    decimals: int = SCORE_DECIMALS
    """Decimals of scores that are compared."""
    batch_size: int = DEFAULT_BATCH
    terms: str = ""
    """Licence of weights that the weights table does not list."""
    notes: str = ""

    def licence(self, models: tuple[str, ...]) -> str:
        """Licences of the weights called ``models``, as the weights table has them."""
        table = known_models()
        found = dict.fromkeys(table[name].licence for name in models if name in table)
        if any(name not in table for name in models):
            found.setdefault(self.terms or "unknown")
        return ", ".join(found) or self.terms


BASELINES: Mapping[str, Baseline] = {
    row.name: row
    for row in (
        Baseline(
            "tfidf",
            "TF-IDF",
            "tfidf",
            "TF-IDF",
            library="scikit-learn",
            notes="Raw counts, smoothed idf, cosine.",
        ),
        Baseline(
            "bm25", "BM25", "bm25", "BM25", library="bm25s", notes="Lucene's idf, k1 1.5, b 0.75 (bm25s)."
        ),
        Baseline(
            "ada_002",
            "Ada-002",
            "endpoint",
            "Ada-002",
            terms="service, by its provider's terms",
            notes="Any OpenAI-compatible embeddings endpoint; the model of `baselines` is named.",
        ),
        Baseline(
            "bge_m3",
            "BGE-M3",
            "dense",
            "BGE-M3",
            ("BAAI/bge-m3",),
            pooling="cls",
            max_length=8192,
            batch_size=8,
            notes="Dense vectors; no instruction on either side.",
        ),
        Baseline(
            "gte_large",
            "GTE-Large",
            "dense",
            "GTE-Large",
            ("thenlper/gte-large",),
            pooling="mean",
            batch_size=32,
        ),
        Baseline(
            "e5_large_v2",
            "E5-Large-v2",
            "dense",
            "E5-Large-v2",
            ("intfloat/e5-large-v2",),
            query_prefix="query: ",
            document_prefix="passage: ",
            pooling="mean",
            batch_size=32,
        ),
        Baseline(
            "dragon",
            "DRAGON",
            "two_tower",
            "DRAGON",
            ("facebook/dragon-plus-query-encoder", "facebook/dragon-plus-context-encoder"),
            pooling="cls",
            normalize=False,
            # Scores are about 400: float32 has no fifth decimal there.
            decimals=3,
            notes="Dot product of the raw CLS vectors, as its makers score.",
        ),
        Baseline(
            "splade_v3",
            "SPLADE-v3",
            "sparse",
            "SPLADE-v3",
            ("naver/splade-v3",),
            batch_size=16,
            notes="Dot product of weights over the vocabulary.",
        ),
        Baseline(
            "bge_reranker",
            "BGE-Reranker",
            "reranker",
            "BGE-Reranker-v2-m3",
            ("BAAI/bge-reranker-v2-m3",),
            batch_size=16,
            notes=f"Reorders the first {RERANK_TOP} tools of the dense first stage; the rest keep its order.",
        ),
        Baseline(
            "toolllm",
            "ToolLLM",
            "dense",
            "ToolLLM retriever",
            ("ToolBench/ToolBench_IR_bert_based_uncased",),
            pooling="mean",
            terms="not stated with the weights",
        ),
        Baseline("encoder", "DRAGON", "pretrained", notes="The untrained encoder as its makers pool it."),
        Baseline("rated_wo_contrastive", "RATED w/o Contrastive", "untrained_towers"),
        Baseline("rated", "RATED", "trained_towers"),
        Baseline(
            "siamese", "", "siamese", notes="One model for both sides, trained on the same pairs as RATED."
        ),
        Baseline(
            "minilm", "", "dense", "all-MiniLM-L6-v2", ("all-MiniLM-L6-v2",), pooling="mean", max_length=256
        ),
        Baseline(
            "mpnet", "", "dense", "all-mpnet-base-v2", ("all-mpnet-base-v2",), pooling="mean", max_length=384
        ),
        Baseline(
            "splade_tiny",
            "",
            "sparse",
            "SPLADE-tiny (4.4M, in SPLADE-v3's role)",
            ("splade-tiny-msmarco",),
            batch_size=16,
            notes="Dot product of weights over the vocabulary.",
        ),
        Baseline(
            "hybrid",
            "",
            "fusion",
            "Hybrid: BM25 + {first}",
            notes="Reciprocal-rank fusion of BM25 and the dense first stage.",
        ),
    )
}
"""Declarations by name. A table lists them in the order of ``evaluate.rankers``."""
