"""The lock file: every artifact a crawl reads, pinned by version, hash and size."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import resources
from pathlib import Path
from typing import Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from ecoagent.runs import digest, parse_json, write_json
from ecoagent.schema import catalog_of
from ecoagent.schema.tools import Source
from ecoagent.settings import CrawlSettings, UserError

LOCK_VERSION = 1
SHIPPED = "catalog.lock.json"
NAME = r"^(@[a-z0-9][\w.-]*/)?[A-Za-z0-9][\w.-]*$"
VERSION = r"^[0-9A-Za-z][\w.+!-]*$"
"""Names and versions that may be handed to a client: none of them reads as an option."""
_DATE = r"^\d{4}-\d{2}-\d{2}$"


class LockEntry(BaseModel):
    """One pinned artifact. ``sha256`` is checked before anything in the archive is read."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    source: Source = Field(description="Catalog and, for n8n, whether official or community.")
    ecosystem: Literal["pip", "npm", "http"] = Field(
        description="Client that fetches it; http: a snapshot of documentation pages."
    )
    name: str = Field(min_length=1, max_length=214, pattern=NAME)
    version: str = Field(min_length=1, max_length=100, pattern=VERSION)
    filename: str = Field(
        min_length=1, max_length=200, pattern=r"^[\w@+][\w.@+-]*$", description="Name of the file as stored."
    )
    sha256: str = Field(pattern=r"^[0-9a-f]{64}$")
    size: int = Field(gt=0, description="Bytes.")
    integrity: str | None = Field(
        default=None, pattern=r"^sha512-[A-Za-z0-9+/=]+$", description="npm's own hash."
    )
    licence: str | None = Field(default=None, description="SPDX identifier or the package's own words.")
    url: str | None = Field(
        default=None, pattern=r"^https?://", description="First page of a documentation snapshot."
    )
    published_at: str | None = Field(
        default=None, pattern=_DATE, description="UTC date this version was published, where known."
    )
    created_at: str | None = Field(
        default=None, pattern=_DATE, description="UTC date of the package's first version, where known."
    )
    downloads: int | None = Field(default=None, ge=0, description="Downloads where the listing gives them.")
    verified: bool | None = Field(default=None, description="Verified by the catalog's owner, where known.")

    @model_validator(mode="after")
    def _fits(self) -> LockEntry:
        if (self.ecosystem == "http") != (self.url is not None):
            raise ValueError("url goes with ecosystem http, and only with it")
        if self.ecosystem != "http" and (self.ecosystem == "npm") != (catalog_of(self.source) == "n8n"):
            raise ValueError(f"source {self.source} does not come from {self.ecosystem}")
        return self

    @property
    def catalog(self) -> str:
        """Catalog the artifact belongs to."""
        return catalog_of(self.source)

    @property
    def spec(self) -> str:
        """``name==version`` or ``name@version``, as the client takes it."""
        return f"{self.name}{'==' if self.ecosystem == 'pip' else '@'}{self.version}"

    @property
    def key(self) -> str:
        """Folder name of the artifact's shard, e.g. ``n8n__n8n-nodes-mcp``."""
        return f"{self.catalog}__{self.name.removeprefix('@').replace('/', '__')}"


class Lock(BaseModel):
    """The pinned artifacts, sorted by shard key."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    lock_version: Literal[1] = 1
    artifacts: tuple[LockEntry, ...]

    @model_validator(mode="after")
    def _unique(self) -> Lock:
        keys = [a.key for a in self.artifacts]
        twice = sorted({k for k in keys if keys.count(k) > 1})
        if twice:
            raise ValueError(f"artifact listed twice: {', '.join(twice)}")
        return self

    @property
    def digest(self) -> str:
        """SHA-256 of the content, independent of the file's layout and order."""
        return digest(
            sorted((a.model_dump(mode="json") for a in self.artifacts), key=lambda a: str(a["name"]))
        )


def load_lock(path: Path | None = None) -> Lock:
    """The lock file at ``path``, or the one shipped.

    Raises:
        UserError: the file is missing, is not JSON, or an entry is wrong; file and entry are named.
    """
    return read_pinned(
        Lock,
        path,
        SHIPPED,
        what="lock file",
        where="give a path with --set crawl.lock=PATH",
        remedy="mend the entry, or pin it anew from the package index",
    )


