"""Encoders, exact search, the baselines of Table 1 and the training of RATED's towers."""

from ecoagent.retrieval.baselines import RANKERS, Ranker, find_ranker, first_stage
from ecoagent.retrieval.declared import BASELINES, RERANK_TOP, Baseline, NotAvailable
from ecoagent.retrieval.dense import rank_dense, rank_vectors
from ecoagent.retrieval.encoders import (
    Embeddings,
    Encoder,
    SentenceEncoder,
    load_encoder,
    load_two_tower,
)
from ecoagent.retrieval.endpoint import EndpointEncoder
from ecoagent.retrieval.expansion import ExpandedEncoder, expansion_of, load_expansion, save_expansion
from ecoagent.retrieval.fusion import RRF_CONSTANT, reciprocal_rank_fusion
from ecoagent.retrieval.index import Hit, Recall, ToolIndex
from ecoagent.retrieval.index_files import LoadedIndex, load_index, save_index
from ecoagent.retrieval.lexical import rank_bm25, rank_tfidf
from ecoagent.retrieval.pairs import TrainingRow, plan_batches, training_rows
from ecoagent.retrieval.rerank import CrossScorer, load_reranker, rerank
from ecoagent.retrieval.resources import EXPANSION, RankerResources
from ecoagent.retrieval.runs import RankedList, RankedRun, TextSet
from ecoagent.retrieval.sparse import SparseTexts, load_sparse, rank_sparse
from ecoagent.retrieval.stored import StoredEncoder, StoreSize, store_folder, store_size, stored_encoder
from ecoagent.retrieval.towers import build_siamese, build_towers, build_two_tower, save_two_tower
from ecoagent.retrieval.training import TrainingResult, train_two_tower, warmup_steps
from ecoagent.retrieval.validation import Measured, Validation, contrastive_loss, validation_steps

__all__ = [
    "BASELINES",
    "EXPANSION",
    "RANKERS",
    "RERANK_TOP",
    "RRF_CONSTANT",
    "Baseline",
    "CrossScorer",
    "Embeddings",
    "Encoder",
    "EndpointEncoder",
    "ExpandedEncoder",
    "Hit",
    "LoadedIndex",
    "Measured",
    "NotAvailable",
    "RankedList",
    "RankedRun",
    "Ranker",
    "RankerResources",
    "Recall",
    "SentenceEncoder",
    "SparseTexts",
    "StoreSize",
    "StoredEncoder",
    "TextSet",
    "ToolIndex",
    "TrainingResult",
    "TrainingRow",
    "Validation",
    "build_siamese",
    "build_towers",
    "build_two_tower",
    "contrastive_loss",
    "expansion_of",
    "find_ranker",
    "first_stage",
    "load_encoder",
    "load_expansion",
    "load_index",
    "load_reranker",
    "load_sparse",
    "load_two_tower",
    "plan_batches",
    "rank_bm25",
    "rank_dense",
    "rank_sparse",
    "rank_tfidf",
    "rank_vectors",
    "reciprocal_rank_fusion",
    "rerank",
    "save_expansion",
    "save_index",
    "save_two_tower",
    "store_folder",
    "store_size",
    "stored_encoder",
    "train_two_tower",
    "training_rows",
    "validation_steps",
    "warmup_steps",
]
