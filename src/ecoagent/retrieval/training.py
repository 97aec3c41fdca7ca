"""Training of the two towers with InfoNCE (Eq. 3)."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ecoagent.retrieval.checkpoints import CheckpointFolder, training_key
from ecoagent.retrieval.fitting import Fit, OnStep, fit
from ecoagent.retrieval.pairs import TrainingRow, plan_batches
from ecoagent.retrieval.towers import build_towers, save_two_tower
from ecoagent.retrieval.validation import Validation, validation_steps
from ecoagent.retrieval.workers import inside_torchrun, launch
from ecoagent.settings import TrainSettings, UserError


@dataclass(frozen=True)
class TrainingResult:
    """What a training did; the weights lie where they were asked to be."""

    losses: list[float]
    """Loss of each step, natural logarithm."""
    epochs: list[int]
    """Epoch of each step, from 0."""
    batch_sizes: list[int]
    """Rows of each step's batch, of all processes together."""
    warmup_steps: int
    precision: str
    """float32, float16 or bfloat16."""
    validations: list[dict[str, Any]] = field(default_factory=list)
    """``step``, ``loss`` and ``MRR`` of each validation on the way, the first of step 0."""
    kept_step: int = 0
    """Step whose weights were kept: the last, or the best with early stopping."""
    planned_steps: int = 0
    """Steps the training would take without stopping early."""

    @property
    def steps(self) -> int:
        """Optimizer steps taken."""
        return len(self.losses)


@dataclass(frozen=True)
class TrainingJob:
    """All that a training depends on, for this process or for several."""

    rows: tuple[TrainingRow, ...]
    settings: TrainSettings
    query_path: Path
    tool_path: Path
    output: Path
    seed: int
    device: str | None
    validation: Validation | None
    checkpoints: Path | None


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
    validation: Validation | None = None,
    checkpoints: Path | None = None,
) -> TrainingResult:
    """Train f_Q and f_T on ``rows`` and save them in ``output``.

    Two trainings of the same rows with the same seed on the same machine and number of threads
    give the same bytes, also where one of them was killed and went on from its checkpoint.

    Args:
        rows: positives with their negatives, of the train split alone.
        settings: hyperparameters; the paper's are the defaults (Section 4.1).
        query_path: folder f_Q starts from.
        tool_path: folder f_T starts from.
        output: folder for the trained towers.
        seed: of batches and dropout.
        on_step: told the loss of each step.
        device: torch device; none = a GPU if there is one, or one a process.
        validation: what is measured every ``settings.validate_every``.
        checkpoints: folder for checkpoints, each ``settings.checkpoint_every`` steps; a training that
            was killed goes on from there. It is removed at the end. None = no checkpoints.

    Raises:
        UserError: no rows, the loss is no longer a number, or there is nothing to stop early by.
    """
    if not rows:
        raise UserError(
            "there are no training pairs in the train split",
            remedy="synthesize more queries, or lower synthesis.cold_fraction",
        )
    if settings.early_stopping != "off" and (validation is None or validation.empty):
        raise UserError(
            f"train.early_stopping = {settings.early_stopping!r} needs validation queries and there are none",
            remedy="synthesize more queries, or set train.early_stopping = 'off'",
        )
    job = TrainingJob(
        tuple(rows), settings, query_path, tool_path, output, seed, device, validation, checkpoints
    )
    if settings.processes > 1 and not inside_torchrun():
        found: TrainingResult = launch(job, settings.processes, on_step)
        return found
    return run_job(job, on_step)


def run_job(job: TrainingJob, on_step: OnStep | None) -> TrainingResult:
    """Train in this process; under torchrun each process calls it, and the first one writes."""
    import torch
    from transformers import set_seed

    rows, settings, seed = job.rows, job.settings, job.seed
    plan = plan_batches(
        rows, settings.batch_size, settings.epochs, seed, masked=settings.mask_false_negatives
    )
    device = job.device or ("cuda" if torch.cuda.is_available() else "cpu")
    on_gpu = device.startswith("cuda")
    if on_gpu and inside_torchrun():
        device = f"cuda:{os.environ.get('LOCAL_RANK', '0')}"
    precision = _precision(settings, on_gpu)
    warmup = warmup_steps(settings, len(plan))
    folder = _checkpoints(job, [device.partition(":")[0], precision])
    every = settings.validate_every if job.validation is not None else None
    with _deterministic():
        # Weights that a folder lacks are drawn at random when it is loaded.
        set_seed(seed)
        model = build_towers(settings, job.query_path, job.tool_path, device=device)
        progress = fit(
            model,
            Fit(
                rows,
                [batch for _, batch in plan],
                settings,
                warmup,
                precision,
                seed,
                job.validation,
                validation_steps(every, len(plan), settings.epochs),
                folder,
                on_step,
            ),
        )
    done = plan[: len(progress.losses)]
    if os.environ.get("RANK", "0") == "0" or not inside_torchrun():
        save_two_tower(model.eval(), job.output)
        if folder is not None:
            folder.clear()
    return TrainingResult(
        progress.losses,
        [epoch for epoch, _ in done],
        [len(batch) for _, batch in done],
        warmup,
        precision,
        progress.validations,
        progress.best_step,
        len(plan),
    )


def warmup_steps(settings: TrainSettings, steps: int) -> int:
    """Steps over which the learning rate rises: a share of ``steps`` where a ratio is set."""
    if settings.warmup_ratio is not None:
        return math.ceil(settings.warmup_ratio * steps)
    return settings.warmup_steps or 0


def _checkpoints(job: TrainingJob, machine: Sequence[str]) -> CheckpointFolder | None:
    if job.checkpoints is None or job.settings.checkpoint_every is None:
        return None
    import sentence_transformers
    import torch
    import transformers

    versions = [module.__version__ for module in (torch, transformers, sentence_transformers)]
    towers = (job.query_path, job.tool_path)
    key = training_key(job.rows, job.settings, job.seed, job.validation, towers, [*machine, *versions])
    return CheckpointFolder(job.checkpoints, key)


def _precision(settings: TrainSettings, on_gpu: bool) -> str:
    import torch

    if not on_gpu:
        return "bfloat16" if settings.cpu_bfloat16 and multiplies_bfloat16() else "float32"
    if not settings.mixed_precision:
        return "float32"
    return "bfloat16" if torch.cuda.is_bf16_supported() else "float16"


def multiplies_bfloat16() -> bool:
    """Whether this CPU multiplies bfloat16 itself; where it does not, mixed precision is slower than none."""
    import torch

    found = torch.cpu.get_capabilities()
    return any(bool(found.get(name)) for name in ("avx512_bf16", "amx_bf16"))


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
