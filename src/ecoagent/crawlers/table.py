"""The table of packages: names seen in documentation, in the projects' own repositories, or here.

A prefix is not ownership: a name stands in the table because somebody who would know lists it.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable, Sequence
from dataclasses import astuple, dataclass, fields, replace
from importlib import resources
from pathlib import Path

from ecoagent.crawlers.lock import NAME, VERSION
from ecoagent.runs import write_text
from ecoagent.schema import SOURCES, catalog_of
from ecoagent.schema.tools import Source
from ecoagent.settings import UserError

SHIPPED = "packages.csv"
SHIPPED_WORD = "shipped"
"""Stands for the shipped table on the command line."""
_LONGEST = 214


@dataclass(frozen=True)
class Package:
    """A row of the table.

    Attributes:
        source: catalog, and for n8n whether official or community.
        package: name on its index.
        version: version to pin; empty = the newest.
        licence: as known; empty = what the package states.
        seen_in: where the name was seen, in a word.
        crawled: whether the shipped lock file pins it.
    """

    source: Source
    package: str
    version: str = ""
    licence: str = ""
    seen_in: str = ""
    crawled: bool = False


HEADER = tuple(f.name for f in fields(Package))


MAX_SHOWN = 200
"""Characters of a fault that a message shows."""


def load_table(path: Path | None = None) -> list[Package]:
    """The table at ``path``, or the one shipped, in the order of its rows.

    Raises:
        UserError: the file is missing or no table, or a row is wrong; file and row are named.
    """
    if path is None or (str(path) == SHIPPED_WORD and not path.exists()):
        text = resources.files("ecoagent.crawlers").joinpath("data", SHIPPED).read_text("utf-8")
        return _parsed(text, f"shipped {SHIPPED}")
    try:
        text = path.read_text("utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(
            f"table {path} cannot be read: {error}",
            remedy=f"give the path of a CSV file, or `{SHIPPED_WORD}` for the table that comes along",
        ) from error
    return _parsed(text, str(path))


def _parsed(text: str, shown: str) -> list[Package]:
    rows = csv.reader(io.StringIO(text))
    try:
        header = [h.strip() for h in next(rows, [])]
    except csv.Error as error:
        raise _wrong(shown, 1, f"is no CSV: {error}", "mend the row") from error
    missing = [name for name in ("source", "package") if name not in header]
    unknown = [name for name in header if name not in HEADER]
    twice = [name for name in header if header.count(name) > 1]
    if missing or unknown or twice:
        what = f"has column {twice[0]!r} twice" if twice else ""
        what = f"has an unknown column {unknown[0]!r}" if unknown else what
        what = f"lacks column {missing[0]!r}" if missing else what
        raise UserError(f"table {shown} row 1 {what}", remedy=f"begin it with the line {','.join(HEADER)}")
    found: list[Package] = []
    first: dict[tuple[str, str], int] = {}
    while True:
        try:
            values = next(rows)
        except StopIteration:
            break
        except csv.Error as error:
            raise _wrong(shown, rows.line_num, f"is no CSV: {error}", "mend the row") from error
        number = rows.line_num
        if not any(v.strip() for v in values):
            continue
        if len(values) > len(header):
            raise _wrong(shown, number, f"has {len(values)} values", f"give {len(header)}, as in row 1")
        package = _row(dict(zip(header, (v.strip() for v in values), strict=False)), shown, number)
        key = (package.source, plain_name(package.package))
        if key in first:
            raise _wrong(
                shown,
                number,
                f"repeats {package.package}, which is in row {first[key]}",
                "remove one of them",
            )
        first[key] = number
        found.append(package)
    return found


def _row(values: dict[str, str], shown: str, number: int) -> Package:
    source, name, version = values.get("source", ""), values.get("package", ""), values.get("version", "")
    if source not in SOURCES:
        raise _wrong(shown, number, f"has an unknown source {source!r}", f"use one of {', '.join(SOURCES)}")
    if not re.match(NAME, name) or len(name) > _LONGEST or ".." in name:
        raise _wrong(shown, number, f"has {name!r}, no name of a package", "write the name as its index does")
    if name.startswith("@") and catalog_of(source) != "n8n":
        raise _wrong(
            shown, number, f"has {name!r}, which is no name of a Python package", "correct the source"
        )
    if version and not re.match(VERSION, version):
        raise _wrong(shown, number, f"has {version!r}, no version", "write one version, or leave it empty")
    crawled = values.get("crawled", "").lower()
    if crawled not in ("", "yes", "no"):
        raise _wrong(shown, number, f"has {crawled!r} for crawled", "write yes or no")
    return Package(
        source=source,
        package=name,
        version=version,
        licence=values.get("licence", ""),
        seen_in=values.get("seen_in", ""),
        crawled=crawled == "yes",
    )


def _wrong(shown: str, number: int, what: str, remedy: str) -> UserError:
    # A cell may be a whole file by mistake.
    short = what if len(what) <= MAX_SHOWN else f"{what[:MAX_SHOWN]}…"
    return UserError(f"table {shown} row {number} {short}", remedy=remedy)


def plain_name(name: str) -> str:
    """The name in the form in which two spellings of one package are the same."""
    return name if name.startswith("@") else re.sub(r"[-_.]+", "-", name).lower()


def save_table(path: Path, packages: Iterable[Package]) -> Path:
    """Write a table, rows sorted by source and name; the file is whole or not there."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(HEADER)
    ordered = sorted(packages, key=lambda p: (SOURCES.index(p.source), plain_name(p.package)))
    for package in ordered:
        values = astuple(replace(package))
        writer.writerow([("yes" if v else "no") if isinstance(v, bool) else v for v in values])
    return write_text(path, out.getvalue())


def added(known: Sequence[Package], found: Iterable[Package]) -> list[Package]:
    """Those of ``found`` that are not in ``known`` yet, each once."""
    names = {plain_name(p.package) for p in known}
    fresh: list[Package] = []
    for package in found:
        if plain_name(package.package) not in names:
            names.add(plain_name(package.package))
            fresh.append(package)
    return fresh


def chosen(
    packages: Sequence[Package], catalogs: Sequence[str], *, n8n_official: bool, limit: int | None = None
) -> list[Package]:
    """Rows of the catalogs given; at most ``limit`` of each catalog, in the order of the table."""
    found: list[Package] = []
    taken: dict[str, int] = {}
    for package in packages:
        catalog = catalog_of(package.source)
        if catalog not in catalogs or (package.source == "n8n_official" and not n8n_official):
            continue
        if limit is not None and taken.get(catalog, 0) >= limit:
            continue
        taken[catalog] = taken.get(catalog, 0) + 1
        found.append(package)
    return found
