"""The crawl stage: one shard an artifact, candidates as JSON lines."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any, ClassVar

from ecoagent.crawlers.artifacts import ArtifactStore, HashMismatchError
from ecoagent.crawlers.catalogs import parse_artifact
from ecoagent.crawlers.client import ClientMissingError
from ecoagent.crawlers.lock import Lock, LockEntry, load_lock, selected
from ecoagent.crawlers.records import NOT_DEPRECATED, PARSER_VERSION, candidate, provenance
from ecoagent.runs import (
    RunContext,
    Shard,
    ShardResult,
    Stage,
    StageReport,
    read_json,
    read_jsonl,
    write_json,
    write_jsonl,
)
from ecoagent.runs.stage import SHARD_MARKER
from ecoagent.schema import Candidate, ToolRecord
from ecoagent.settings import Settings, UserError

CANDIDATES, FAILURE = "candidates.jsonl", "failure.json"
SUMMARY = "crawl_summary.json"
_SECONDS_PER_CALL, _MB_PER_SECOND, _PARSE_SECONDS_PER_MB = 2.0, 4.0, 1.5


class CrawlStage(Stage):
    """Fetches and reads every selected artifact of the lock file."""

    name: ClassVar[str] = "crawl"
    version: ClassVar[str] = PARSER_VERSION
    sections: ClassVar[tuple[str, ...]] = ("crawl",)

    def extra_key(self, ctx: RunContext) -> dict[str, Any]:
        """Digest of the lock file's content."""
        return {"lock": lock_of(ctx.settings).digest}

    def plan(self, ctx: RunContext) -> list[Shard]:
        """One shard an artifact."""
        return [Shard(e.key, (e.spec,)) for e in entries_of(ctx.settings)]

    def shard_content(self, ctx: RunContext, shard: Shard) -> Any:
        """The artifact's lock entry, the granularity and the parser's version."""
        return {
            "entry": self._entry(ctx, shard).model_dump(mode="json"),
            "granularity": ctx.settings.crawl.granularity,
            "parser": PARSER_VERSION,
        }

    def estimate(self, ctx: RunContext) -> dict[str, Any]:
        """Artifacts, client calls, MB to fetch and minutes; nothing is fetched for it."""
        entries = entries_of(ctx.settings)
        missing = ArtifactStore.of(ctx.settings.crawl).missing(entries)
        fetch_mb = sum(e.size for e in missing) / 1e6
        total_mb = sum(e.size for e in entries) / 1e6
        seconds = (
            len(missing) * _SECONDS_PER_CALL + fetch_mb / _MB_PER_SECOND + total_mb * _PARSE_SECONDS_PER_MB
        )
        return {
            "artifacts": len(entries),
            "client_calls": len(missing),
            "download_mb": round(fetch_mb, 2),
            "minutes": round(seconds / 60, 2),
        }

    def run_shard(self, ctx: RunContext, shard: Shard, directory: Path) -> None:
        """Fetch, verify and parse one artifact.

        Raises:
            HashMismatchError: the artifact is not the one pinned; this ends the crawl.
            ClientMissingError: pip or npm is not installed; no other artifact would fare better.
        """
        entry = self._entry(ctx, shard)
        crawl = ctx.settings.crawl
        try:
            path = ArtifactStore.of(crawl).fetch(entry)
            found = parse_artifact(path, entry, crawl.granularity, max_member_mb=crawl.max_member_mb)
        except (HashMismatchError, ClientMissingError):
            raise
        except UserError as error:
            # One dead package must not end the crawl of the others: it is a reject with a reason.
            ctx.progress.say(f"crawl: {entry.spec} left out: {error.message}")
            write_json(directory / FAILURE, {"artifact": entry.spec, "detail": str(error)})
            found = [unavailable(entry, error.message)]
        write_jsonl(directory / CANDIDATES, found)

    def merge(self, ctx: RunContext, results: list[ShardResult]) -> StageReport:
        """Count candidates by source and reason and write the summary.

        Raises:
            UserError: not one artifact could be read.
        """
        entries = {e.key: e for e in entries_of(ctx.settings)}
        failures: dict[str, str] = {}
        kept: Counter[str] = Counter()
        rejected: dict[str, Counter[str]] = {}
        artifacts: list[dict[str, Any]] = []
        for result in sorted(results, key=lambda r: r.shard.key):
            entry = entries[result.shard.key]
            rows = read_jsonl(result.directory / CANDIDATES)
            here = Counter(r["status"] for r in rows)
            kept[entry.source] += here["kept"]
            reasons = rejected.setdefault(entry.source, Counter())
            reasons.update(r["reason"] for r in rows if r["status"] == "rejected")
            artifacts.append(
                {
                    "artifact": entry.spec,
                    "source": entry.source,
                    "sha256": entry.sha256,
                    "kept": here["kept"],
                    "rejected": here["rejected"],
                }
            )
            if (result.directory / FAILURE).is_file():
                failures[result.shard.key] = str(read_json(result.directory / FAILURE)["detail"])
        self._forget_failed(results, failures)
        if failures and len(failures) == len(results):
            first = failures[min(failures)]
            raise UserError(
                f"none of the {len(results)} artifacts could be read; the first: {first}",
                remedy="check the network and the configuration of pip and npm, then run the command again",
            )
        summary = {
            "granularity": ctx.settings.crawl.granularity,
            "parser_version": PARSER_VERSION,
            "lock": lock_of(ctx.settings).digest,
            "kept": dict(sorted(kept.items())),
            "rejected": {s: dict(sorted(c.items())) for s, c in sorted(rejected.items())},
            "artifacts": artifacts,
            "incomplete": sorted(failures),
        }
        path = write_json(ctx.paths.raw / SUMMARY, summary)
        totals: Counter[str] = sum(rejected.values(), Counter())
        return StageReport(
            outputs=[path],
            rows=dict(sorted(kept.items())),
            rejects=dict(sorted(totals.items())),
            summary=summary,
        )

    @staticmethod
    def _forget_failed(results: list[ShardResult], failures: dict[str, str]) -> None:
        """Let the next execution try the failed shards again, and only those."""
        for result in results:
            if result.shard.key in failures:
                (result.directory / SHARD_MARKER).unlink(missing_ok=True)

    @staticmethod
    def _entry(ctx: RunContext, shard: Shard) -> LockEntry:
        return next(e for e in entries_of(ctx.settings) if e.key == shard.key)


