"""What ``ecoagent crawl`` does beside running the stage: digests and the lock file."""

from __future__ import annotations

from pathlib import Path

from ecoagent.cli.show import show_rows
from ecoagent.runs import Progress, RunContext
from ecoagent.settings import Settings, UserError


def check(ctx: RunContext, digests: Path) -> int:
    """Compare crawled candidates with a file of digests; prints the differences and the closing line."""
    from ecoagent.crawlers import check_digests, load_candidates

    report = check_digests(load_candidates(ctx.paths.raw / "crawl"), digests)
    show_rows("different", report.rows())
    Progress().say(report.line())
    return 0


def rewrite_lock(settings: Settings, lock: Path | None) -> int:
    """Fetch the locked versions anew and write their hashes to ``lock``.

    Raises:
        UserError: no file to write to was named.
    """
    from ecoagent.crawlers import update_lock

    if lock is None:
        raise UserError("--update-lock needs a file to write", remedy="give --lock FILE")
    entries = update_lock(lock, settings.crawl, Progress())
    show_rows(f"locked in {lock}", entries)
    return 0
