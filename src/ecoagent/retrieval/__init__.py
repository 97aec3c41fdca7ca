"""Encoders, exact search, lexical baselines and the training of RATED's towers."""

from ecoagent.retrieval.baselines import RANKERS, Ranker, RankerResources, find_ranker
from ecoagent.retrieval.dense import rank_dense, rank_vectors
from ecoagent.retrieval.encoders import (
    Embeddings,
    Encoder,
    SentenceEncoder,
    load_encoder,
    load_two_tower,
)
from ecoagent.retrieval.index import Hit, Recall, ToolIndex
from ecoagent.retrieval.index_files import LoadedIndex, load_index, save_index
from ecoagent.retrieval.lexical import rank_bm25, rank_tfidf
from ecoagent.retrieval.pairs import TrainingRow, plan_batches, training_rows
from ecoagent.retrieval.runs import RankedList, RankedRun, TextSet
from ecoagent.retrieval.stored import StoredEncoder, StoreSize, store_folder, store_size, stored_encoder
from ecoagent.retrieval.towers import build_two_tower, save_two_tower
from ecoagent.retrieval.training import TrainingResult, contrastive_loss, train_two_tower, warmup_steps

__all__ = [
    "RANKERS",
    "Embeddings",
    "Encoder",
    "Hit",
    "LoadedIndex",
    "RankedList",
    "RankedRun",
    "Ranker",
    "RankerResources",
    "Recall",
    "SentenceEncoder",
    "StoreSize",
    "StoredEncoder",
    "TextSet",
    "ToolIndex",
    "TrainingResult",
    "TrainingRow",
    "build_two_tower",
    "contrastive_loss",
    "find_ranker",
    "load_encoder",
    "load_index",
    "load_two_tower",
    "plan_batches",
    "rank_bm25",
    "rank_dense",
    "rank_tfidf",
    "rank_vectors",
    "save_index",
    "save_two_tower",
    "store_folder",
    "store_size",
    "stored_encoder",
    "train_two_tower",
    "training_rows",
    "warmup_steps",
]
