"""The data set card: every number computed from the run, none typed by hand."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

import jinja2
import polars as pl

from ecoagent import __version__
from ecoagent.audit import RunTables, load_tables
from ecoagent.audit.stage import load_audit
from ecoagent.labeling.review.pairs import digest_of_labels
from ecoagent.labeling.review.report import ReviewReport, load_review, rate_text
from ecoagent.publish.deviations import Deviation, ModelRole, deviations, model_roles
from ecoagent.publish.layout import CONFIGS, SPLITS, SplitFiles, hub_schema, split_frames
from ecoagent.publish.licences import hub_licence, spdx
from ecoagent.publish.selection import Selection, select
from ecoagent.runs import RunContext, write_text
from ecoagent.schema import SCHEMA_VERSION, SOURCES
from ecoagent.settings import Settings, UserError

_SIZES = ((1_000, "n<1K"), (10_000, "1K<n<10K"), (100_000, "10K<n<100K"), (1_000_000, "100K<n<1M"))

SOURCE_NAMES = {
    "langchain": "LangChain",
    "crewai": "CrewAI",
    "llamaindex": "LlamaIndex",
    "n8n_official": "n8n, official nodes",
    "n8n_community": "n8n, community nodes",
}
"""Names of the sources as people write them."""


@dataclass(frozen=True)
class Artifact:
    """A package the tools were read from."""

    source: str
    name: str
    version: str
    sha256: str
    licence: str
    tools: int


def _environment() -> jinja2.Environment:
    return jinja2.Environment(
        undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True,
        autoescape=False,
    )  # fmt: skip


@cache
def _template() -> jinja2.Template:
    text = resources.files("ecoagent.publish").joinpath("templates/card.md.jinja").read_text("utf-8")
    env = _environment()
    env.filters |= {"cell": cell, "person": person, "rate": rate_text}
    return env.from_string(text)


def cell(value: object) -> str:
    """Text that may stand in a cell of a Markdown table."""
    return " ".join(str(value).split()).replace("|", "\\|").replace("<", "&lt;")


def person(name: str) -> str:
    """A judge's name, whatever was typed: no markup, no link, no picture."""
    return re.sub(r"([\\`*_\[\]()!#~])", r"\\\1", cell(name).replace("\\|", "/"))


def front_matter(files: list[SplitFiles], selection: Selection, settings: Settings) -> str:
    """YAML of the card: licences, configs, features and sizes as the Hub's loaders read them."""
    from datasets import Features
    from datasets.info import DatasetInfo, DatasetInfosDict
    from datasets.splits import SplitDict, SplitInfo
    from datasets.utils.metadata import MetadataConfigs
    from huggingface_hub import DatasetCardData

    infos, configs = {}, {}
    for item in CONFIGS:
        own = [f for f in files if f.config == item.name]
        if not own:
            continue
        splits = SplitDict(
            {f.split: SplitInfo(name=f.split, num_bytes=f.bytes_in_memory, num_examples=f.rows) for f in own}
        )
        infos[item.name] = DatasetInfo(
            features=Features.from_arrow_schema(hub_schema(item.model)),
            splits=splits,
            download_size=sum(f.bytes_on_disk for f in own),
            dataset_size=sum(f.bytes_in_memory for f in own),
            config_name=item.name,
        )
        configs[item.name] = {
            "data_files": [{"split": f.split, "path": f"{item.name}/{f.split}-*.parquet"} for f in own],
            **({"default": True} if item.name == "syn" else {}),
        }
    rows = sum(f.rows for f in files)
    data = DatasetCardData(
        language=["en"],
        license=_licences(selection),
        pretty_name="EcoAgent",
        task_categories=["text-retrieval"],
        size_categories=[next((name for limit, name in _SIZES if rows < limit), "1M<n<10M")],
        tags=["tool-retrieval", "agents", "benchmark", "ecoagent"],
    )
    DatasetInfosDict(infos).to_dataset_card_data(data)
    MetadataConfigs(configs).to_dataset_card_data(data)
    text: str = data.to_yaml()
    return text


def _licences(selection: Selection) -> list[str]:
    texts = selection.tools["licence"].to_list()
    texts += selection.syn["licence"].to_list() + selection.real["licence"].to_list()
    return sorted({hub_licence(t) for t in texts})


def artifacts(tools: pl.DataFrame) -> list[Artifact]:
    """The packages behind a table of tools, by source and name."""
    counts: Counter[tuple[str, str, str, str, str]] = Counter()
    for row in tools.select("source", "licence", "provenance").iter_rows(named=True):
        origin = row["provenance"]
        licence = spdx(row["licence"]) or "unknown"
        counts[row["source"], origin["artifact"], origin["artifact_version"], origin["sha256"], licence] += 1
    return [Artifact(*key, tools=n) for key, n in sorted(counts.items())]


def by_source(tools: pl.DataFrame) -> list[dict[str, Any]]:
    """Tools, reliable tools and median r_static of each source."""
    rows = []
    for source in SOURCES:
        part = tools.filter(pl.col("source") == source)
        if part.height:
            median = part["r_static"].median()
            rows.append(
                {
                    "source": SOURCE_NAMES[source],
                    "tools": part.height,
                    "reliable": int(part["reliable"].sum()),
                    "median": float(median) if isinstance(median, int | float) else 0.0,
                    "licences": ", ".join(sorted({spdx(t) or "unknown" for t in part["licence"].to_list()})),
                }
            )
    return rows


