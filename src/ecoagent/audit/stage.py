"""The audit as a stage: writes what it found, then refuses the run if something critical failed."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

from ecoagent.audit.findings import audit_tables
from ecoagent.audit.tables import SPECS, load_tables
from ecoagent.runs import (
    RunContext,
    Shard,
    ShardResult,
    Stage,
    StageReport,
    read_json,
    read_table,
    write_json,
    write_table,
)
from ecoagent.schema import RejectRow
from ecoagent.settings import GateError


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
        write_json(directory / "audit.json", found)
        write_table(directory / "audit_failures.parquet", result.failures(), RejectRow)

    def merge(self, ctx: RunContext, results: list[ShardResult]) -> StageReport:
        """Write ``out/audit.json`` and ``core/audit_failures.parquet``.

        Raises:
            GateError: a critical check failed (after the files are written).
        """
        folder = results[0].directory
        found: dict[str, Any] = read_json(folder / "audit.json")
        failures = read_table(folder / "audit_failures.parquet")
        audit_file = write_json(ctx.paths.out / "audit.json", found)
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
