"""Trainings of the encoder ablation: a folder each, kept, so that a further set can be judged by them."""

from __future__ import annotations

import shutil
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ecoagent import __version__
from ecoagent.evaluation.datasets import EvalData, load_core
from ecoagent.evaluation.encoder_arms import CHOSEN, Arm
from ecoagent.evaluation.train_stage import (
    MODEL,
    rows_of,
    teacher_digest,
    teacher_scores,
    training_plan,
    validation_of,
)
from ecoagent.models import ModelStore
from ecoagent.retrieval import (
    EXPANSION,
    Embeddings,
    SentenceEncoder,
    TrainingRow,
    build_towers,
    expansion_of,
    load_expansion,
    load_two_tower,
    save_expansion,
    train_two_tower,
)
from ecoagent.runs import (
    RunContext,
    digest,
    folder_done,
    read_json,
    sha256_file,
    sweep,
    write_folder,
    write_json,
)
from ecoagent.settings import result_settings

FOLDER = "encoder_trainings"
"""Below the run's ``raw``. Without it nothing is lost but the way to judge a further set without training."""
FACTS = "facts.json"
TABLES = ("syn_pairs", "syn_qrels", "syn_queries", "tools")
"""What a training reads."""
_VERSION = "1"


@dataclass(frozen=True)
class Ready:
    """An arm's encoder.

    Attributes:
        encoder: trained, or as it was before.
        facts: JSON-able: parameters; pairs, steps, precision and seconds of a training.
        expansion: mean query vector of each tool text, for the arm that others are compared with.
    """

    encoder: SentenceEncoder
    facts: Mapping[str, Any]
    expansion: Mapping[str, Embeddings] = field(default_factory=dict)


class Trainings:
    """The arms' encoders, trained where they are not there yet.

    A training is found again by what it depends on. One that was killed leaves nothing; it starts anew.
    """

    def __init__(self, limit: int | None = None) -> None:
        self._limit = limit
        self._digests: dict[str, str] = {}
        self._last: tuple[str, Ready] | None = None

    def limit(self, ctx: RunContext) -> int | None:
        """Pairs trained on at most."""
        return self._limit or ctx.settings.limit

    def rows(self, ctx: RunContext, arm: Arm, data: EvalData) -> list[TrainingRow]:
        """Pairs an arm is trained on."""
        teacher = teacher_scores(arm.settings.teacher_scores)
        return rows_of(data, arm.settings, "train", self.limit(ctx), teacher)

    def key(self, ctx: RunContext, arm: Arm, number: int) -> str:
        """Digest of all that an arm's encoder depends on; tables, if it is trained."""
        settings = result_settings(ctx.settings.model_copy(update={"train": arm.settings}), ("train",))
        del settings["train"]["siamese"]
        settings |= {"seed": ctx.settings.seed + number, "limit": self.limit(ctx)}
        tables = [ctx.paths.core / f"{name}.parquet" for name in TABLES if arm.trained]
        return digest(
            {
                "version": [__version__, _VERSION],
                "settings": settings,
                "weights": [self._digest(ctx, name) for name in arm.models],
                "teacher": teacher_digest(arm.settings.teacher_scores),
                "tables": {path.name: sha256_file(path) for path in tables},
            }
        )

    def kept(self, ctx: RunContext, arm: Arm, number: int) -> bool:
        """Whether a training is there already."""
        return folder_done(self._folder(ctx, arm, number), self.key(ctx, arm, number))

    def find(self, ctx: RunContext, arm: Arm, number: int) -> Ready:
        """An arm's encoder.

        Args:
            ctx: the run.
            arm: the arm.
            number: of the training, from 0; added to the run's seed.

        Raises:
            UserError: weights cannot be had, or there is nothing to train on.
        """
        key = self.key(ctx, arm, number)
        # The last one alone is held: sets follow each other, arm by arm.
        if self._last is None or self._last[0] != f"{arm.name}-{key}":
            self._last = None
            self._last = f"{arm.name}-{key}", self._loaded(ctx, arm, number, key)
        return self._last[1]

    def begin(self, ctx: RunContext) -> None:
        """Remove what a killed process left unfinished."""
        sweep(ctx.paths.raw / FOLDER)

    def forget(self, ctx: RunContext, arm: Arm, number: int) -> None:
        """Drop a training, so that it is done anew."""
        shutil.rmtree(self._folder(ctx, arm, number), ignore_errors=True)

    def _folder(self, ctx: RunContext, arm: Arm, number: int) -> Path:
        return ctx.paths.raw / FOLDER / f"{arm.name}-{number}"

    def _digest(self, ctx: RunContext, name: str) -> str:
        # Some are sums over gigabytes, and keys are made for every set.
        if name not in self._digests:
            self._digests[name] = ModelStore(ctx.settings.models).digest(name)
        return self._digests[name]

    def _loaded(self, ctx: RunContext, arm: Arm, number: int, key: str) -> Ready:
        if not arm.trained:
            encoder = SentenceEncoder(build_towers(arm.settings, *_paths(ctx, arm)), name=arm.name)
            return Ready(encoder, {"parameters": _parameters(encoder)})
        folder = self._folder(ctx, arm, number)
        if not folder_done(folder, key):
            write_folder(folder, key, lambda directory: self._train(ctx, arm, number, directory))
        encoder = load_two_tower(folder / MODEL, name=arm.name)
        expansion = load_expansion(folder / EXPANSION) if arm.name == CHOSEN else {}
        return Ready(encoder, read_json(folder / FACTS), expansion)

    def _train(self, ctx: RunContext, arm: Arm, number: int, directory: Path) -> None:
        data, settings, seed = load_core(ctx.paths.core), arm.settings, ctx.settings.seed + number
        rows = self.rows(ctx, arm, data)
        # Weights are the same, validated or not: it is only asked for where the training may stop by it.
        validation = (
            validation_of(data, settings, self.limit(ctx)) if settings.early_stopping != "off" else None
        )
        query_path, tool_path = _paths(ctx, arm)
        steps = len(training_plan(rows, settings, seed))
        start = time.perf_counter()
        with ctx.progress.task(f"encoder ablation: {arm.name}-{number}", total=steps, unit="steps") as task:
            result = train_two_tower(
                rows,
                settings,
                query_path=query_path,
                tool_path=tool_path,
                output=directory / MODEL,
                seed=seed,
                on_step=lambda loss: task.advance(1, note=f"loss {loss:.3f}"),
                validation=validation,
            )
        seconds = time.perf_counter() - start
        encoder = load_two_tower(directory / MODEL, name=arm.name)
        if arm.name == CHOSEN:
            save_expansion(directory / EXPANSION, expansion_of(rows, encoder))
        facts = {
            "parameters": _parameters(encoder),
            "pairs": len(rows),
            "steps": result.steps,
            "precision": result.precision,
            "seconds": round(seconds, 1),
        }
        write_json(directory / FACTS, facts)


def _paths(ctx: RunContext, arm: Arm) -> tuple[Path, Path]:
    """Folders of f_Q and f_T before training."""
    store = ModelStore(ctx.settings.models)
    return store.path(arm.models[0], ctx.progress), store.path(arm.models[-1], ctx.progress)


def _parameters(encoder: SentenceEncoder) -> int:
    return sum(int(p.numel()) for p in encoder.model.parameters())
