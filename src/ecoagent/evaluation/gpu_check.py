"""``make gpu-check``: one short training and evaluation on a GPU, judged against the CPU.

The towers have the size of DRAGON's (two untied BERT-base, 768-d) with random weights, and the catalog is
made up here, so that nothing has to be fetched: what is checked is that the training fits a small GPU,
runs in mixed precision, and computes what the CPU computes, not how good the towers become.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ecoagent.retrieval import (
    TextSet,
    TrainingRow,
    Validation,
    load_two_tower,
    train_two_tower,
)
from ecoagent.settings import TrainSettings, UserError, quiet_environment

LIMIT_BYTES = 12 * 10**9
"""Memory that torch may hold at its peak."""
LIMIT_SECONDS = 600.0
TOLERANCE = 1e-3
"""Largest difference of a vector's element between GPU and CPU, both in float32."""
SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]")
SYLLABLES = ("ba", "co", "di", "fu", "ga", "he", "ki", "lo", "mu", "na", "pe", "ri", "so", "tu", "ve", "zo")


def random_encoder(
    folder: Path,
    texts: Sequence[str],
    *,
    layers: int,
    hidden: int,
    heads: int,
    dropout: float = 0.1,
    seed: int = 0,
) -> Path:
    """Write a BERT of this size with random weights and a tokenizer of the words of ``texts``."""
    import torch
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel
    from tokenizers.pre_tokenizers import Whitespace
    from tokenizers.processors import TemplateProcessing
    from transformers import BertConfig, BertModel, PreTrainedTokenizerFast

    split = Whitespace()
    words = sorted({word for text in texts for word, _ in split.pre_tokenize_str(text)})
    vocabulary = {word: n for n, word in enumerate([*SPECIAL, *words])}
    tokenizer = Tokenizer(WordLevel(vocabulary, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = split
    tokenizer.post_processor = TemplateProcessing(
        single="[CLS] $A [SEP]",
        special_tokens=[(name, vocabulary[name]) for name in ("[CLS]", "[SEP]")],
    )
    make: Callable[..., Any] = PreTrainedTokenizerFast
    fast = make(
        tokenizer_object=tokenizer,
        pad_token="[PAD]",
        unk_token="[UNK]",
        cls_token="[CLS]",
        sep_token="[SEP]",
        model_max_length=512,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = BertModel(
            BertConfig(
                vocab_size=len(vocabulary),
                hidden_size=hidden,
                num_hidden_layers=layers,
                num_attention_heads=heads,
                intermediate_size=4 * hidden,
                hidden_dropout_prob=dropout,
                attention_probs_dropout_prob=dropout,
                pad_token_id=0,
                # So that the first layer's output depends on the words, whatever the width.
                initializer_range=hidden**-0.5,
            )
        )
    model.save_pretrained(str(folder))
    fast.save_pretrained(str(folder))
    return folder


def made_up(tools: int, words: int, seed: int = 0) -> tuple[list[TrainingRow], Validation]:
    """Training rows and a validation split over a made-up catalog.

    Args:
        tools: tools, each with three training queries and one for validation.
        words: words of a tool's text, so that texts are as long as the towers read.
        seed: of the words.
    """
    rng = random.Random(seed)
    names = sorted({"".join(rng.choices(SYLLABLES, k=3)) for _ in range(4 * tools)})
    names = rng.sample(names, 2 * tools)
    filler = ["".join(rng.choices(SYLLABLES, k=2)) for _ in range(200)]
    ids = [f"t{n:04d}" for n in range(tools)]
    texts = [
        f"{names[2 * n]} {names[2 * n + 1]} " + " ".join(rng.choices(filler, k=max(1, words - 2)))
        for n in range(tools)
    ]
    rows: list[TrainingRow] = []
    held: list[TrainingRow] = []
    for n in range(tools):
        other = texts[(n + 1) % tools]
        for k in range(4):
            query = " ".join([names[2 * n + k % 2], *rng.choices(filler, k=8), names[2 * n + (k + 1) % 2]])
            row = TrainingRow(f"q{n:04d}{k}", query, ids[n], texts[n], (other,), ids[n], frozenset({ids[n]}))
            (held if k == 3 else rows).append(row)
    validation = Validation(
        held,
        TextSet(tuple(r.query_id for r in held), tuple(r.query for r in held)),
        TextSet(tuple(ids), tuple(texts)),
        {r.query_id: frozenset({r.tool_id}) for r in held},
    )
    return rows, validation


def check(
    device: str, *, tools: int, layers: int, hidden: int, heads: int, settings: TrainSettings
) -> dict[str, Any]:
    """Train and evaluate on ``device``; returns the record with its checks."""
    import torch

    started = time.monotonic()
    on_gpu = device == "cuda"
    rows, validation = made_up(tools, settings.max_length)
    texts = [t for r in (*rows, *validation.rows) for t in (r.query, r.tool)]
    if on_gpu:
        torch.cuda.reset_peak_memory_stats()
    with tempfile.TemporaryDirectory(prefix="ecoagent-gpu-check-") as scratch:
        start = random_encoder(Path(scratch) / "start", texts, layers=layers, hidden=hidden, heads=heads)
        trained = time.monotonic()
        result = train_two_tower(
            rows,
            settings,
            query_path=start,
            tool_path=start,
            output=Path(scratch) / "trained",
            seed=0,
            device=device,
            validation=validation,
        )
        training_s = time.monotonic() - trained
        here = load_two_tower(Path(scratch) / "trained", device=device)
        after = validation.measure(here, settings, 0)
        sample = validation.queries.texts[:16], validation.tools.texts[:16]
        cpu = load_two_tower(Path(scratch) / "trained", device="cpu")
        apart = max(
            float(np.abs(here.encode_queries(sample[0]) - cpu.encode_queries(sample[0])).max()),
            float(np.abs(here.encode_documents(sample[1]) - cpu.encode_documents(sample[1])).max()),
        )
    peak = int(torch.cuda.max_memory_allocated()) if on_gpu else None
    seconds = time.monotonic() - started
    before = {name: result.validations[0][name] for name in ("loss", "MRR")}
    checks = {
        "losses are finite": all(math.isfinite(loss) for loss in result.losses),
        "as the CPU": apart <= TOLERANCE,
        "in time": seconds <= LIMIT_SECONDS,
    }
    if on_gpu:
        checks["fits 12 GB"] = peak is not None and peak <= LIMIT_BYTES
        checks["mixed precision"] = result.precision in ("bfloat16", "float16")
    return {
        "device": torch.cuda.get_device_name() if on_gpu else "cpu (dry run)",
        "torch": torch.__version__,
        "towers": {"layers": layers, "hidden": hidden, "max_length": settings.max_length},
        "precision": result.precision,
        "pairs": len(rows),
        "batch_size": settings.batch_size,
        "steps": result.steps,
        "seconds": round(seconds, 1),
        "training_seconds": round(training_s, 1),
        "pairs_per_second": round(sum(result.batch_sizes) / training_s, 1),
        "peak_bytes": peak,
        "limit_bytes": LIMIT_BYTES,
        "losses": {"first": round(result.losses[0], 4), "last": round(result.losses[-1], 4)},
        "validation": {"untrained": before, "trained": after},
        "learned": bool(after["loss"] is not None and after["loss"] < before["loss"]),
        "largest_difference_to_cpu": apart,
        "checks": checks,
        "passed": all(checks.values()),
    }


def main(arguments: Sequence[str] | None = None) -> int:
    """Command line; prints one JSON record. Returns 0, 1 where a check failed, 2 without a GPU."""
    parser = argparse.ArgumentParser(prog="gpu-check", description=__doc__)
    parser.add_argument("--cpu", action="store_true", help="dry run of the same path with small towers")
    dry = parser.parse_args(arguments).cpu
    quiet_environment()
    import torch

    try:
        if not dry and not torch.cuda.is_available():
            built = "" if torch.version.cuda else f" (torch {torch.__version__} is built without CUDA)"
            raise UserError(
                f"no GPU to check: torch sees none{built}",
                remedy="run `make gpu-check` on a machine with a CUDA GPU and its torch, or "
                "`make gpu-check ARGS=--cpu` for a dry run",
            )
        if dry:
            settings = TrainSettings(
                batch_size=8,
                epochs=10,
                max_length=16,
                warmup_ratio=0.1,
                learning_rate=1e-3,
                validate_every=0.5,
            )
            record = check("cpu", tools=24, layers=2, hidden=32, heads=2, settings=settings)
        else:
            # Batch, length and precision are the paper's; random weights need a higher learning rate.
            settings = TrainSettings(epochs=4, warmup_ratio=0.1, learning_rate=5e-5, validate_every=0.5)
            record = check("cuda", tools=96, layers=12, hidden=768, heads=12, settings=settings)
    except UserError as error:
        print(f"gpu-check: {error}", file=sys.stderr)
        return error.exit_code
    print(json.dumps(record, indent=1))
    failed = [name for name, held in record["checks"].items() if not held]
    if failed:
        print(f"gpu-check: failed: {', '.join(failed)}", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
