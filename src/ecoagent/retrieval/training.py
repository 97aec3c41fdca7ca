"""Training of the two towers with InfoNCE (Eq. 3)."""

from __future__ import annotations

import math
import os
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ecoagent.retrieval.encoders import SentenceEncoder
from ecoagent.retrieval.pairs import TrainingRow, plan_batches
from ecoagent.retrieval.towers import build_two_tower, save_two_tower
from ecoagent.settings import TrainSettings, UserError

OnStep = Callable[[float], None]
"""Called with the loss of the step just done."""


@dataclass(frozen=True)
class TrainingResult:
    """What a training did; the weights lie where they were asked to be."""

    losses: list[float]
    """Loss of each step, natural logarithm."""
    epochs: list[int]
    """Epoch of each step, from 0."""
    batch_sizes: list[int]
    """Rows of each step's batch."""
    warmup_steps: int
    precision: str
    """float32, float16 or bfloat16."""

    @property
    def steps(self) -> int:
        """Optimizer steps taken."""
        return len(self.losses)


def train_two_tower(
    rows: Sequence[TrainingRow],
    settings: TrainSettings,
    *,
    query_path: Path,
    tool_path: Path,
    output: Path,
    seed: int,
    on_step: OnStep | None = None,
    device: str | None = None,
) -> TrainingResult:
    """Train f_Q and f_T on ``rows`` and save them in ``output``.

    Two trainings of the same rows with the same seed on the same machine and number of threads
    give the same bytes.

    Args:
        rows: positives with their negatives, of the train split alone.
        settings: hyperparameters; the paper's are the defaults (Section 4.1).
        query_path: folder f_Q starts from.
        tool_path: folder f_T starts from.
        output: folder for the trained towers.
        seed: of batches and dropout.
        on_step: told the loss of each step.
        device: torch device; none = a GPU if there is one.

    Raises:
        UserError: no rows, or the loss is no longer a number.
    """
    if not rows:
        raise UserError(
            "there are no training pairs in the train split",
            remedy="synthesize more queries, or lower synthesis.cold_fraction",
        )
    import torch
    from transformers import set_seed

    plan = plan_batches(rows, settings.batch_size, settings.epochs, seed)
    on_gpu = (device or ("cuda" if torch.cuda.is_available() else "cpu")).startswith("cuda")
    precision = _precision(on_gpu and settings.mixed_precision)
    warmup = warmup_steps(settings, len(plan))
    with _deterministic():
        # Weights that a folder lacks are drawn at random when it is loaded.
        set_seed(seed)
        model = build_two_tower(
            query_path,
            tool_path,
            pooling=settings.pooling,
            max_length=settings.max_length,
            query_prefix=settings.query_prefix,
            tool_prefix=settings.tool_prefix,
            device=device if on_gpu or device else "cpu",
        )
        losses = _fit(model, rows, [batch for _, batch in plan], settings, warmup, precision, seed, on_step)
    save_two_tower(model.eval(), output)
    return TrainingResult(
        losses, [epoch for epoch, _ in plan], [len(batch) for _, batch in plan], warmup, precision
    )


def warmup_steps(settings: TrainSettings, steps: int) -> int:
    """Steps over which the learning rate rises: a share of ``steps`` where a ratio is set."""
    if settings.warmup_ratio is not None:
        return math.ceil(settings.warmup_ratio * steps)
    return settings.warmup_steps or 0


def _precision(mixed: bool) -> str:
    import torch

    if not mixed:
        return "float32"
    return "bfloat16" if torch.cuda.is_bf16_supported() else "float16"


@contextmanager
def _deterministic() -> Iterator[None]:
    import torch

    # cuBLAS reads this once, when it starts.
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    before, warn_only = (
        torch.are_deterministic_algorithms_enabled(),
        torch.is_deterministic_algorithms_warn_only_enabled(),
    )
    torch.use_deterministic_algorithms(True, warn_only=True)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(before, warn_only=warn_only)


def _columns(rows: Sequence[TrainingRow], width: int, query_prefix: str, tool_prefix: str) -> dict[str, Any]:
    """Columns of the training set. A row with too few negatives repeats its gold; the label masks it."""
    columns: dict[str, Any] = {
        "query": [query_prefix + row.query for row in rows],
        "tool": [tool_prefix + row.tool for row in rows],
    }
    for place in range(width):
        columns[f"negative_{place}"] = [
            tool_prefix + (row.negatives[place] if place < len(row.negatives) else row.tool) for row in rows
        ]
    columns["label"] = [len(row.negatives) for row in rows]
    return columns


