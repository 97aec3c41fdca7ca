"""The crawl stage: one shard an artifact, candidates as JSON lines."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any, ClassVar, Literal

from pydantic import BaseModel, ValidationError

from ecoagent.crawlers.archives import MIB, Limits, read_members
from ecoagent.crawlers.artifacts import ArtifactStore, HashMismatchError
from ecoagent.crawlers.catalogs import parse_artifact
from ecoagent.crawlers.client import ClientMissingError
from ecoagent.crawlers.costs import Wanted, cost_of
from ecoagent.crawlers.lock import Lock, LockEntry, load_lock, selected
from ecoagent.crawlers.merging import not_a_candidate
from ecoagent.crawlers.n8n_auth import BORROWED, TYPES
from ecoagent.crawlers.records import NOT_DEPRECATED, PARSER_VERSION, candidate, provenance
from ecoagent.runs import (
    RunContext,
    Shard,
    ShardResult,
    Stage,
    StageReport,
    iter_lines,
    read_json,
    write_json,
    write_jsonl,
)
from ecoagent.runs.stage import SHARD_MARKER
from ecoagent.schema import Candidate, ToolRecord
from ecoagent.settings import Settings, UserError

CANDIDATES, FAILURE = "candidates.jsonl", "failure.json"
SUMMARY = "crawl_summary.json"
_PARSE_SECONDS_PER_MB = 1.5


class CrawlStage(Stage):
    """Fetches and reads every selected artifact of the lock file."""

    name: ClassVar[str] = "crawl"
    version: ClassVar[str] = PARSER_VERSION
    sections: ClassVar[tuple[str, ...]] = ("crawl",)
    shards_alone: ClassVar[bool] = True  # one more artifact in the lock must not have the others read again

    def extra_key(self, ctx: RunContext) -> dict[str, Any]:
        """Digest of the lock file's content."""
        return {"lock": lock_of(ctx.settings).digest}

    def plan(self, ctx: RunContext) -> list[Shard]:
        """One shard an artifact."""
        return [Shard(e.key, (e.spec,)) for e in entries_of(ctx.settings)]

    def shard_content(self, ctx: RunContext, shard: Shard) -> Any:
        """The artifact's lock entry, those it borrows from, the granularity and the parser's version."""
        return {
            "entry": self._entry(ctx, shard).model_dump(mode="json"),
            "granularity": ctx.settings.crawl.granularity,
            "parser": PARSER_VERSION,
            "lenders": [e.sha256 for e in lenders(ctx.settings, self._entry(ctx, shard))],
        }

    def estimate(self, ctx: RunContext) -> dict[str, Any]:
        """Artifacts, client calls, requests, MB to fetch and minutes; nothing is fetched for it."""
        entries = entries_of(ctx.settings)
        store = ArtifactStore.of(ctx.settings.crawl, ctx.settings.http)
        cost = cost_of(
            [Wanted(e.ecosystem, e.name, e.size) for e in store.missing(entries)], ctx.settings.http
        )
        parse_seconds = sum(e.size for e in entries) / 1e6 * _PARSE_SECONDS_PER_MB
        return {
            "artifacts": len(entries),
            "client_calls": cost.client_calls,
            **({"requests": cost.requests} if any(e.ecosystem == "http" for e in entries) else {}),
            "download_mb": round(cost.megabytes, 2),
            "minutes": round((cost.seconds + parse_seconds) / 60, 2),
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
            store = ArtifactStore.of(crawl, ctx.settings.http)
            path = store.fetch(entry)
            found = parse_artifact(
                path,
                entry,
                crawl.granularity,
                max_member_mb=crawl.max_member_mb,
                borrowed={
                    f"{BORROWED}{e.key}": credential_types(store.fetch(e), e.sha256, crawl.max_member_mb)
                    for e in lenders(ctx.settings, entry)
                },
            )
            write_jsonl(directory / CANDIDATES, found)
            return
        except (HashMismatchError, ClientMissingError):
            raise
        except UserError as error:
            # One dead package must not end the crawl of the others: it is a reject with a reason.
            ctx.progress.say(f"crawl: {entry.spec} left out: {error.message}")
            write_json(directory / FAILURE, {"artifact": entry.spec, "detail": str(error)})
            why = error.message
        except (ValueError, RecursionError) as error:
            # Text no record can hold, or nested too deeply: the package's fault, and its alone.
            why = f"{entry.spec} left out: {type(error).__name__}: {str(error)[:300]}"
            ctx.progress.say(f"crawl: {why}")
            write_json(directory / FAILURE, {"artifact": entry.spec, "detail": why})
        write_jsonl(directory / CANDIDATES, [unavailable(entry, why)])

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
            here: Counter[str] = Counter()
            reasons = rejected.setdefault(entry.source, Counter())
            for status in _statuses(result.directory / CANDIDATES):
                here[status.status] += 1
                if status.status == "rejected":
                    reasons[status.reason or "unknown"] += 1
            kept[entry.source] += here["kept"]
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


def lenders(settings: Settings, entry: LockEntry) -> list[LockEntry]:
    """Crawled packages of n8n's own whose credential types a node of ``entry`` may name.

    Only what the settings crawl anyway: what else lies in the store must not change a result.
    """
    if entry.ecosystem != "npm":
        return []
    return [e for e in entries_of(settings) if e.source == "n8n_official" and e.key != entry.key]


@lru_cache(maxsize=4)
def credential_types(path: Path, sha256: str, max_member_mb: int) -> bytes:
    """The list of credential types a package of n8n's ships, as JSON; an empty list if it has none.

    Args:
        path: the verified artifact.
        sha256: its hash; several shards borrow from one artifact, which is read once.
        max_member_mb: larger members are refused, MiB.

    Raises:
        UserError: the archive cannot be read.
    """
    limits = Limits(member_bytes=max_member_mb * MIB)
    return read_members(path, lambda p: p == TYPES, limits).get(TYPES, b"[]")


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


class _Status(BaseModel):
    """What the summary counts of a candidate; the record is not looked at."""

    status: Literal["kept", "rejected"]
    reason: str | None = None


def _statuses(path: Path) -> Iterator[_Status]:
    for number, line in enumerate(iter_lines(path), start=1):
        if line:
            try:
                yield _Status.model_validate_json(line)
            except ValidationError as error:
                raise not_a_candidate(path, number, error) from error


def iter_candidates(raw: Path) -> Iterator[Candidate]:
    """All candidates of a crawl, shards in name order, one in memory at a time.

    Args:
        raw: the run's ``raw`` folder.

    Raises:
        UserError: a line is not a candidate; file and line are named.
    """
    for path in candidate_files(raw):
        for number, line in enumerate(iter_lines(path), start=1):
            if not line:
                continue
            try:
                yield Candidate.model_validate_json(line)
            except ValidationError as error:
                raise not_a_candidate(path, number, error) from error


def load_candidates(raw: Path) -> list[Candidate]:
    """The same as a list."""
    return list(iter_candidates(raw))


def candidate_files(raw: Path) -> list[Path]:
    """The candidate files of a crawl, in name order."""
    return sorted((raw / CrawlStage.name).glob(f"*/{CANDIDATES}"))
