"""Tiny random checkpoints of the architectures that baselines have, made where a test runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors
from transformers import (
    BertConfig,
    BertForMaskedLM,
    BertModel,
    DistilBertConfig,
    DistilBertForMaskedLM,
    PreTrainedTokenizerFast,
    XLMRobertaConfig,
    XLMRobertaForSequenceClassification,
    XLMRobertaModel,
)

WORDS = [
    "send",
    "a",
    "message",
    "to",
    "slack",
    "mail",
    "weather",
    "forecast",
    "of",
    "the",
    "city",
    "in",
    "paris",
    "card",
    "move",
    "trello",
    "calendar",
    "event",
    "query",
    "passage",
    ":",
    ".",
    ",",
    "create",
    "file",
    "issue",
    "github",
    "search",
    "web",
    "page",
    "translate",
    "text",
    "stock",
    "price",
    "news",
    "now",
]
POSITIONS = 40
"""Tokens a tiny model has positions for."""

_SHAPE: dict[str, Any] = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4}
_SHAPE |= {"intermediate_size": 48, "initializer_range": 0.5}


def _tokenizer(folder: Path, marks: list[str], template: tuple[str, str]) -> int:
    """Write a word tokenizer whose first tokens are ``marks``; returns the size of its vocabulary."""
    vocabulary = {token: place for place, token in enumerate(dict.fromkeys([*marks, *WORDS]))}
    unknown = next(mark for mark in marks if "unk" in mark.lower())
    raw = Tokenizer(models.WordLevel(vocabulary, unk_token=unknown))
    raw.normalizer = normalizers.Lowercase()
    raw.pre_tokenizer = pre_tokenizers.Whitespace()
    single, pair = template
    used = [mark for mark in marks if mark in f"{single} {pair}".split()]
    raw.post_processor = processors.TemplateProcessing(
        single=single, pair=pair, special_tokens=[(mark, vocabulary[mark]) for mark in used]
    )
    named = {"cls_token": used[0], "sep_token": used[1], "unk_token": unknown}
    pad = next(mark for mark in marks if "pad" in mark.lower())
    fast = PreTrainedTokenizerFast(
        tokenizer_object=raw, pad_token=pad, mask_token=marks[-1], model_max_length=10_000, **named
    )
    fast.save_pretrained(str(folder))
    return len(vocabulary)


def _bert_tokenizer(folder: Path) -> int:
    marks = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    return _tokenizer(folder, marks, ("[CLS] $A [SEP]", "[CLS] $A [SEP] $B:1 [SEP]:1"))


def _xlmr_tokenizer(folder: Path) -> int:
    marks = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
    return _tokenizer(folder, marks, ("<s> $A </s>", "<s> $A </s> </s> $B </s>"))


def _write(folder: Path, model: Any) -> Path:
    model.eval().save_pretrained(str(folder))
    return folder


def tiny_bert(folder: Path, seed: int = 0, *, head: bool = False) -> Path:
    """A BERT; with ``head`` a masked language model, SPLADE's kind."""
    torch.manual_seed(seed)
    config = BertConfig(vocab_size=_bert_tokenizer(folder), max_position_embeddings=POSITIONS, **_SHAPE)
    return _write(folder, BertForMaskedLM(config) if head else BertModel(config, add_pooling_layer=False))


def tiny_distilbert(folder: Path, seed: int = 0) -> Path:
    """A DistilBERT masked language model, SPLADE's kind."""
    torch.manual_seed(seed)
    config = DistilBertConfig(
        vocab_size=_bert_tokenizer(folder),
        max_position_embeddings=POSITIONS,
        dim=32,
        hidden_dim=48,
        n_layers=2,
        n_heads=4,
        initializer_range=0.5,
    )
    return _write(folder, DistilBertForMaskedLM(config))


def tiny_xlmr(folder: Path, seed: int = 0, *, outputs: int | None = None) -> Path:
    """An XLM-RoBERTa; with ``outputs`` a classifier of pairs, a reranker's kind where it is 1."""
    torch.manual_seed(seed)
    shape = {**_SHAPE, "max_position_embeddings": POSITIONS + 2, "pad_token_id": 1, "type_vocab_size": 1}
    shape |= {"bos_token_id": 0, "eos_token_id": 2}
    config = XLMRobertaConfig(vocab_size=_xlmr_tokenizer(folder), **shape)
    if outputs is None:
        return _write(folder, XLMRobertaModel(config, add_pooling_layer=False))
    config.num_labels = outputs
    return _write(folder, XLMRobertaForSequenceClassification(config))
