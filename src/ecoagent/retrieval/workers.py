"""A training in several processes, one a GPU, started through torchrun."""

from __future__ import annotations

import os
import pickle
import select
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ecoagent.settings import UserError

JOB, RESULT, ERROR = "job.pickle", "result.pickle", "error.pickle"
ENTRY = "ecoagent.retrieval.train_process"
STEP = "step "
"""A line of the first process's output: this word and the loss."""
LOOK_S = 0.5
"""Seconds between two looks at whether torchrun is still there."""


def inside_torchrun() -> bool:
    """Whether this process is one of several that train together."""
    return int(os.environ.get("WORLD_SIZE", "1")) > 1


def end_with_parents(folder: Path, *, first: bool) -> None:
    """End this process at once when the one that launched the training, or torchrun, is gone.

    torchrun gives each worker a session of its own, so that a signal to the launcher's group does not reach
    it. Standard input is the launcher's pipe, which the kernel closes however the launcher ends; nothing is
    ever written to it.

    Args:
        folder: with the job, which the launcher can no longer remove.
        first: whether this process removes it.
    """
    torchrun = os.getppid()

    def watch() -> None:
        while True:
            closed, _, _ = select.select([0], [], [], LOOK_S)
            if (closed and not os.read(0, 1)) or os.getppid() != torchrun:
                if first:
                    shutil.rmtree(folder, ignore_errors=True)
                # No clean-up: the main thread may wait for a process that is gone.
                os._exit(1)

    threading.Thread(target=watch, name="end-with-parents", daemon=True).start()


def launch(job: Any, processes: int, on_step: Callable[[float], None] | None) -> Any:
    """Run ``job`` in ``processes`` processes of this machine; returns what the first one found.

    Raises:
        UserError: the training raised it, or a process died.
    """
    with tempfile.TemporaryDirectory(prefix="ecoagent-train-") as folder:
        (Path(folder) / JOB).write_bytes(pickle.dumps(job))
        torchrun = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(processes))
        with (Path(folder) / "errors.txt").open("w+", encoding="utf-8") as errors:
            # The workers end with this process: see end_with_parents.
            with subprocess.Popen(
                [sys.executable, *torchrun, "-m", ENTRY, folder],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
            ) as process:
                for line in process.stdout or ():
                    if line.startswith(STEP) and on_step is not None:
                        on_step(float(line.removeprefix(STEP)))
            errors.seek(0)
            said = errors.read()
        if (Path(folder) / ERROR).is_file():
            error: UserError = pickle.loads((Path(folder) / ERROR).read_bytes())
            raise error
        if process.returncode or not (Path(folder) / RESULT).is_file():
            ended = f"training in {processes} processes ended with code {process.returncode}"
            raise UserError(
                f"{ended}:\n{_shortened(said)}",
                remedy="see the lines above; train.processes = 1 trains in this process",
            )
        return pickle.loads((Path(folder) / RESULT).read_bytes())


def _shortened(said: str, kept: int = 2000) -> str:
    """Both ends of what was said: a worker's own words come first, torchrun's about it last."""
    return said if len(said) <= kept else f"{said[: kept // 2]}\n…\n{said[-kept // 2 :]}"
