"""The audit as a stage: writes what it found, then refuses the run if something critical failed."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

from ecoagent.audit.findings import audit_tables
from ecoagent.audit.tables import SPECS, load_tables
from ecoagent.runs import (
    Kind,
    RunContext,
    Shard,
    ShardResult,
    Stage,
    StageReport,
    each_with_fields,
    read_object,
    read_table,
    with_fields,
    write_json,
    write_table,
)
from ecoagent.schema import RejectRow
from ecoagent.settings import GateError

AUDIT_FILE = "audit.json"
AGAIN = "run `ecoagent audit --force` on the run"


def load_audit(path: Path) -> dict[str, Any]:
    """What the audit of a run found, as ``AuditStage`` writes it.

    Raises:
        UserError: the file is missing, damaged, or lacks what is shown of it.
    """
    fields: dict[str, Kind] = {"passed": bool, "counts": dict, "checks": list, "tables": list}
    found = read_object(path, fields, remedy=AGAIN)
    counts = ("checks", "expectations", "failed_critical", "failed_warning")
    with_fields(path, found["counts"], dict.fromkeys(counts, int), within="counts", remedy=AGAIN)
    rows: dict[str, dict[str, Kind]] = {
        "checks": {**dict.fromkeys(("name", "table", "severity", "says"), str), "violations": int},
        "tables": {"table": str, "rows": int},
    }
    for part, own in rows.items():
        each_with_fields(path, found[part], own, within=part, remedy=AGAIN)
    return found


class AuditStage(Stage):
    """pandera at the hand-over, Great Expectations as the release gate, failing rows named."""

    name: ClassVar[str] = "audit"
    version: ClassVar[str] = "1"
    sections: ClassVar[tuple[str, ...]] = ("audit", "reliability", "synthesis", "labeling")

    def inputs(self, ctx: RunContext) -> list[Path]:
        """All tables of ``core/``."""
        return [item.path(ctx.paths.core) for item in SPECS]

    def run_shard(self, ctx: RunContext, shard: Shard, directory: Path) -> None:
        """Audit the run; the verdict is given by ``merge``, after the files are written."""
        tables = load_tables(ctx.paths.core)
        with ctx.progress.task("audit", total=1, unit="runs") as task:
            result = audit_tables(tables, ctx.settings)
            task.advance(1)
        found = result.to_json() | {"first_failures": result.first_failures()}
        write_json(directory / AUDIT_FILE, found)
        write_table(directory / "audit_failures.parquet", result.failures(), RejectRow)

    def merge(self, ctx: RunContext, results: list[ShardResult]) -> StageReport:
        """Write ``out/audit.json`` and ``core/audit_failures.parquet``.

        Raises:
            GateError: a critical check failed (after the files are written).
        """
        folder = results[0].directory
        found = load_audit(folder / AUDIT_FILE)
        told: dict[str, Kind] = {"first_failures": str, "max_severity": (str, type(None))}
        with_fields(folder / AUDIT_FILE, found, told, remedy=AGAIN)
        failures = read_table(folder / "audit_failures.parquet")
        audit_file = write_json(ctx.paths.out / AUDIT_FILE, found)
        rows_file = write_table(ctx.paths.core / "audit_failures.parquet", failures, RejectRow)
        if not found["passed"]:
            raise GateError(
                f"the audit of run {ctx.settings.run_name!r} failed: {found['first_failures']}",
                remedy=f"read {audit_file} and the rows in {rows_file}, mend the stage that wrote them",
            )
        counts = found["counts"]
        ctx.progress.say(
            f"audit: passed {counts['checks']} checks and {counts['expectations']} expectations,"
            f" {counts['failed_warning']} with warnings"
        )
        return StageReport(
            outputs=[audit_file, rows_file],
            rows={t["table"]: t["rows"] for t in found["tables"]},
            rejects={c["name"]: c["violations"] for c in found["checks"] if c["violations"]},
            summary={**counts, "passed": True, "max_severity": found["max_severity"]},
        )
