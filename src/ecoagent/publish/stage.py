"""Publication as a stage: a folder in Hub layout under ``out/dataset``."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any, ClassVar

from ecoagent.audit import SPECS, load_tables
from ecoagent.audit.stage import AUDIT_FILE, load_audit
from ecoagent.labeling.review.report import REVIEW_FILE, load_review
from ecoagent.llm.stub import is_stub
from ecoagent.prompts import prompt_digests, prompt_files, prompt_marks
from ecoagent.publish.card import render_card
from ecoagent.publish.layout import write_splits
from ecoagent.publish.selection import select
from ecoagent.runs import (
    RunContext,
    Shard,
    ShardResult,
    Stage,
    StageReport,
    read_object,
    read_table,
    replace_directory,
    sha256_text,
    temporary_sibling,
    write_json,
    write_table,
    write_text,
)
from ecoagent.schema import RejectRow
from ecoagent.settings import GateError


class PublishStage(Stage):
    """The audited run as a data set that ``datasets.load_dataset`` reads from its folder."""

    name: ClassVar[str] = "publish"
    version: ClassVar[str] = "2"
    sections: ClassVar[tuple[str, ...]] = (
        "crawl", "reliability", "llm", "synthesis", "labeling", "train", "evaluate", "audit", "publish",
    )  # fmt: skip

    def inputs(self, ctx: RunContext) -> list[Path]:
        """The tables, the audit's result, and the review where there is one."""
        review = ctx.paths.out / "results" / REVIEW_FILE
        tables = (item.path(ctx.paths.core) for item in SPECS)
        return [*tables, ctx.paths.out / "audit.json", *([review] if review.is_file() else [])]

    def extra_key(self, ctx: RunContext) -> dict[str, Any]:
        """The card's template and the profile's name, which the card shows."""
        from importlib import resources

        text = resources.files("ecoagent.publish").joinpath("templates/card.md.jinja").read_text("utf-8")
        return {
            "template": sha256_text(text),
            "profile": ctx.settings.profile,
            "prompts": prompt_digests(),
        }

    def run_shard(self, ctx: RunContext, shard: Shard, directory: Path) -> None:
        """Apply the licence policy, write every split and the card.

        Raises:
            GateError: the run did not pass its audit, or a stub stood in the model's place.
            UserError: a split that the settings ask for is empty.
        """
        if is_stub(ctx.settings.llm.model):
            raise GateError(
                f"run {ctx.settings.run_name!r} was made with the stub {ctx.settings.llm.model!r} "
                "in a model's place and is not published",
                remedy="set llm.model to a model and build again",
            )
        audit = load_audit(ctx.paths.out / AUDIT_FILE)
        if not audit["passed"]:
            raise GateError(
                f"run {ctx.settings.run_name!r} did not pass its audit and is not published",
                remedy=f"read {ctx.paths.out / 'audit.json'}, mend the run, then `ecoagent audit`",
            )
        tables = load_tables(ctx.paths.core)
        selection = select(tables, ctx.settings.publish.licence_policy)
        folder = directory / "dataset"
        with ctx.progress.task("publish", total=1, unit="data sets") as task:
            files = write_splits(folder, selection, ctx.settings)
            review = load_review(ctx.paths.out)
            card = render_card(tables, selection, files, ctx.settings, audit, review)
            write_text(folder / "README.md", card)
            for name, text in prompt_files().items():
                write_text(folder / "prompts" / name, text)
            write_json(folder / "prompts" / "digests.json", prompt_marks())
            task.advance(1)
        write_table(directory / "publish_rejects.parquet", selection.left_out, RejectRow)
        summary = {
            "rows": {f"{f.config}/{f.split}": f.rows for f in files},
            "left_out": selection.reasons(),
            "withheld": selection.withheld,
            "masked": selection.masked,
        }
        write_json(directory / "summary.json", summary)

    def merge(self, ctx: RunContext, results: list[ShardResult]) -> StageReport:
        """Put the folder in its place."""
        folder, final = results[0].directory, ctx.paths.out / "dataset"
        final.parent.mkdir(parents=True, exist_ok=True)
        temporary = temporary_sibling(final)
        shutil.rmtree(temporary, ignore_errors=True)
        shutil.copytree(folder / "dataset", temporary)
        replace_directory(temporary, final)
        rejects = ctx.paths.out / "publish_rejects.parquet"
        write_table(rejects, read_table(folder / "publish_rejects.parquet"), RejectRow)
        counted = {"rows": dict, "left_out": dict, "withheld": int, "masked": int}
        summary = read_object(folder / "summary.json", counted)
        files = sorted(p for p in final.rglob("*") if p.is_file())
        ctx.progress.say(f"publish: {len(files)} files in {final}")
        return StageReport(
            outputs=[*files, rejects],
            rows=summary["rows"],
            rejects=summary["left_out"],
            summary={"withheld": summary["withheld"], "masked": summary["masked"], "dataset": "out/dataset"},
        )
