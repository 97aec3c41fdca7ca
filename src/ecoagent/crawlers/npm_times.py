"""When the versions of an npm package were published, as the user's own npm answers."""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from ecoagent.crawlers.client import FetchError, _run, npm_command
from ecoagent.runs import parse_json

CREATED, MODIFIED = "created", "modified"
_VERSION = re.compile(r"^(\d+)\.(\d+)\.(\d+)$")


class DatesUnknownError(FetchError):
    """The index answered, but its times are not those of publication: nothing is to be dated by them."""


def publication_times(name: str, *, timeout_s: float = 60.0) -> dict[str, str]:
    """Version to UTC time of publication (ISO 8601), with ``created`` for the package itself.

    Args:
        name: npm package, with its scope.
        timeout_s: limit of the one npm call, seconds.

    Raises:
        DatesUnknownError: the index gives no times, or times at which it took the versions over.
        FetchError: npm failed: the package is gone, or the index cannot be reached.
        ClientMissingError: npm is not installed.
    """
    # Few retries, as for packages: without a network this should be said soon.
    arguments = ["view", "--json", "--fetch-retries=1", name, "time"]
    return read_times(_run([*npm_command(), *arguments], f"npm view {name} time", timeout_s), name)


def read_times(answer: str, name: str) -> dict[str, str]:
    """Times out of npm's answer.

    Mirrors often keep the time at which they first took a version over. Such an answer lacks
    ``created``, which the registry's own documents have, and dates later releases before earlier
    ones; both are refused, since a wrong date is worse than none.

    Raises:
        DatesUnknownError: the answer holds no times, or not those of publication.
    """
    found = _table(answer)
    times = {v: t for v, raw in found.items() if (t := _utc(raw)) is not None}
    if not times:
        raise _unknown(name, "gives no times")
    if CREATED not in times:
        raise _unknown(name, f"gives no time of creation for its {len(times)} versions, as mirrors do")
    if pair := out_of_order(times):
        raise _unknown(name, f"dates {pair[1]} before {pair[0]}")
    return dict(sorted(times.items()))


def date_of(times: Mapping[str, str], key: str) -> str | None:
    """UTC date (YYYY-MM-DD) of a version or of ``created``; ``None`` where it is not known."""
    return times[key][:10] if key in times else None


def out_of_order(times: Mapping[str, str]) -> tuple[str, str] | None:
    """Two releases of one minor line of which the later number is dated earlier, if there are any.

    Only within a line: fixes of an old line do come out after the first release of a new one.
    """
    lines: dict[tuple[int, int], list[tuple[int, str]]] = {}
    for version in times:
        if match := _VERSION.match(version):
            major, minor, patch = (int(g) for g in match.groups())
            lines.setdefault((major, minor), []).append((patch, version))
    for line in sorted(lines):
        ordered = [v for _, v in sorted(lines[line])]
        for earlier, later in itertools.pairwise(ordered):
            # Whole days: the order within a day proves nothing.
            if times[later][:10] < times[earlier][:10]:
                return earlier, later
    return None


def _unknown(name: str, why: str) -> DatesUnknownError:
    return DatesUnknownError(
        f"the npm index in use does not tell when {name} was published: it {why}",
        remedy="leave the dates empty, or set npm to an index that keeps them",
    )


def _table(answer: str) -> dict[str, Any]:
    """The table of times, however npm wraps it: bare, in a list, under the package's name or ``time``."""
    try:
        value: Any = parse_json(answer) if answer.strip() else {}
    except ValueError:
        return {}
    for _ in range(4):
        if isinstance(value, list):
            value = value[-1] if value else {}
        elif isinstance(value, dict) and any(isinstance(v, dict | list) for v in value.values()):
            nested = value.get("time")
            value = (
                nested
                if isinstance(nested, dict)
                else next(v for v in value.values() if isinstance(v, dict | list))
            )
        else:
            break
    return value if isinstance(value, dict) else {}


def _utc(raw: Any) -> str | None:
    if not isinstance(raw, str):
        return None
    try:
        moment = datetime.fromisoformat(raw)
    except ValueError:
        return None
    moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
