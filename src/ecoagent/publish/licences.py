"""Which records a licence policy lets out, and why the others stay in."""

from __future__ import annotations

import re
from typing import Literal

Policy = Literal["publish", "withhold", "all"]
Decision = Literal["publish", "withhold", "drop"]

OPEN_LICENCES: dict[str, str] = {
    "0BSD": "0bsd",
    "AFL-3.0": "afl-3.0",
    "AGPL-3.0": "agpl-3.0",
    "Apache-2.0": "apache-2.0",
    "BSD-2-Clause": "bsd-2-clause",
    "BSD-3-Clause": "bsd-3-clause",
    "CC-BY-4.0": "cc-by-4.0",
    "CC-BY-SA-4.0": "cc-by-sa-4.0",
    "CC0-1.0": "cc0-1.0",
    "EPL-2.0": "epl-2.0",
    "GPL-3.0": "gpl-3.0",
    "ISC": "isc",
    "LGPL-3.0": "lgpl-3.0",
    "MIT": "mit",
    "MPL-2.0": "mpl-2.0",
    "PSF-2.0": "psfl",
    "Python-2.0": "psfl",
    "Unlicense": "unlicense",
    "Zlib": "zlib",
}
"""SPDX identifiers that allow redistribution, and the Hub's spelling of each."""

_SPELLINGS = {
    "apache": "Apache-2.0",
    "apache 2": "Apache-2.0",
    "apache 2.0": "Apache-2.0",
    "apache software": "Apache-2.0",
    "bsd": "BSD-3-Clause",
    "bsd 3-clause": "BSD-3-Clause",
    "bsd 2-clause": "BSD-2-Clause",
    "mozilla public 2.0": "MPL-2.0",
    "the unlicense": "Unlicense",
}
_NOISE = re.compile(r"\b(?:the|licen[cs]e|license|version|v(?=\d))\b|[(),\"']", re.IGNORECASE)


def spdx(text: str | None) -> str | None:
    """SPDX identifier a package's own words stand for; the words themselves if they stand for none.

    None if there are no words. ``-only`` and ``-or-later`` are read as the licence itself.
    """
    if text is None or not text.strip():
        return None
    plain = text.strip()
    for known in OPEN_LICENCES:
        if plain.lower() in (known.lower(), f"{known.lower()}-only", f"{known.lower()}-or-later"):
            return known
    reduced = " ".join(_NOISE.sub(" ", plain).lower().split())
    for known in OPEN_LICENCES:
        if reduced == known.lower():
            return known
    return _SPELLINGS.get(reduced, plain)


def is_open(text: str | None) -> bool:
    """Whether a licence lets its text be redistributed; an unknown one does not."""
    return spdx(text) in OPEN_LICENCES


def hub_licence(text: str | None) -> str:
    """The Hub's identifier of a licence: ``other`` for those it has none for, ``unknown`` for none."""
    found = spdx(text)
    return "unknown" if found is None else OPEN_LICENCES.get(found, "other")


def decide(licence: str | None, policy: Policy) -> Decision:
    """What a policy does with a record of a licence."""
    if policy == "all" or is_open(licence):
        return "publish"
    return "withhold" if policy == "withhold" else "drop"


def refusal(licence: str | None) -> str:
    """Reason code of a record that is not let out as it is."""
    return "licence_unknown" if spdx(licence) is None else "licence_not_open"
