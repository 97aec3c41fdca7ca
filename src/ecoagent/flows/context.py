"""From a flow's parameters to an open run: settings, lock, sweep, quiet Prefect home."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import psutil

from ecoagent.runs import Progress, RunContext, run_lock, sweep
from ecoagent.settings import load_settings


@contextmanager
def open_run(
    profile: str = "local",
    run: str | None = None,
    overrides: Sequence[str] = (),
    limit: int | None = None,
    seed: int | None = None,
    progress: Progress | None = None,
) -> Iterator[RunContext]:
    """The run these parameters name, locked for this process and swept of unfinished files.

    Raises:
        UserError: bad settings, or another process holds the run.
    """
    settings = load_settings(profile, overrides=overrides, run=run, limit=limit, seed=seed)
    ctx = RunContext.create(settings, progress)
    with run_lock(ctx.paths.root):
        sweep(ctx.paths.raw)
        for folder in (ctx.paths.core, ctx.paths.out, ctx.paths.report, ctx.paths.markers):
            sweep(folder)
        yield ctx


def prefect_home(root: Path) -> Path | None:
    """Folder for Prefect's database of a run; none where the user has set up Prefect themselves."""
    if os.environ.get("PREFECT_API_URL") or os.environ.get("PREFECT_HOME"):
        return None
    return root / ".prefect"


def reap_orphan_servers(home: Path) -> int:
    """End servers that a killed run left behind, holding its database; returns how many.

    Only Prefect servers whose ``PREFECT_HOME`` is this run's and that are no children of this process
    are touched. Call it with the run's lock held: no living run can own them then.
    """
    wanted = str(home.resolve())
    own = {child.pid for child in psutil.Process().children(recursive=True)}
    ended = 0
    for process in psutil.process_iter(["cmdline"]):
        if process.pid in own or "prefect.server" not in " ".join(process.info["cmdline"] or []):
            continue
        try:
            if process.environ().get("PREFECT_HOME") != wanted:
                continue
            process.kill()
            process.wait(10)
        except (psutil.NoSuchProcess, psutil.AccessDenied, psutil.TimeoutExpired):
            continue
        ended += 1
    return ended