def queries_by_source(selection: Selection) -> list[dict[str, Any]]:
    """Syn queries of each source and split."""
    source = selection.tools.select(source_tool_id="id", source="source")
    joined = selection.syn.join(source, on="source_tool_id", how="left")
    rows = []
    for name in (*SOURCES, None):
        part = joined.filter(pl.col("source").eq_missing(name))
        if part.height:
            counts = Counter(part["split"].to_list())
            rows.append(
                {
                    "source": SOURCE_NAMES[name] if name else "tool not published",
                    "splits": {s: counts.get(s, 0) for s in SPLITS[:4]},
                    "all": part.height,
                }
            )
    return rows


def columns() -> list[tuple[str, str, list[tuple[str, str, str]]]]:
    """(config, what it holds, [(column, type, description)]) from the records."""
    shown = []
    for item in CONFIGS:
        schema = hub_schema(item.model)
        fields = [
            (name, _type_name(str(schema.field(name).type)), field.description or "")
            for name, field in item.model.model_fields.items()
        ]
        shown.append((item.name, item.says, fields))
    return shown


def _type_name(arrow: str) -> str:
    if arrow.startswith("list"):
        return "list of structs" if "struct" in arrow else "list of strings"
    return "struct" if arrow.startswith("struct") else arrow


def ran_models(tables: RunTables) -> list[str]:
    """Names of the language models that wrote the stored responses."""
    names = pl.concat([tables["syn_responses"]["model"], tables["real_responses"]["model"]])
    return sorted(names.unique().to_list())


def render_card(
    tables: RunTables,
    selection: Selection,
    files: list[SplitFiles],
    settings: Settings,
    audit: dict[str, Any],
    review: ReviewReport | None = None,
) -> str:
    """The card of a run as Markdown with YAML front matter; equal inputs give equal text.

    A review of other labels than these is not shown, only said to be there.
    """
    roles: list[ModelRole] = model_roles(settings)
    changed: list[Deviation] = deviations(settings)
    synthetic = tables["syn_queries"]
    return _template().render(
        front_matter=front_matter(files, selection, settings),
        version=__version__,
        schema_version=SCHEMA_VERSION,
        settings=settings,
        repo_id=settings.publish.repo_id or "PATH/OF/THIS/FOLDER",
        files=files,
        sources=by_source(selection.tools),
        syn_by_source=queries_by_source(selection),
        artifacts=artifacts(selection.tools),
        columns=columns(),
        roles=roles,
        llms=ran_models(tables),
        deviations=changed,
        audit=audit,
        review=review,
        review_is_of_these=review is not None and is_of(review, tables),
        left_out=selection.reasons(),
        withheld=selection.withheld,
        masked=selection.masked,
        reliable=int(selection.tools["reliable"].sum()),
        tools=selection.tools.height,
        tool_rejects=_reasons(tables["tool_rejects"]),
        syn_rejects=_reasons(tables["syn_rejects"]),
        real_rejects=_reasons(tables["real_rejects"]),
        asked_tools=synthetic["source_tool_id"].drop_nulls().n_unique(),
        all_tools=tables["tools"].height,
        real_origins=dict(sorted(Counter(tables["real_queries"]["origin"].to_list()).items())),
        duplicate_groups=_duplicate_groups(selection.tools),
    )


def is_of(review: ReviewReport, tables: RunTables) -> bool:
    """Whether a review judged the labels of these tables."""
    named = {"real": "verdicts", "syn": "syn_qrels"}
    return all(digest_of_labels(tables[named[s]], s) == d for s, d in review.labels.items())


def _reasons(rejects: pl.DataFrame) -> list[tuple[str, int]]:
    return sorted(Counter(rejects["reason"].to_list()).items(), key=lambda kv: (-kv[1], kv[0]))


def _duplicate_groups(tools: pl.DataFrame) -> int:
    return int(tools.filter(pl.col("duplicate_group").is_duplicated())["duplicate_group"].n_unique())


def write_card(ctx: RunContext, target: Path) -> Path:
    """Render the card of a published run to ``target``: how ``dataset_card.md`` is made.

    Raises:
        UserError: the run has not been audited and published.
    """
    dataset, audit = ctx.paths.out / "dataset", ctx.paths.out / "audit.json"
    if not (dataset / "README.md").is_file() or not audit.is_file():
        raise UserError(
            f"run {ctx.settings.run_name!r} has no published data set", remedy="run `ecoagent build` first"
        )
    tables = load_tables(ctx.paths.core)
    selection = select(tables, ctx.settings.publish.licence_policy)
    return write_text(
        target,
        render_card(
            tables,
            selection,
            existing_files(dataset, selection),
            ctx.settings,
            load_audit(audit),
            load_review(ctx.paths.out),
        ),
    )


def existing_files(dataset: Path, selection: Selection) -> list[SplitFiles]:
    """The files of a written data set, described as they were when written."""
    models = {item.name: item.model for item in CONFIGS}
    found = []
    for (config, split), frame in split_frames(selection).items():
        paths = tuple(sorted((dataset / config).glob(f"{split}-*.parquet")))
        table = frame.to_arrow().cast(hub_schema(models[config]))
        size = sum(p.stat().st_size for p in paths)
        found.append(SplitFiles(config, split, frame.height, table.nbytes, size, paths))
    return found
