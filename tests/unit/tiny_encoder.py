"""A BERT of two small layers with random weights and a vocabulary of its own, for tests that encode."""

from __future__ import annotations

import string
from pathlib import Path


def write_tiny_encoder(folder: Path, *, seed: int = 0, words: tuple[str, ...] = ()) -> Path:
    """Write a model in transformers' layout: letters, word pieces of letters, and the words given."""
    import torch
    from transformers import BertConfig, BertModel, BertTokenizerFast

    letters = list(string.ascii_lowercase + string.digits)
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    vocabulary = [*special, *letters, *(f"##{c}" for c in letters), *words]
    folder.mkdir(parents=True)
    (folder / "vocab.txt").write_text("\n".join(vocabulary) + "\n")
    tokenizer = BertTokenizerFast(vocab=str(folder / "vocab.txt"), do_lower_case=True)
    tokenizer.save_pretrained(folder)
    torch.manual_seed(seed)
    config = BertConfig(
        vocab_size=len(vocabulary),
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=64,
        max_position_embeddings=64,
    )
    BertModel(config).save_pretrained(folder)
    return folder