def _fit(
    model: Any,
    rows: Sequence[TrainingRow],
    batches: list[list[int]],
    settings: TrainSettings,
    warmup: int,
    precision: str,
    seed: int,
    on_step: OnStep | None,
) -> list[float]:
    from datasets import Dataset
    from sentence_transformers import SentenceTransformerTrainer, SentenceTransformerTrainingArguments
    from sentence_transformers.base.sampler import DefaultBatchSampler
    from transformers import PrinterCallback, TrainerCallback

    from ecoagent.retrieval.losses import InfoNCELoss

    width = max(len(row.negatives) for row in rows)
    columns = _columns(rows, width, settings.query_prefix, settings.tool_prefix)
    loss = InfoNCELoss(model, settings.temperature)

    class PlannedBatches(DefaultBatchSampler):
        """The planned batches, in order: the whole training is one pass of the trainer's."""

        def __iter__(self) -> Iterator[list[int]]:
            return iter(batches)

        def __len__(self) -> int:
            return len(batches)

    class Watch(TrainerCallback):
        """Reports each step and stops a training that has diverged."""

        def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            if not math.isfinite(loss.values[-1]):
                raise UserError(
                    f"training diverged: the loss of step {state.global_step} is {loss.values[-1]}",
                    remedy="lower train.learning_rate",
                )
            if on_step is not None:
                on_step(loss.values[-1])

    class Trainer(SentenceTransformerTrainer):
        """The trainer without a model card, which would draw sample texts and show a progress bar."""

        def add_model_card_callback(self, default_args_dict: dict[str, Any]) -> None:
            return None

    with tempfile.TemporaryDirectory() as scratch:
        trainer = Trainer(
            model=model,
            args=SentenceTransformerTrainingArguments(
                output_dir=scratch,
                num_train_epochs=1,
                per_device_train_batch_size=settings.batch_size,
                learning_rate=settings.learning_rate,
                warmup_steps=warmup,
                batch_sampler=PlannedBatches,
                router_mapping={name: "query" if name == "query" else "document" for name in columns},
                use_cpu=model.device.type == "cpu",
                fp16=precision == "float16",
                bf16=precision == "bfloat16",
                seed=seed,
                data_seed=seed,
                report_to=[],
                save_strategy="no",
                logging_strategy="no",
                disable_tqdm=True,
            ),
            train_dataset=Dataset.from_dict(columns),
            loss=loss,
            callbacks=[Watch()],
        )
        trainer.remove_callback(PrinterCallback)
        trainer.train()
    return loss.values


def contrastive_loss(
    encoder: SentenceEncoder, rows: Sequence[TrainingRow], *, batch_size: int, temperature: float, seed: int
) -> float:
    """Mean InfoNCE of ``rows`` in batches as in training, without dropout: the validation loss.

    Raises:
        UserError: no rows.
    """
    if not rows:
        raise UserError(
            "there are no pairs to take the loss of", remedy="give rows of a split that has pairs"
        )
    import torch

    from ecoagent.retrieval.losses import info_nce

    texts = sorted({text for row in rows for text in (row.tool, *row.negatives)})
    place = {text: n for n, text in enumerate(texts)}
    tools = encoder.encode_documents(texts)
    queries = encoder.encode_queries([row.query for row in rows])
    total = 0.0
    for _, batch in plan_batches(rows, batch_size, 1, seed):
        chosen = [rows[n] for n in batch]
        width = max(len(row.negatives) for row in chosen)
        negatives, mask = None, None
        if width:
            lengths = np.array([len(row.negatives) for row in chosen])
            filled = [row.negatives + (row.tool,) * (width - len(row.negatives)) for row in chosen]
            negatives = torch.from_numpy(tools[[[place[text] for text in row] for row in filled]])
            mask = torch.from_numpy(np.arange(width) < lengths[:, None])
        value = info_nce(
            torch.from_numpy(queries[batch]),
            torch.from_numpy(tools[[place[row.tool] for row in chosen]]),
            negatives,
            temperature=temperature,
            negative_mask=mask,
        )
        total += float(value) * len(batch)
    return total / len(rows)
