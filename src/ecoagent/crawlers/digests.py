"""Comparison of candidates with digests of an independent extraction."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ecoagent.runs import parse_json
from ecoagent.schema import Candidate, ToolRecord, catalog_of, fold_space
from ecoagent.settings import UserError

FIELDS = ("name", "desc", "auth", "params", "deprecated")


def short_hash(value: object) -> str:
    """First 16 hex digits of the SHA-256 of the value's compact JSON."""
    return hashlib.sha256(json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()).hexdigest()[
        :16
    ]


def digests_of(record: ToolRecord) -> dict[str, Any]:
    """The five digests of a record: name, description, auth names, parameter names, deprecated.

    n8n's name is what it shows; operations of toolkits are compared without auth and parameters.
    """
    n8n = catalog_of(record.source) == "n8n"
    name = fold_space(record.display_name or record.name) if n8n else fold_space(record.name)
    bare = record.kind == "toolkit_operation"
    return {
        "name": short_hash(name),
        "desc": short_hash(fold_space(record.description)),
        "auth": short_hash([] if bare else sorted({a.name for a in record.auth})),
        "params": short_hash([] if bare else sorted(set(record.parameter_names))),
        "deprecated": record.deprecated.state,
    }


@dataclass(frozen=True)
class Difference:
    """One field that is not equal."""

    id: str
    field: str


@dataclass(frozen=True)
class DigestReport:
    """Outcome of a comparison, counted over fields."""

    equal: int
    different: int
    listed: int
    differences: tuple[Difference, ...] = ()
    missing: tuple[str, ...] = ()
    by_catalog: dict[str, Counter[str]] = field(default_factory=dict)

    def line(self) -> str:
        """``N equal, M different, K listed``."""
        return f"{self.equal} equal, {self.different} different, {self.listed} listed"

    def lines(self) -> list[str]:
        """Every difference and missing tool, then the counts; the last line is ``line()``."""
        shown = [f"different: {d.id} {d.field}" for d in self.differences]
        shown += [f"missing: {m}" for m in self.missing]
        return [*shown, self.line()]


def check_digests(candidates: Iterable[Candidate], path: Path) -> DigestReport:
    """Compare candidates, kept and rejected, with a digest file.

    Only catalogs and packages that were crawled are compared; a listed tool of a crawled package
    that no candidate has counts as different in all its fields.

    Args:
        candidates: what the parsers emitted.
        path: JSON, catalog to id to ``{name, desc, auth, params, deprecated}``.

    Raises:
        UserError: the file is missing or has another form.
    """
    listed = _load(path)
    known: dict[str, dict[str, Any]] = {}
    for item in candidates:
        # Digests, not records: a catalog of operations is large.
        if item.record.id not in known or item.status == "kept":
            known[item.record.id] = digests_of(item.record)
    crawled = {package_of(i) for i in known}
    equal, different = 0, 0
    differences: list[Difference] = []
    missing: list[str] = []
    counts: dict[str, Counter[str]] = {}
    total = 0
    for catalog in sorted(listed):
        tally = counts.setdefault(catalog, Counter())
        for identifier in sorted(listed[catalog]):
            if package_of(identifier) not in crawled:
                tally["not_crawled"] += 1
                continue
            expected = listed[catalog][identifier]
            total += len(FIELDS)
            actual = known.get(identifier)
            if actual is None:
                missing.append(identifier)
                different += len(FIELDS)
                tally["missing"] += 1
                continue
            for name in FIELDS:
                if actual[name] == expected.get(name):
                    equal += 1
                    tally["equal"] += 1
                else:
                    different += 1
                    tally["different"] += 1
                    differences.append(Difference(identifier, name))
    return DigestReport(equal, different, total, tuple(differences), tuple(missing), counts)


def package_of(identifier: str) -> str:
    """Package part of a tool id, as far as ids tell it."""
    catalog, _, rest = identifier.partition(":")
    if catalog == "langchain":
        return f"{catalog}:{rest.partition('.')[0]}"
    if catalog == "llamaindex":
        return f"{catalog}:{rest.partition(':')[0]}"
    if catalog == "n8n":
        return f"{catalog}:{rest.partition('.')[0]}"
    return catalog


def _load(path: Path) -> dict[str, dict[str, dict[str, Any]]]:
    try:
        data = parse_json(path.read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise UserError(
            f"digest file {path} cannot be read: {error}", remedy="give the path of a digest file in JSON"
        ) from error
    if not isinstance(data, dict) or not all(
        isinstance(c, dict) and all(isinstance(v, dict) for v in c.values()) for c in data.values()
    ):
        raise UserError(
            f"digest file {path} is not catalog -> id -> digests", remedy="give a file of that form"
        )
    return data