def lock_of(settings: Settings) -> Lock:
    """The lock file the settings name."""
    return load_lock(settings.crawl.lock)


def entries_of(settings: Settings) -> list[LockEntry]:
    """The artifacts a crawl with these settings reads."""
    return selected(lock_of(settings), settings.crawl, limit=settings.limit)


def unavailable(entry: LockEntry, detail: str) -> Candidate:
    """The reject that stands for a package that could not be fetched or read."""
    record = ToolRecord(
        id=f"{entry.source}:{entry.name}",
        source=entry.source,
        name=entry.name,
        description="",
        description_origin="none",
        kind="package",
        granularity="package",
        group_id=entry.name,
        version=entry.version,
        auth_required="unknown",
        deprecated=NOT_DEPRECATED,
        licence=entry.licence,
        provenance=provenance(entry, ""),
    )
    return candidate(record, "unavailable", detail)


def load_candidates(raw: Path) -> list[Candidate]:
    """All candidates of a crawl, shards in name order.

    Args:
        raw: the run's ``raw`` folder.

    Raises:
        UserError: a line is not a candidate; file and line are named.
    """
    found: list[Candidate] = []
    for path in candidate_files(raw):
        for number, line in enumerate(path.read_text("utf-8").splitlines(), start=1):
            if not line:
                continue
            try:
                found.append(Candidate.model_validate_json(line))
            except ValueError as error:
                raise UserError(
                    f"file {path} row {number} is not a candidate: {error}",
                    remedy="run `ecoagent crawl` again; a file written by another version must be made anew",
                ) from error
    return found


def candidate_files(raw: Path) -> list[Path]:
    """The candidate files of a crawl, in name order."""
    return sorted((raw / CrawlStage.name).glob(f"*/{CANDIDATES}"))
