"""What ``ecoagent crawl`` does beside running the stage: digests and the lock file."""

from __future__ import annotations

import re
from pathlib import Path

from ecoagent.cli.show import show_rows
from ecoagent.runs import Progress, RunContext
from ecoagent.settings import Settings, UserError

PIN = re.compile(r"(?P<source>\w+):(?P<name>@?[^@=\s]+)(?:==|@)(?P<version>[^@=\s]+)")


def check(ctx: RunContext, digests: Path) -> int:
    """Compare crawled candidates with a file of digests; prints the differences and the closing line."""
    from ecoagent.crawlers import check_digests, load_candidates

    report = check_digests(load_candidates(ctx.paths.raw), digests)
    for line in report.lines():
        Progress().say(line)
    return 0


def rewrite_lock(settings: Settings, pins: list[str]) -> int:
    """Fetch the selected versions anew and write their hashes to the lock file of the settings.

    Args:
        settings: ``crawl.lock`` is the file written; its selected entries, or the shipped ones, are pinned.
        pins: further versions, ``SOURCE:NAME==VERSION`` or ``SOURCE:NAME@VERSION``.

    Raises:
        UserError: no file to write to was named, or a pin has another form.
    """
    from ecoagent.crawlers import ArtifactStore, Pin, load_lock, selected, update_lock
    from ecoagent.schema import SOURCES

    path = settings.crawl.lock
    if path is None:
        raise UserError("--update-lock needs a file to write", remedy="give --lock FILE")
    known = load_lock(path if path.is_file() else None)
    wanted = [
        Pin(e.source, e.name, e.version, e.licence)
        for e in selected(known, settings.crawl, limit=settings.limit)
    ]
    for text in pins:
        found = PIN.fullmatch(text)
        source = next((s for s in SOURCES if found and s == found["source"]), None)
        if found is None or source is None:
            raise UserError(
                f"--pin {text!r} is not SOURCE:NAME==VERSION",
                remedy=f"write e.g. --pin n8n_community:n8n-nodes-mcp@0.1.37; sources: {', '.join(SOURCES)}",
            )
        wanted = [p for p in wanted if p.name != found["name"]]
        wanted.append(Pin(source, found["name"], found["version"]))
    lock = update_lock(path, wanted, ArtifactStore.of(settings.crawl))
    show_rows(
        f"locked in {path}",
        [
            {"source": e.source, "artifact": e.spec, "sha256": e.sha256[:16], "bytes": e.size}
            for e in lock.artifacts
        ],
    )
    return 0
