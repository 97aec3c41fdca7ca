"""The audit: sound runs pass, each kind of damage is found, named and of the right severity."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest

from ecoagent.audit import SPECS, AuditStage, RunTables, audit_tables, load_tables
from ecoagent.audit.cross import CHECKS
from ecoagent.audit.findings import check_tables
from ecoagent.audit.rules import column_rules
from ecoagent.audit.secrets import mask, scan
from ecoagent.audit.tables import pandera_schema, polars_types
from ecoagent.runs import RunContext, execute, read_json, read_table, write_table
from ecoagent.schema import ALL_RECORDS, PairRow, ToolRecord, VerdictRow
from ecoagent.settings import GateError, Settings, UserError
from tests.unit.fixture_run import fixture_settings, write_fixture_run


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> RunContext:
    return write_fixture_run(fixture_settings(tmp_path_factory.mktemp("outputs")))


@pytest.fixture
def tables(run: RunContext) -> RunTables:
    return load_tables(run.paths.core)


def broken(name: str, tables: RunTables, settings: Settings) -> list[str]:
    """Row ids a cross-table check finds."""
    item = next(c for c in CHECKS if c.name == name)
    return [v.row_id for v in item.find(tables, settings)]


def change(frame: pl.DataFrame, column: str, value: object, row: int = 0) -> pl.DataFrame:
    """One cell of a frame changed."""
    dtype = frame.schema[column]
    return (
        frame.with_row_index("_i")
        .with_columns(
            pl.when(pl.col("_i") == row)
            .then(pl.lit(value, dtype=dtype))
            .otherwise(pl.col(column))
            .alias(column)
        )
        .drop("_i")
    )


def test_sound_run_passes(run: RunContext, tables: RunTables) -> None:
    result = audit_tables(tables, run.settings)
    assert result.passed, result.first_failures(10)
    assert result.failures() == []
    assert result.gate.max_severity is None
    assert {e.table for e in result.gate.expectations} == {s.name for s in SPECS} | {"cross_checks"}
    assert result.rows["tools"] == 30


def _optional(annotation: object) -> bool:
    return any(mark in str(annotation) for mark in ("None", "Optional"))


def test_rules_are_derived_for_every_record() -> None:
    for model in ALL_RECORDS:
        if model.__name__ == "Candidate":
            continue
        rules = {r.name for r in column_rules(model)}
        required = {n for n, f in model.model_fields.items() if not _optional(f.annotation)}
        assert {f"not_null:{n}" for n in required} <= rules, model.__name__
    assert "in_set:source" in {r.name for r in column_rules(ToolRecord)}
    assert "between:verifier_probability" in {r.name for r in column_rules(VerdictRow)}


def test_polars_types_agree_with_written_tables(tables: RunTables) -> None:
    for item in SPECS:
        assert dict(tables[item.name].schema) == polars_types(item.model), item.name
        assert set(pandera_schema(item).columns) == set(item.model.model_fields)


@pytest.mark.parametrize(
    ("table", "column", "value", "reason"),
    [
        ("tools", "r_static", 1.4, "between:r_static"),
        ("tools", "source", "zapier", "in_set:source"),
        ("tools", "description", "  ", "matches:description"),
        ("tools", "provider", None, "not_null:provider"),
        ("syn_queries", "split", "dev", "in_set:split"),
        ("syn_queries", "query_id", "syn:1", "matches:query_id"),
        ("syn_pairs", "score", -3.0, "between:score"),
        ("verdicts", "verifier_probability", float("nan"), "between:verifier_probability"),
    ],
)
def test_column_damage_fails_and_is_named(
    run: RunContext, tables: RunTables, table: str, column: str, value: object, reason: str
) -> None:
    tables[table] = change(tables[table], column, value)
    _, checks = check_tables(tables, run.settings)
    found = next(c for c in checks if c.name == f"{table}.{reason}")
    assert found.severity == "critical" and len(found.violations) == 1
    assert found.violations[0].detail.startswith(f"{column} =")


def test_gate_and_pandera_see_column_damage_too(run: RunContext, tables: RunTables) -> None:
    damage: list[tuple[str, str, object]] = [
        ("tools", "r_static", 1.4),
        ("tools", "source", "zapier"),
        ("tools", "provider", None),
        ("syn_qrels", "grade", 7),
    ]
    for table, column, value in damage:
        tables[table] = change(tables[table], column, value)
    result = audit_tables(tables, run.settings)
    assert sorted((f.table, f.column) for f in result.faults) == sorted((t, c) for t, c, _ in damage)
    failed = {(e.table, e.subject) for e in result.gate.expectations if not e.success and e.unexpected == 1}
    assert {(t, c) for t, c, _ in damage} <= failed
    assert not result.passed and result.gate.max_severity == "critical"
    assert {f.reason for f in result.failures()} >= {"tools.in_set:source", "syn_qrels.between:grade"}


def test_duplicate_key_and_missing_column(run: RunContext, tables: RunTables) -> None:
    tables["tools"] = pl.concat([tables["tools"], tables["tools"].head(1)])
    faults, checks = check_tables(tables, run.settings)
    twice = next(c for c in checks if c.name == "tools.unique")
    assert [v.row_id for v in twice.violations] == [tables["tools"]["id"][0]] and faults
    tables["tools"] = tables["tools"].drop("w_src")
    result = audit_tables(tables, run.settings)
    assert not result.passed and [(f.column, f.check) for f in result.faults if f.column == "w_src"]
    assert not any(c.table == "run" for c in result.checks)


def test_dangling_references(run: RunContext, tables: RunTables) -> None:
    ghost = "crewai:Nowhere"
    tables["syn_qrels"] = change(tables["syn_qrels"], "tool_id", ghost)
    tables["verdicts"] = change(tables["verdicts"], "response_hash", "f" * 64)
    assert len(broken("references", tables, run.settings)) == 2


def test_query_without_gold(run: RunContext, tables: RunTables) -> None:
    lost = tables["real_qrels"]["query_id"][0]
    tables["real_qrels"] = tables["real_qrels"].slice(1)
    assert broken("query_has_gold", tables, run.settings) == [lost]


def test_query_id_is_recomputed(run: RunContext, tables: RunTables) -> None:
    tables["syn_queries"] = change(tables["syn_queries"], "text", "What else could this be about then?")
    assert broken("query_ids", tables, run.settings) == [tables["syn_queries"]["query_id"][0]]


def test_same_text_in_two_splits(run: RunContext, tables: RunTables) -> None:
    first = tables["syn_queries"].head(1)
    twin = first.with_columns(
        query_id=pl.lit("q:syn:ffffffffffff"),
        split=pl.lit("val"),
        text=pl.lit("  " + first["text"][0].upper() + "!"),
    )
    tables["syn_queries"] = pl.concat([tables["syn_queries"], twin])
    assert broken("splits_disjoint", tables, run.settings) == ["q:syn:ffffffffffff"]
    assert broken("syn_jaccard", tables, run.settings) == ["q:syn:ffffffffffff"]


def test_real_never_trains(run: RunContext, tables: RunTables) -> None:
    tables["real_queries"] = change(tables["real_queries"], "split", "train")
    assert len(broken("real_never_trains", tables, run.settings)) == 1


def test_cold_tool_in_training(run: RunContext, tables: RunTables) -> None:
    cold = tables["syn_queries"].filter(pl.col("split") == "cold").head(1)
    tool, query = cold["source_tool_id"][0], cold["query_id"][0]
    number = tables["syn_pairs"].with_row_index("i")
    row = number.filter((pl.col("split") == "train") & (pl.col("negative_type") == "random"))["i"][0]
    tables["syn_pairs"] = change(tables["syn_pairs"], "tool_id", tool, row)
    hit = tables["syn_queries"].filter(pl.col("source_tool_id") == tool)["query_id"].to_list()
    assert broken("cold_never_trains", tables, run.settings) == hit and query in hit

    unseen = tables["tools"].filter(~pl.col("id").is_in(tables["syn_pairs"]["tool_id"].to_list()))["id"]
    other = unseen[0] if unseen.len() else "crewai:NeverTrained"
    second = tables["syn_qrels"].head(1).with_columns(query_id=pl.lit(query), tool_id=pl.lit(other))
    tables["syn_qrels"] = pl.concat([tables["syn_qrels"], second])
    assert query not in broken("cold_never_trains", tables, run.settings)


def test_negative_that_is_gold_or_its_duplicate(run: RunContext, tables: RunTables) -> None:
    pairs, tools = tables["syn_pairs"], tables["tools"]
    group = tools.filter(pl.col("duplicate_group").is_duplicated())["id"].sort().to_list()
    negative = pairs.filter(pl.col("label") == 0).head(1)
    query = negative["query_id"][0]
    tables["syn_qrels"] = pl.concat(
        [
            tables["syn_qrels"],
            tables["syn_qrels"].head(1).with_columns(query_id=pl.lit(query), tool_id=pl.lit(group[0])),
        ]
    )
    gold = negative.with_columns(tool_id=pl.lit(group[0]))
    twin = negative.with_columns(tool_id=pl.lit(group[1]))
    tables["syn_pairs"] = pl.concat([pairs, gold, twin])
    assert sorted(broken("negatives_not_gold", tables, run.settings)) == [f"{query} {g}" for g in group]


def test_pairs_consistent(run: RunContext, tables: RunTables) -> None:
    tables["syn_pairs"] = change(
        tables["syn_pairs"], "split", "val" if tables["syn_pairs"]["split"][0] != "val" else "test"
    )
    assert len(broken("pairs_consistent", tables, run.settings)) == 1


def test_scores_are_recomputed(run: RunContext, tables: RunTables) -> None:
    tables["tools"] = change(tables["tools"], "r_static", 0.123)
    assert broken("r_static", tables, run.settings) == [tables["tools"]["id"][0]]


def test_words_and_minimum_counts(run: RunContext, tables: RunTables, tmp_path: Path) -> None:
    strict = fixture_settings(tmp_path, "audit.min_tools=99", "synthesis.min_words=10")
    assert len(broken("syn_words", tables, strict)) == tables["syn_queries"].height
    assert broken("enough_tools", tables, strict) == ["(table)"]
    assert broken("enough_tools", tables, run.settings) == []


def test_warning_does_not_fail(run: RunContext, tables: RunTables) -> None:
    tables["syn_queries"] = change(tables["syn_queries"], "language", "pt")
    result = audit_tables(tables, run.settings)
    assert result.passed and result.gate.max_severity == "warning"
    assert [c.name for c in result.broken("warning")] == ["english"]


@pytest.mark.parametrize(
    ("text", "kinds"),
    [
        ("mail jane.roe@gmail.com about it", ["email"]),
        ("mail name@example.com or you@your-company.com", []),
        ("install @n8n/pkg@1.2.3", []),
        ("use AKIA" + "ABCDEFGHIJKLMNOP", ["aws_access_key"]),
        ("export TOKEN=ghp_" + "a1B2" * 10, ["github_token"]),
        ("api_key = " + "Zx81kQ0pL7vTn3Rw", ["assigned_secret"]),
        ("password: correcthorsebatterystaple", []),
        ("a sk-learn-compatible-estimator-interface", []),
    ],
)
def test_secret_scan(text: str, kinds: list[str]) -> None:
    found = scan(text)
    assert [f.kind for f in found] == kinds
    masked, count = mask(text)
    assert count == len(kinds) and all(f"<{k}>" in masked for k in kinds)
    assert scan(masked) == []


def test_stage_writes_equal_bytes_and_refuses_after_writing(tmp_path: Path) -> None:
    one = write_fixture_run(fixture_settings(tmp_path / "a"))
    two = write_fixture_run(fixture_settings(tmp_path / "b"))
    for ctx in (one, two):
        execute(AuditStage(), ctx)
    for name in ("out/audit.json", "core/audit_failures.parquet"):
        assert (one.paths.root / name).read_bytes() == (two.paths.root / name).read_bytes(), name
    assert execute(AuditStage(), one).status == "up to date"

    pairs = change(read_table(one.paths.core / "syn_pairs.parquet"), "label", 9)
    write_table(one.paths.core / "syn_pairs.parquet", pairs, PairRow)
    with pytest.raises(GateError, match="syn_pairs") as error:
        execute(AuditStage(), one)
    assert error.value.exit_code == 1 and "audit.json" in (error.value.remedy or "")
    assert read_json(one.paths.out / "audit.json")["passed"] is False
    rows = read_table(one.paths.core / "audit_failures.parquet")
    assert "syn_pairs.between:label" in rows["reason"].to_list()
    with pytest.raises(GateError):
        execute(AuditStage(), one)


def test_missing_table_names_the_stage(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"tools_normalized\.parquet is missing") as error:
        load_tables(tmp_path)
    assert "ecoagent normalize" in (error.value.remedy or "")
