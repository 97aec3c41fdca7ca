"""The ``ecoagent`` command."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from ecoagent import __version__
from ecoagent.cli import (
    ablate,
    building,
    data,
    evaluating,
    feedback,
    freezing,
    growth,
    indexing,
    labeling,
    links,
    publishing,
    review,
    stages,
    tail,
)
from ecoagent.settings import quiet_environment

app = typer.Typer(
    name="ecoagent",
    help="Rebuild the EcoAgent tool-retrieval benchmark from the live catalogs; train and judge RATED on it.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
    epilog="Exit codes: 0 done, 1 a quality gate was not passed, 2 bad input or something missing.",
)


def _version(asked: bool) -> None:
    if asked:
        sys.stdout.write(f"ecoagent {__version__}\n")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    quiet_environment()


app.command("build")(building.build)
app.command("crawl")(stages.crawl)
stages.add_stage_commands(
    app,
    {
        "normalize": "Bring every candidate into the shared schema; rejects keep their reasons.",
        "score": "Score each tool's metadata reliability (Eq. 4-5).",
    },
)
app.command("synthesize")(building.synthesize)
app.command("label")(labeling.label)
app.add_typer(review.review_app, name="review")
stages.add_stage_commands(
    app,
    {
        "train": "Train the dual encoder with InfoNCE (Eq. 3).",
    },
)
app.command("evaluate")(evaluating.evaluate)
app.command("tail")(tail.tail)
stages.add_stage_commands(
    app,
    {
        "audit": "Check every table; the release gate (exit code 1 if it is not passed).",
        "report": "Write the HTML report.",
    },
)
app.command("publish")(publishing.publish)
app.command("audit-links")(links.audit_links)
app.add_typer(indexing.index_app, name="index")
app.command("growth")(growth.growth)
app.command("freeze")(freezing.freeze)
app.command("feedback")(feedback.feedback)
app.add_typer(ablate.ablate_app, name="ablate")
app.command("diff")(data.diff)
app.command("rehydrate")(data.rehydrate)
app.add_typer(data.models_app, name="models")
app.command("runs")(data.list_runs)
app.command("doctor")(data.doctor)


def main() -> None:
    """Entry point of the console script."""
    app()
