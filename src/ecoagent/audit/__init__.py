"""The release gate: schemas at hand-overs, checks across tables, failing rows by name."""

from ecoagent.audit.findings import AuditResult, audit_tables
from ecoagent.audit.secrets import mask, scan
from ecoagent.audit.stage import AuditStage
from ecoagent.audit.tables import SPECS, RunTables, TableSpec, load_tables

__all__ = [
    "SPECS",
    "AuditResult",
    "AuditStage",
    "RunTables",
    "TableSpec",
    "audit_tables",
    "load_tables",
    "mask",
    "scan",
]
