"""A BERT of a few thousand random weights, in the layout of a transformers folder, for tests that encode."""

from __future__ import annotations

import re
import string
from collections.abc import Iterable
from pathlib import Path

SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
LETTERS = string.ascii_lowercase + string.digits


def write_tiny_bert(folder: Path, texts: Iterable[str] = (), *, seed: int = 0) -> Path:
    """Write the checkpoint; every word of ``texts`` is a token of its own, any other is spelled out."""
    import torch
    from transformers import BertConfig, BertModel, BertTokenizer

    words = sorted({word for text in texts for word in re.findall(r"\w+", text.lower())})
    pieces = dict.fromkeys([*SPECIAL, *LETTERS, *(f"##{c}" for c in LETTERS), *":.,?", "iteration", *words])
    folder.mkdir(parents=True, exist_ok=True)
    BertTokenizer(vocab={p: n for n, p in enumerate(pieces)}, model_max_length=64).save_pretrained(folder)
    torch.manual_seed(seed)
    config = BertConfig(
        vocab_size=len(pieces),
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=64,
        max_position_embeddings=64,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
    )
    BertModel(config).save_pretrained(folder)
    return folder
