"""Column rules derived from the records: one declaration, three readers.

A rule becomes a pandera check (hand-over), a Great Expectations expectation (release gate) and a
polars expression (which rows failed), so that the three cannot disagree.
"""

from __future__ import annotations

import types
from dataclasses import dataclass
from typing import Any, Literal, Union, get_args, get_origin

import polars as pl

from ecoagent.schema import Record

Severity = Literal["critical", "warning"]
Kind = Literal["not_null", "in_set", "between", "matches"]

_COSINE_SLACK = 1e-6
"""float32 cosines of unit vectors pass 1 by rounding."""

COSINE = (-1.0 - _COSINE_SLACK, 1.0 + _COSINE_SLACK)
UNIT = (0.0, 1.0)
COUNT = (0.0, None)

RANGES: dict[str, tuple[float | None, float | None]] = {
    "r_cons": COSINE,
    "w_src": UNIT,
    "r_qual": UNIT,
    "r_static": UNIT,
    "encoder_score": COSINE,
    "score": COSINE,
    "cosine": COSINE,
    "status": (100.0, 599.0),
    "verifier_raw": UNIT,
    "verifier_probability": UNIT,
    "verifier_score": UNIT,
    "latency_ms": COUNT,
    "label": UNIT,
    "grade": (1.0, 1.0),
    "round_trip_rank": (1.0, None),
    "tokens_in": COUNT,
    "tokens_out": COUNT,
    "step": COUNT,
    "downloads": COUNT,
    "iteration": COUNT,
    "searched_as": COUNT,
}
"""Closed range of every numeric column, by name; a numeric column without one is a TypeError."""

_TOOL_ID = r"^(?:langchain|crewai|llamaindex|n8n):\S"
_NOT_EMPTY = r"\S"

PATTERNS: dict[str, tuple[str, Severity]] = {
    "query_id": (r"^q:(?:syn|real):[0-9a-f]{12}$", "critical"),
    "tool_id": (_TOOL_ID, "critical"),
    "source_tool_id": (_TOOL_ID, "critical"),
    "duplicate_group": (_TOOL_ID, "critical"),
    "request_hash": (r"^[0-9a-f]{64}$", "critical"),
    "response_hash": (r"^[0-9a-f]{64}$", "critical"),
    "language": (r"^(?:[a-z]{2}|unknown)$", "warning"),
    "name": (_NOT_EMPTY, "critical"),
    "description": (_NOT_EMPTY, "critical"),
    "tool_text": (_NOT_EMPTY, "critical"),
    "provider": (_NOT_EMPTY, "critical"),
    "reason": (_NOT_EMPTY, "critical"),
}
"""Pattern of a text column, by name, and how bad a breach is."""


@dataclass(frozen=True)
class ColumnRule:
    """What every value of a column must satisfy. Nulls are the business of ``not_null`` alone."""

    column: str
    kind: Kind
    severity: Severity = "critical"
    values: tuple[str, ...] = ()
    low: float | None = None
    high: float | None = None
    pattern: str = ""

    @property
    def name(self) -> str:
        """``kind:column``, the reason written beside a failing row."""
        return f"{self.kind}:{self.column}"

    def broken(self) -> pl.Expr:
        """True where a row breaks the rule; never null."""
        column = pl.col(self.column)
        if self.kind == "not_null":
            return column.is_null()
        if self.kind == "in_set":
            bad = ~column.is_in(list(self.values))
        elif self.kind == "matches":
            bad = ~column.str.contains(self.pattern)
        else:
            number = column.cast(pl.Float64)
            bad = ~number.is_finite()
            if self.low is not None:
                bad = bad | (number < self.low)
            if self.high is not None:
                bad = bad | (number > self.high)
        return bad.fill_null(False)

    def limits(self) -> str:
        """The limit in words, for the audit's JSON."""
        return {
            "not_null": "never null",
            "in_set": "one of " + ", ".join(self.values),
            "matches": f"matches {self.pattern}",
            "between": f"from {_shown(self.low)} to {_shown(self.high)}",
        }[self.kind]


def _shown(value: float | None) -> str:
    return "any" if value is None else f"{value:g}"


def is_optional(annotation: Any) -> bool:
    """Whether a field's annotation allows null."""
    return get_origin(annotation) in (Union, types.UnionType) and type(None) in get_args(annotation)


def _inner(annotation: Any) -> Any:
    if is_optional(annotation):
        return next(a for a in get_args(annotation) if a is not type(None))
    return annotation


def column_rules(model: type[Record], *, lenient: frozenset[str] = frozenset()) -> tuple[ColumnRule, ...]:
    """Rules of a record's columns: null, vocabulary, range, pattern.

    Args:
        model: the record a row is.
        lenient: columns whose pattern does not hold here (rejects may lack a description).

    Raises:
        TypeError: a numeric column has no declared range.
    """
    rules: list[ColumnRule] = []
    for name, field in model.model_fields.items():
        inner = _inner(field.annotation)
        if not is_optional(field.annotation):
            rules.append(ColumnRule(name, "not_null"))
        if get_origin(inner) is Literal:
            rules.append(ColumnRule(name, "in_set", values=tuple(get_args(inner))))
        elif inner in (int, float):
            if name not in RANGES:
                raise TypeError(f"{model.__name__}.{name} is numeric and has no range in audit.rules.RANGES")
            low, high = RANGES[name]
            rules.append(ColumnRule(name, "between", low=low, high=high))
        elif inner is str and name in PATTERNS and name not in lenient:
            pattern, severity = PATTERNS[name]
            rules.append(ColumnRule(name, "matches", severity=severity, pattern=pattern))
    return tuple(rules)
