"""A BERT of a few thousand random weights, in the layout of a transformers folder."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")


def write_tiny_bert(path: Path, texts: Iterable[str], *, seed: int = 0) -> Path:
    """Write the checkpoint; every word of ``texts`` is a token of its own."""
    import torch
    from transformers import BertConfig, BertModel, BertTokenizer

    path.mkdir(parents=True, exist_ok=True)
    words = {word for text in texts for word in re.findall(r"\w+", text.lower())}
    vocabulary = {w: n for n, w in enumerate([*SPECIAL, *sorted({"iteration", *words, *"0123456789:.,?"})])}
    BertTokenizer(vocab=vocabulary, model_max_length=64).save_pretrained(path)
    torch.manual_seed(seed)
    config = BertConfig(
        vocab_size=len(vocabulary),
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=64,
        max_position_embeddings=64,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
    )
    BertModel(config).save_pretrained(path)
    return path
