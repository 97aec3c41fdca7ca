"""A training in several processes, one a GPU, started through torchrun."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ecoagent.settings import UserError

JOB, RESULT, ERROR = "job.pickle", "result.pickle", "error.pickle"
ENTRY = "ecoagent.retrieval.train_process"
STEP = "step "
"""A line of the first process's output: this word and the loss."""


def inside_torchrun() -> bool:
    """Whether this process is one of several that train together."""
    return int(os.environ.get("WORLD_SIZE", "1")) > 1


def launch(job: Any, processes: int, on_step: Callable[[float], None] | None) -> Any:
    """Run ``job`` in ``processes`` processes of this machine; returns what the first one found.

    Raises:
        UserError: the training raised it, or a process died.
    """
    with tempfile.TemporaryDirectory(prefix="ecoagent-train-") as folder:
        (Path(folder) / JOB).write_bytes(pickle.dumps(job))
        torchrun = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(processes))
        with (Path(folder) / "errors.txt").open("w+", encoding="utf-8") as errors:
            # The workers end with this process: their next line finds no reader.
            with subprocess.Popen(
                [sys.executable, *torchrun, "-m", ENTRY, folder],
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
            raise UserError(
                f"training in {processes} processes ended with code {process.returncode}:\n{said[-2000:]}",
                remedy="see the lines above; train.processes = 1 trains in this process",
            )
        return pickle.loads((Path(folder) / RESULT).read_bytes())
