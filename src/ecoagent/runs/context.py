"""Where a run's files are, and what a stage is given."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from ecoagent.runs.progress import Progress
from ecoagent.settings import Settings


@dataclass(frozen=True)
class RunPaths:
    """Folders of one run."""

    root: Path

    @property
    def raw(self) -> Path:
        """Shards, crawled records, weights: what the tables are made from."""
        return self.root / "raw"

    @property
    def core(self) -> Path:
        """The tables; byte-identical between equal runs."""
        return self.root / "core"

    @property
    def out(self) -> Path:
        """Results and the published data set; byte-identical between equal runs."""
        return self.root / "out"

    @property
    def report(self) -> Path:
        """The HTML report and its figures."""
        return self.root / "report"

    @property
    def manifest(self) -> Path:
        """Record of the run."""
        return self.root / "manifest.json"

    @property
    def markers(self) -> Path:
        """Completion markers of stages."""
        return self.root / ".stages"

    def relative(self, path: Path) -> str:
        """``path`` as it is written in manifests."""
        return path.resolve().relative_to(self.root.resolve()).as_posix()


@dataclass(frozen=True)
class RunContext:
    """What every stage is given."""

    settings: Settings
    paths: RunPaths
    progress: Progress

    @classmethod
    def create(cls, settings: Settings, progress: Progress | None = None) -> RunContext:
        """Context of the run that ``settings`` names."""
        root = settings.outputs / "runs" / settings.run_name
        return cls(settings, RunPaths(root), progress or Progress())
