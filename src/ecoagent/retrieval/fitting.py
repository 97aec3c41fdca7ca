"""The training loop: planned batches through the sentence-transformers trainer, watched step by step."""

from __future__ import annotations

import math
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ecoagent.retrieval.checkpoints import BEST, WEIGHTS, CheckpointFolder, Progress
from ecoagent.retrieval.encoders import SentenceEncoder
from ecoagent.retrieval.pairs import TrainingRow
from ecoagent.retrieval.validation import Validation
from ecoagent.retrieval.workers import inside_torchrun
from ecoagent.settings import TrainSettings, UserError

OnStep = Callable[[float], None]
"""Called with the loss of the step just done."""


@dataclass(frozen=True)
class Fit:
    """What a training loop is given."""

    rows: Sequence[TrainingRow]
    batches: Sequence[list[int]]
    """Row numbers of each step's batch, of all processes together."""
    settings: TrainSettings
    warmup_steps: int
    precision: str
    """float32, float16 or bfloat16."""
    seed: int
    validation: Validation | None
    validate_at: frozenset[int]
    """Steps after which it is validated."""
    checkpoints: CheckpointFolder | None
    on_step: OnStep | None


def columns_of(rows: Sequence[TrainingRow], settings: TrainSettings, *, pad: bool) -> dict[str, Any]:
    """Columns of the training set.

    A row with too few negatives repeats its gold; the loss knows how many are real. With ``pad`` one
    more row stands at the end, which fills the share of a process that has none left.
    """
    from ecoagent.retrieval.losses import PAD

    every = [*rows, *([rows[0]] if pad else [])]
    width = max(len(row.negatives) for row in rows)
    columns: dict[str, Any] = {
        "query": [settings.query_prefix + row.query for row in every],
        "tool": [settings.tool_prefix + row.tool for row in every],
    }
    for place in range(width):
        columns[f"negative_{place}"] = [
            settings.tool_prefix + (row.negatives[place] if place < len(row.negatives) else row.tool)
            for row in every
        ]
    columns["label"] = [*range(len(rows)), *([PAD] if pad else [])]
    return columns


def share(batch: Sequence[int], rank: int, processes: int, pad: int) -> list[int]:
    """A process's rows of a batch: as many for each process, filled up with row ``pad``."""
    own = list(batch[rank::processes])
    return own + [pad] * (math.ceil(len(batch) / processes) - len(own))


class _Watcher:
    """Follows a training: losses, validations, early stopping, checkpoints."""

    def __init__(self, model: Any, loss: Any, job: Fit, progress: Progress) -> None:
        self.model, self.loss, self.job, self.progress = model, loss, job, progress
        self.best: dict[str, Any] | None = None
        loss.values = progress.losses

    @property
    def metric(self) -> str | None:
        """What stops the training early, if anything may."""
        name = self.job.settings.early_stopping
        return None if name == "off" else name

    def begin(self) -> None:
        """Validate what the training starts from, unless it goes on from a checkpoint."""
        if self.job.validate_at and not self.progress.validations:
            self.validate(0)

    def step(self, step: int) -> tuple[bool, bool]:
        """After a step: whether to stop, and whether to write a checkpoint."""
        value = self.progress.losses[-1]
        if not math.isfinite(value):
            raise UserError(
                f"training diverged: the loss of step {step} is {value}",
                remedy="lower train.learning_rate",
            )
        if self.job.on_step is not None:
            self.job.on_step(value)
        stop = False
        if step in self.job.validate_at:
            self.validate(step)
            stop = self.exhausted()
        every = self.job.settings.checkpoint_every
        save = self.job.checkpoints is not None and every is not None and step % every == 0
        return stop, save and not stop and step < len(self.job.batches)

    def validate(self, step: int) -> None:
        """Measure on the first process, tell the others, keep the weights if they are the best."""
        import torch

        from ecoagent.retrieval.losses import world_size

        if self.job.validation is None:
            return
        found: list[Any] = [None]
        if world_size() == 1 or torch.distributed.get_rank() == 0:
            device = self.model.device
            # Dropout draws the same numbers, validated or not.
            devices = [device] if device.type == "cuda" else []
            with torch.random.fork_rng(devices=devices), _single_precision(self.model):
                encoder = SentenceEncoder(self.model.eval(), name="validated")
                found = [self.job.validation.measure(encoder, self.job.settings, self.job.seed)]
        if world_size() > 1:
            torch.distributed.broadcast_object_list(found, device=self.model.device)
        self.progress.validations.append({"step": step, **found[0]})
        if self.metric is not None and self._better(found[0][self.metric]):
            self.progress.best_step = step
            self.best = {k: v.detach().cpu().clone() for k, v in self.model.state_dict().items()}

    def _better(self, value: float | None) -> bool:
        earlier = [v for v in self.progress.validations[:-1] if v["step"] == self.progress.best_step]
        if not earlier or value is None:
            return not earlier
        known = float(earlier[0][str(self.metric)])
        return value < known if self.metric == "loss" else value > known

    def exhausted(self) -> bool:
        """Whether the last ``patience`` validations brought no gain."""
        if self.metric is None:
            return False
        later = [v for v in self.progress.validations if v["step"] > self.progress.best_step]
        return len(later) >= self.job.settings.patience

    def save(self, folder: Path, step: int) -> None:
        """Finish a checkpoint whose folder the trainer has filled."""
        import torch

        from ecoagent.retrieval.losses import world_size

        if self.job.checkpoints is None:
            return
        if world_size() > 1:
            torch.distributed.barrier()
            if torch.distributed.get_rank() > 0:
                return
        if self.best is not None:
            torch.save(self.best, folder / BEST)
        self.job.checkpoints.publish(folder, step, self.progress)


