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
from ecoagent.retrieval.lexical import rank_bm25, rank_tfidf
from ecoagent.retrieval.pairs import TrainingRow, plan_batches, training_rows
from ecoagent.retrieval.runs import RankedList, RankedRun, TextSet
from ecoagent.retrieval.towers import build_two_tower, save_two_tower
from ecoagent.retrieval.training import TrainingResult, train_two_tower, warmup_steps
from ecoagent.retrieval.validation import Measured, Validation, contrastive_loss, validation_steps

__all__ = [
    "RANKERS",
    "Embeddings",
    "Encoder",
    "Measured",
    "RankedList",
    "RankedRun",
    "Ranker",
    "RankerResources",
    "SentenceEncoder",
    "TextSet",
    "TrainingResult",
    "TrainingRow",
    "Validation",
    "build_two_tower",
    "contrastive_loss",
    "find_ranker",
    "load_encoder",
    "load_two_tower",
    "plan_batches",
    "rank_bm25",
    "rank_dense",
    "rank_tfidf",
    "rank_vectors",
    "save_two_tower",
    "train_two_tower",
    "training_rows",
    "validation_steps",
    "warmup_steps",
]
