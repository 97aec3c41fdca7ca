"""The HTML report of a run."""

from ecoagent.report.render import Report, RunFiles, render_report
from ecoagent.report.stage import ReportStage

__all__ = ["Report", "ReportStage", "RunFiles", "render_report"]