P = TypeVar("P", bound=BaseModel)


def read_pinned(model: type[P], path: Path | None, shipped: str, *, what: str, where: str, remedy: str) -> P:
    """A file of pinned artifacts.

    Args:
        model: what it holds; one of its fields is the list of ``LockEntry``.
        path: the file; ``None`` takes the shipped one.
        shipped: name of that.
        what: what to call it in errors.
        where: remedy where it cannot be read.
        remedy: remedy where an entry is wrong.

    Raises:
        UserError: the file is missing, is not JSON, or an entry is wrong; file and entry are named.
    """
    if path is None:
        shown = f"shipped {shipped}"
        text = resources.files("ecoagent.crawlers").joinpath("data", shipped).read_text("utf-8")
    else:
        shown = str(path)
        try:
            text = path.read_text("utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise UserError(f"{what} {shown} cannot be read: {error}", remedy=where) from error
    try:
        data = parse_json(text)
    except ValueError as error:
        raise UserError(f"{what} {shown} is not JSON: {error}", remedy="mend the line named") from error
    try:
        return model.model_validate(data)
    except ValidationError as error:
        raise UserError(f"{what} {shown}: {_explain(error, data)}", remedy=remedy) from error


def _explain(error: ValidationError, data: Any) -> str:
    lines = []
    for item in error.errors():
        place = [str(p) for p in item["loc"]]
        if len(item["loc"]) > 1 and isinstance(item["loc"][1], int):
            entry = data[item["loc"][0]][item["loc"][1]]
            name = entry.get("name", "without a name") if isinstance(entry, dict) else repr(entry)
            version = entry.get("version", "") if isinstance(entry, dict) else ""
            place = [f"entry {item['loc'][1] + 1} ({f'{name} {version}'.strip()})", *place[2:]]
        lines.append(f"{' '.join(place) or 'file'}: {item['msg']}")
    return "; ".join(lines)


def save_lock(path: Path, lock: Lock) -> Path:
    """Write a lock file, entries sorted by shard key."""
    ordered = sorted(lock.artifacts, key=lambda a: a.key)
    return write_json(
        path,
        {
            "lock_version": LOCK_VERSION,
            "artifacts": [a.model_dump(mode="json", exclude_none=True) for a in ordered],
        },
    )


def selected(lock: Lock, crawl: CrawlSettings, *, limit: int | None = None) -> list[LockEntry]:
    """Artifacts the settings ask for, sorted by shard key.

    Args:
        lock: all pinned artifacts.
        crawl: catalogs, packages and whether n8n's official packages are wanted.
        limit: at most this many artifacts of each catalog; none = all.

    Raises:
        UserError: a package asked for is not in the lock file, or nothing is left to crawl.
    """
    known = {a.name for a in lock.artifacts}
    missing = sorted(set(crawl.packages) - known)
    if missing:
        raise UserError(
            f"crawl.packages names {', '.join(missing)}, not in the lock file",
            remedy=f"choose among {', '.join(sorted(known))}, or give another lock file with crawl.lock",
        )
    chosen: list[LockEntry] = []
    taken: dict[str, int] = {}
    for entry in sorted(lock.artifacts, key=lambda a: a.key):
        if entry.catalog not in crawl.catalogs or (crawl.packages and entry.name not in crawl.packages):
            continue
        if entry.source == "n8n_official" and not crawl.n8n_official:
            continue
        if crawl.backend != "both" and (entry.ecosystem == "http") != (crawl.backend == "http"):
            continue
        if limit is not None and taken.get(entry.catalog, 0) >= limit:
            continue
        taken[entry.catalog] = taken.get(entry.catalog, 0) + 1
        chosen.append(entry)
    if not chosen:
        raise UserError(
            "the crawl settings leave no artifact to read",
            remedy="widen crawl.catalogs or crawl.packages, set crawl.n8n_official=true, or take another "
            "--backend; pages are pinned with `ecoagent crawl --update-lock --backend http --lock FILE`",
        )
    return chosen


def replace_entries(lock: Lock, fresh: Sequence[LockEntry]) -> Lock:
    """The lock with ``fresh`` in place of entries of the same key, others kept."""
    merged = {a.key: a for a in lock.artifacts} | {a.key: a for a in fresh}
    return Lock(artifacts=tuple(merged[k] for k in sorted(merged)))
