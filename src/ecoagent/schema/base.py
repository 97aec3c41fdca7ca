"""Pydantic base class of every record, and the Arrow and JSON Schemas derived from it.

One declaration serves validation, Parquet layout, audit expectations and the data card, so that
the four cannot drift apart.
"""

from __future__ import annotations

import hashlib
import json
import types
from typing import Any, Literal, Union, get_args, get_origin

import pyarrow as pa
from pydantic import BaseModel, ConfigDict

SCHEMA_VERSION = "1.3.0"
"""Bumped whenever a record's fields change; held by a test against ``schema_fingerprint``."""


class Record(BaseModel):
    """A row. Unknown fields are errors: a catalog that grows a field must not lose it silently."""

    model_config = ConfigDict(extra="forbid", frozen=True)


def arrow_type(annotation: Any) -> pa.DataType:
    """Arrow type of a record field's annotation.

    Raises:
        TypeError: the annotation has no agreed Arrow form.
    """
    origin = get_origin(annotation)
    if origin in (Union, types.UnionType):
        inner = [a for a in get_args(annotation) if a is not type(None)]
        if len(inner) == 1:
            return arrow_type(inner[0])
    if origin is Literal:
        return pa.string()
    if origin in (list, tuple):
        return pa.list_(arrow_type(get_args(annotation)[0]))
    if isinstance(annotation, type):
        if issubclass(annotation, BaseModel):
            return pa.struct(
                [pa.field(n, arrow_type(f.annotation)) for n, f in annotation.model_fields.items()]
            )
        simple = {str: pa.string(), bool: pa.bool_(), int: pa.int64(), float: pa.float64()}
        if annotation in simple:
            return simple[annotation]
    raise TypeError(f"no Arrow type for {annotation!r}")


def arrow_schema(model: type[Record]) -> pa.Schema:
    """Arrow schema of a table of ``model`` rows, columns in declaration order."""
    return pa.schema([pa.field(name, arrow_type(f.annotation)) for name, f in model.model_fields.items()])


def json_schema(model: type[Record]) -> dict[str, Any]:
    """JSON Schema (2020-12) of one row."""
    return model.model_json_schema()


def schema_fingerprint(models: list[type[Record]]) -> str:
    """16 hex digits over the JSON Schemas: changes when, and only when, a field does."""
    text = json.dumps({m.__name__: json_schema(m) for m in models}, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]
