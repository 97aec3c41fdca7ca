"""Numbers of result files: rounded to what equal runs share."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ecoagent.evaluation.offline import DECIMALS


def rounded(value: Any) -> Any:
    """Floats of a JSON-like value rounded to what is stable between equal runs."""
    if isinstance(value, float):
        return round(value, DECIMALS)
    if isinstance(value, Mapping):
        return {key: rounded(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [rounded(item) for item in value]
    return value
