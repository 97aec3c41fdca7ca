"""Checkpoints of a training: whole or absent, the last one alone, and only for the training that wrote it."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from ecoagent.retrieval.pairs import TrainingRow
from ecoagent.runs import UnreadableError, digest, read_object, sha256_file, write_json
from ecoagent.settings import TrainSettings

PROGRESS = "progress.json"
WEIGHTS = "weights.pt"
BEST = "best.pt"
_STEP = "step-"
_FIELDS = {"key": str, "losses": list, "validations": list, "best_step": int}


@dataclass
class Progress:
    """What a training has done so far, beside its weights."""

    losses: list[float] = field(default_factory=list)
    """Loss of each step."""
    validations: list[dict[str, Any]] = field(default_factory=list)
    """``step``, ``loss`` and ``MRR`` of each validation, the first of step 0."""
    best_step: int = 0
    """Step of the best validation."""


@dataclass(frozen=True)
class CheckpointFolder:
    """Where one training keeps its checkpoints.

    A checkpoint is written under a temporary name and renamed, and only then the one before it is
    removed, so that a process killed at any moment leaves a whole one.
    """

    path: Path
    key: str
    """Of the training; another training's checkpoints are not used."""

    def latest(self) -> tuple[Path, Progress] | None:
        """The newest checkpoint of this very training with what it had done, if there is one."""
        for folder in sorted(self.path.glob(f"{_STEP}*"), key=_number, reverse=True):
            try:
                found = read_object(folder / PROGRESS, _FIELDS)
            except UnreadableError:
                continue
            if found["key"] == self.key:
                return folder, Progress(found["losses"], found["validations"], found["best_step"])
        return None

    def publish(self, temporary: Path, step: int, progress: Progress) -> Path:
        """Make the finished folder ``temporary`` the checkpoint of ``step``; older ones go."""
        write_json(temporary / PROGRESS, {"key": self.key, **asdict(progress)})
        final = self.path / f"{_STEP}{step:09d}"
        shutil.rmtree(final, ignore_errors=True)
        self.path.mkdir(parents=True, exist_ok=True)
        temporary.rename(final)
        for stale in self.path.glob(f"{_STEP}*"):
            if stale != final:
                shutil.rmtree(stale, ignore_errors=True)
        return final

    def clear(self) -> None:
        """Remove all of it: the training is done."""
        shutil.rmtree(self.path, ignore_errors=True)


def _number(folder: Path) -> int:
    digits = folder.name.removeprefix(_STEP)
    return int(digits) if digits.isdigit() else -1


def training_key(
    rows: Sequence[TrainingRow],
    settings: TrainSettings,
    seed: int,
    validation: Any,
    towers: Sequence[Path],
    machine: Sequence[str],
) -> str:
    """Digest of all that a training's bytes depend on.

    Args:
        rows: training rows.
        settings: hyperparameters; how often a checkpoint is written, where the teacher's scores lie, and
            the section of another encoder are left out.
        seed: of the training.
        validation: what it is validated on, or none.
        towers: folders f_Q and f_T start from.
        machine: device, precision, number of processes, versions.
    """
    content = hashlib.sha256()
    for row in rows:
        content.update(
            repr(
                (row.query, row.tool, row.negatives, row.group, sorted(row.gold_groups), row.teacher)
            ).encode()
        )
    judged = None
    if validation is not None:
        texts = (
            validation.queries,
            validation.tools,
            [(r.query, r.tool, r.negatives) for r in validation.rows],
        )
        golds = {query: sorted(tools) for query, tools in validation.golds.items()}
        judged = digest([repr(texts), golds])
    weights = [
        sha256_file(path)
        for folder in towers
        for path in sorted(folder.rglob("*"))
        if path.suffix in (".safetensors", ".bin", ".json")
    ]
    options = settings.model_dump(mode="json", exclude={"checkpoint_every", "siamese", "teacher_scores"})
    return digest([content.hexdigest(), options, seed, judged, weights, list(machine)])