@contextmanager
def _single_precision(model: Any) -> Iterator[None]:
    """The model without the trainer's mixed precision: towers are judged in float32 once they are saved."""
    mixed = vars(model).get("forward")
    if "_original_forward" not in vars(model):  # where accelerate keeps what it wrapped
        yield
        return
    model.forward = model._original_forward
    try:
        yield
    finally:
        model.forward = mixed


def fit(model: Any, job: Fit) -> Progress:
    """Train ``model`` in place; with early stopping it ends with the best weights.

    Under torchrun every process calls it with the same job.

    Returns:
        Losses and validations; ``best_step`` is the step whose weights the model has.

    Raises:
        UserError: the loss is no longer a number.
    """
    import torch
    from datasets import Dataset
    from sentence_transformers import SentenceTransformerTrainer, SentenceTransformerTrainingArguments
    from sentence_transformers.base.sampler import DefaultBatchSampler
    from transformers import PrinterCallback, TrainerCallback

    from ecoagent.retrieval.losses import InfoNCELoss

    settings, batches = job.settings, job.batches
    loss = InfoNCELoss(model, job.rows, settings)
    found = job.checkpoints.latest() if job.checkpoints is not None else None
    watcher = _Watcher(model, loss, job, found[1] if found else Progress())
    if found and (found[0] / BEST).is_file():
        watcher.best = torch.load(found[0] / BEST, map_location="cpu", weights_only=True)
    on_cpu = model.device.type == "cpu"

    class PlannedBatches(DefaultBatchSampler):
        """The planned batches, in order: the whole training is one pass of the trainer's."""

        def __iter__(self) -> Iterator[list[int]]:
            return iter(own)

        def __len__(self) -> int:
            return len(own)

    class Watch(TrainerCallback):
        """Hands the trainer's steps to the watcher."""

        def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            watcher.begin()

        def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            stop, save = watcher.step(state.global_step)
            control.should_training_stop |= stop
            control.should_save |= save

        def on_save(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            watcher.save(Path(args.output_dir) / f"checkpoint-{state.global_step}", state.global_step)

    class Trainer(SentenceTransformerTrainer):
        """The trainer without a model card, which would draw sample texts and show a progress bar."""

        def add_model_card_callback(self, default_args_dict: dict[str, Any]) -> None:
            return None

        def get_train_dataloader(self) -> Any:
            if self.args.world_size == 1:
                return super().get_train_dataloader()
            # Each process has its own share of every batch already: accelerate must not deal out batches.
            self._train_dataloader = self._build_dataloader(self.train_dataset, 1, dataset_kind="train")
            return self._train_dataloader

        def _save(self, output_dir: str | None = None, state_dict: Any = None) -> None:
            folder = Path(output_dir or scratch)
            folder.mkdir(parents=True, exist_ok=True)
            torch.save(self.model.state_dict(), folder / WEIGHTS)

        def _load_from_checkpoint(self, resume_from_checkpoint: str, model: Any = None) -> None:
            weights = torch.load(
                Path(resume_from_checkpoint) / WEIGHTS, map_location="cpu", weights_only=True
            )
            self.model.load_state_dict(weights)

    with ExitStack() as stack:
        if job.checkpoints is not None:
            # Beside the checkpoints, so that one is finished by renaming it; swept if the process is killed.
            scratch = str(job.checkpoints.path / ".tmp-writing")
        else:
            scratch = stack.enter_context(tempfile.TemporaryDirectory())
        width = max(len(row.negatives) for row in job.rows)
        names = ["query", "tool", *(f"negative_{place}" for place in range(width)), "label"]
        args = SentenceTransformerTrainingArguments(
            output_dir=scratch,
            num_train_epochs=1,
            per_device_train_batch_size=settings.batch_size,
            learning_rate=settings.learning_rate,
            warmup_steps=job.warmup_steps,
            batch_sampler=PlannedBatches,
            router_mapping={
                name: "query" if name == "query" else "document" for name in names if settings.towers == "two"
            },
            use_cpu=on_cpu,
            fp16=job.precision == "float16",
            bf16=job.precision == "bfloat16",
            seed=job.seed,
            data_seed=job.seed,
            report_to=[],
            save_strategy="no",
            logging_strategy="no",
            disable_tqdm=True,
            ddp_backend="gloo" if on_cpu and inside_torchrun() else None,
            ddp_find_unused_parameters=False,
            ddp_broadcast_buffers=False,
        )
        several = args.world_size > 1
        # More GPUs than processes: the trainer would cut batches up between them.
        args._n_gpu = min(1, args.n_gpu)
        own = [share(b, args.process_index, args.world_size, len(job.rows)) for b in batches]
        trainer = Trainer(
            model=model,
            args=args,
            train_dataset=Dataset.from_dict(columns_of(job.rows, settings, pad=several)),
            loss=loss,
            callbacks=[Watch()],
        )
        trainer.remove_callback(PrinterCallback)
        if several:
            _freeze_unused(trainer, model, loss)
        trainer.train(resume_from_checkpoint=str(found[0]) if found else None)
    if watcher.best is not None:
        model.load_state_dict(watcher.best)
    else:
        watcher.progress.best_step = len(watcher.progress.losses)
    return watcher.progress


def _freeze_unused(trainer: Any, model: Any, loss: Any) -> None:
    """Freeze parameters that no output depends on (a pooler): processes would wait for their gradients.

    Nothing else changes: without a gradient the optimizer leaves them as they are.
    """
    batch = trainer.data_collator([trainer.train_dataset[0]])
    features, labels = trainer.collect_features(trainer._prepare_inputs(batch))
    loss.eval()
    loss(features, labels).backward()
    loss.train()
    for parameter in model.parameters():
        if parameter.grad is None:
            parameter.requires_grad_(False)
    model.zero_grad(set_to_none=True)
