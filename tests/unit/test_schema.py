"""Records, their Arrow and JSON forms, and the text forms."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from ecoagent.schema import (
    ALL_RECORDS,
    SCHEMA_VERSION,
    Deprecation,
    Provenance,
    RejectRow,
    ScoredTool,
    ToolRecord,
    arrow_schema,
    json_schema,
    normalize_query,
    query_id,
    schema_fingerprint,
    tokens,
    tool_text,
)

FINGERPRINTS = {
    "1.0.0": "a555605468968a5c",
    "1.1.0": "9e22131a06784062",
    "1.2.0": "032207b1582c1e70",
    "1.3.0": "e748fbecfb875094",
}


def test_a_schema_change_needs_a_version_bump() -> None:
    assert FINGERPRINTS.get(SCHEMA_VERSION) == schema_fingerprint(ALL_RECORDS), (
        "records changed: bump SCHEMA_VERSION and add its fingerprint here"
    )


@pytest.mark.parametrize("model", ALL_RECORDS, ids=lambda m: m.__name__)
def test_every_record_has_arrow_and_json_schemas(model: type) -> None:
    assert arrow_schema(model).names == list(model.model_fields)
    assert json_schema(model)["additionalProperties"] is False


def test_nested_records_become_structs() -> None:
    auth = arrow_schema(ScoredTool).field("auth").type
    assert pa.types.is_list(auth)
    assert auth.value_type.field("fields").type.value_type.field("secret").type == pa.bool_()


def test_unknown_fields_are_errors() -> None:
    with pytest.raises(ValidationError):
        RejectRow(id="a", stage="s", reason="r", detail="d", extra=1)  # type: ignore[call-arg]


def test_a_tool_needs_its_facts() -> None:
    with pytest.raises(ValidationError):
        ToolRecord(  # type: ignore[call-arg]
            id="x",
            source="crewai",
            deprecated=Deprecation(state=False),
            provenance=Provenance(
                artifact="a", artifact_version="1", sha256="0", path="p", backend="client", parser_version="1"
            ),
        )


@pytest.mark.parametrize(
    ("text", "normal"),
    [
        ("  “How do I  POST to Slack?!” ", "how do i post to slack"),
        ("Ｆｕｌｌ width\n\ttext…", "full width text"),
        ("(don't) stop.", "don't) stop"),
        ("???", ""),
    ],
)
def test_normalised_queries(text: str, normal: str) -> None:
    assert normalize_query(text) == normal


@given(st.text())
def test_normalising_twice_changes_nothing(text: str) -> None:
    once = normalize_query(text)
    assert normalize_query(once) == once


def test_ids_are_of_the_normalised_text() -> None:
    assert query_id("syn", "Send it!") == query_id("syn", " send   it")
    assert query_id("syn", "Send it") != query_id("real", "Send it")
    assert query_id("syn", "x").startswith("q:syn:")
    assert len(query_id("syn", "x")) == len("q:syn:") + 12


def test_tokens_are_word_characters() -> None:
    assert tokens("Send e-mail to a_b, send!") == {"send", "e", "mail", "to", "a_b"}


def test_tool_text_says_the_group_once_and_leaves_empty_parts_out() -> None:
    assert (
        tool_text("Create File", "Create a new file.", group="GitHub")
        == "GitHub: Create File. Create a new file."
    )
    assert tool_text("GitHub Search", "Find code", group="GitHub") == "GitHub Search. Find code."
    assert (
        tool_text("Notion", "Pages", operations=["get", "get", "append"], tags=["docs", ""])
        == "Notion. Pages. Operations: get, append. Tags: docs."
    )
    assert tool_text("x", "") == "x."
