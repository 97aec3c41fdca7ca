"""One of several training processes: ``torchrun … -m ecoagent.retrieval.train_process FOLDER``."""

from __future__ import annotations

import os
import pickle
import sys
from pathlib import Path

from ecoagent.retrieval.training import TrainingJob, run_job
from ecoagent.retrieval.workers import ERROR, JOB, RESULT, STEP, end_with_parents
from ecoagent.settings import UserError, quiet_environment


def main(folder: Path) -> int:
    """Train on this process's share; the first process writes what was found. Returns the exit code."""
    quiet_environment()
    first = os.environ.get("RANK", "0") == "0"
    end_with_parents(folder, first=first)
    job: TrainingJob = pickle.loads((folder / JOB).read_bytes())
    try:
        result = run_job(job, lambda loss: print(f"{STEP}{loss!r}", flush=True) if first else None)
    except UserError as error:
        if first:
            (folder / ERROR).write_bytes(pickle.dumps(error))
        return error.exit_code
    if first:
        (folder / RESULT).write_bytes(pickle.dumps(result))
    import torch

    if torch.distributed.is_initialized():
        # One that leaves early closes connections that the others may still be using.
        torch.distributed.barrier()
        torch.distributed.destroy_process_group()
    return 0


if __name__ == "__main__":
    code = main(Path(sys.argv[1]))
    sys.stdout.flush()
    sys.stderr.flush()
    # Everything is written: threads of the libraries must not race the interpreter's end.
    os._exit(code)
