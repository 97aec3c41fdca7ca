"""Publication: layout, licence policies, card, refill of withheld text, refusals."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import polars as pl
import pyarrow.parquet as pq
import pytest
import yaml

from ecoagent.audit import RunTables, load_tables
from ecoagent.publish import (
    CONFIGS,
    PublishStage,
    deviations,
    model_roles,
    rehydrate,
    select,
    verify_dataset,
    write_card,
)
from ecoagent.publish.layout import check_splits, split_frames
from ecoagent.publish.licences import decide, hub_licence, is_open, spdx
from ecoagent.runs import RunContext, execute, read_json, read_table, write_json
from ecoagent.schema import ScoredTool
from ecoagent.settings import GateError, Settings, UserError, load_settings
from tests.unit.fixture_run import fixture_settings, write_fixture_run


def audit(*, passed: bool) -> dict[str, Any]:
    """An audit's result on paper."""
    counts = {"checks": 3, "expectations": 4, "failed_critical": 0, "failed_warning": 0}
    return {"passed": passed, "counts": counts, "checks": [], "tables": []}


def published(outputs: Path, *overrides: str) -> RunContext:
    """A fixture run, audited on paper, published."""
    ctx = write_fixture_run(fixture_settings(outputs, *overrides))
    write_json(ctx.paths.out / "audit.json", audit(passed=True))
    execute(PublishStage(), ctx)
    return ctx


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> RunContext:
    return published(tmp_path_factory.mktemp("outputs"))


@pytest.fixture
def tables(run: RunContext) -> RunTables:
    return load_tables(run.paths.core)


def test_every_config_and_split_loads_offline(run: RunContext, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*args: object, **kwargs: object) -> None:
        raise OSError("a test of offline loading reached for the network")

    monkeypatch.setattr("socket.getaddrinfo", refuse)
    rows = verify_dataset(run.paths.out / "dataset")
    assert set(rows) == {c.name for c in CONFIGS}
    assert list(rows["syn"]) == ["train", "val", "test", "cold"] and list(rows["real"]) == ["val", "test"]
    assert list(rows["tools"]) == ["train"]
    assert all(n > 0 for splits in rows.values() for n in splits.values())
    marker = execute(PublishStage(), run).report.rows
    assert {f"{c}/{s}": n for c, splits in rows.items() for s, n in splits.items()} == marker


def test_loaded_rows_are_the_runs_rows(run: RunContext, tables: RunTables, tmp_path: Path) -> None:
    import datasets

    folder = str(run.paths.out / "dataset")
    tools = datasets.load_dataset(folder, "tools", split="train", cache_dir=str(tmp_path))
    assert tools.features["auth"].feature["fields"].feature["secret"].dtype == "bool"
    open_ids = tables["tools"].filter(pl.col("licence") == "MIT")["id"].to_list()
    assert tools["id"][:] == open_ids
    record = {k: v for k, v in tools[0].items() if k in ScoredTool.model_fields}
    assert ScoredTool.model_validate(record).id == open_ids[0]


def test_equal_runs_give_equal_bytes(run: RunContext, tmp_path: Path) -> None:
    other = published(tmp_path)
    ours, theirs = run.paths.out / "dataset", other.paths.out / "dataset"
    names = sorted(p.relative_to(ours).as_posix() for p in ours.rglob("*") if p.is_file())
    assert names == sorted(p.relative_to(theirs).as_posix() for p in theirs.rglob("*") if p.is_file())
    assert "tools/train-00000-of-00001.parquet" in names and "README.md" in names
    for name in names:
        assert (ours / name).read_bytes() == (theirs / name).read_bytes(), name


def test_shards_and_their_names(tmp_path: Path) -> None:
    ctx = published(tmp_path, "publish.rows_per_shard=10")
    files = sorted(p.name for p in (ctx.paths.out / "dataset" / "tools").iterdir())
    assert files == [f"train-{i:05d}-of-00003.parquet" for i in range(3)]
    rows = [pq.read_metadata(ctx.paths.out / "dataset" / "tools" / f).num_rows for f in files]
    assert rows == [8, 8, 8]
    assert verify_dataset(ctx.paths.out / "dataset")["tools"] == {"train": 24}


@pytest.mark.parametrize(
    ("text", "identifier", "hub"),
    [
        ("MIT", "MIT", "mit"),
        ("MIT License", "MIT", "mit"),
        ("The MIT Licence", "MIT", "mit"),
        ("Apache License, Version 2.0", "Apache-2.0", "apache-2.0"),
        ("apache-2.0", "Apache-2.0", "apache-2.0"),
        ("GPL-3.0-or-later", "GPL-3.0", "gpl-3.0"),
        ("BSD 3-Clause License", "BSD-3-Clause", "bsd-3-clause"),
        ("LicenseRef-Sustainable-Use", "LicenseRef-Sustainable-Use", "other"),
        ("SEE LICENSE IN LICENSE.md", "SEE LICENSE IN LICENSE.md", "other"),
        ("  ", None, "unknown"),
        (None, None, "unknown"),
    ],
)
def test_licence_spellings(text: str | None, identifier: str | None, hub: str) -> None:
    assert spdx(text) == identifier and hub_licence(text) == hub
    assert is_open(text) == (hub not in ("other", "unknown"))


def test_policies() -> None:
    assert [decide("MIT", p) for p in ("publish", "withhold", "all")] == ["publish"] * 3
    assert [decide("UNLICENSED", p) for p in ("publish", "withhold", "all")] == [
        "drop",
        "withhold",
        "publish",
    ]


def test_publish_policy_drops_closed_tools_and_their_queries(tables: RunTables) -> None:
    chosen = select(tables, "publish")
    closed = tables["tools"].filter(pl.col("licence") != "MIT")["id"].to_list()
    assert not set(closed) & set(chosen.tools["id"].to_list())
    for frame in (chosen.syn_qrels, chosen.real_qrels, chosen.syn_pairs, chosen.verdicts):
        assert not set(closed) & set(frame["tool_id"].to_list())
    orphans = set(tables["syn_qrels"].filter(pl.col("tool_id").is_in(closed))["query_id"].to_list())
    assert orphans and not orphans & set(chosen.syn["query_id"].to_list())
    assert chosen.reasons()["tools: licence_not_open"] == len(closed)
    assert chosen.reasons()["syn: no_gold_left"] == len(orphans)
    assert set(chosen.syn_qrels["query_id"].to_list()) == set(chosen.syn["query_id"].to_list())


def test_query_with_another_open_gold_stays(tables: RunTables) -> None:
    closed = tables["tools"].filter(pl.col("licence") != "MIT")["id"].to_list()
    row = tables["syn_qrels"].filter(pl.col("tool_id").is_in(closed)).head(1)
    opened = tables["tools"].filter(pl.col("licence") == "MIT")["id"][0]
    tables["syn_qrels"] = pl.concat([tables["syn_qrels"], row.with_columns(tool_id=pl.lit(opened))])
    chosen = select(tables, "publish")
    assert row["query_id"][0] in chosen.syn["query_id"].to_list()


def test_secrets_are_masked_or_left_out(tables: RunTables) -> None:
    where = pl.col("licence") == "MIT"
    first = tables["tools"].filter(where)["id"][0]
    tables["tools"] = tables["tools"].with_columns(
        description=pl.when(pl.col("id") == first)
        .then(pl.lit("Ask ann.lee@gmail.com."))
        .otherwise("description")
    )
    query = select(tables, "publish").syn["query_id"][0]
    tables["syn_queries"] = tables["syn_queries"].with_columns(
        text=pl.when(pl.col("query_id") == query)
        .then(pl.lit("write to bo.ek@gmail.com now please"))
        .otherwise("text")
    )
    chosen = select(tables, "publish")
    assert chosen.tools.filter(pl.col("id") == first)["description"][0] == "Ask <email>."
    assert chosen.masked == 1 and chosen.reasons()["syn: email"] == 1
    assert query not in chosen.syn["query_id"].to_list()


def test_withhold_then_rehydrate(tmp_path: Path) -> None:
    ctx = published(tmp_path, "publish.licence_policy=withhold")
    dataset, own = ctx.paths.out / "dataset", ctx.paths.core / "tools.parquet"
    tools = read_table(dataset / "tools" / "train-00000-of-00001.parquet")
    hidden = tools.filter(pl.col("text_withheld"))
    source = read_table(own)
    assert set(hidden["source"].to_list()) == {"n8n_official"} and tools.height == source.height
    assert set(hidden["description"].to_list()) == set(hidden["tool_text"].to_list()) == {""}
    assert (
        hidden["tags"].list.len().sum() == 0
        and hidden["input_schema"].drop_nulls().to_list() == [""] * hidden.height
    )
    assert hidden["r_static"].null_count() == 0 and hidden["url"].null_count() == 0

    shard = dataset / "tools" / "train-00000-of-00001.parquet"
    before = shard.read_bytes()
    assert rehydrate(dataset, own, dry_run=True).filled == hidden.height and shard.read_bytes() == before
    rehydrate(dataset, own, out=tmp_path / "filled")
    assert shard.read_bytes() == before
    with pytest.raises(UserError, match="exists already"):
        rehydrate(dataset, own, out=tmp_path / "filled")
    done = rehydrate(dataset, own)
    assert (tmp_path / "filled" / "tools" / shard.name).read_bytes() == shard.read_bytes()
    assert done.as_dict()["filled"] == hidden.height
    assert (done.filled, done.missing, done.changed) == (hidden.height, (), ())
    again = read_table(dataset / "tools" / "train-00000-of-00001.parquet")
    assert again.select(list(ScoredTool.model_fields)).equals(source.select(list(ScoredTool.model_fields)))
    assert verify_dataset(dataset)["tools"] == {"train": source.height}
    assert rehydrate(dataset, own).filled == 0


def test_rehydrate_refuses_other_text(tmp_path: Path) -> None:
    ctx = published(tmp_path, "publish.licence_policy=withhold")
    dataset = ctx.paths.out / "dataset"
    other = read_table(ctx.paths.core / "tools.parquet").with_columns(description=pl.lit("Another version."))
    other.write_parquet(tmp_path / "other.parquet")
    before = (dataset / "tools" / "train-00000-of-00001.parquet").read_bytes()
    with pytest.raises(UserError, match="of another version"):
        rehydrate(dataset, tmp_path / "other.parquet")
    assert (dataset / "tools" / "train-00000-of-00001.parquet").read_bytes() == before
    with pytest.raises(UserError, match="missing"):
        rehydrate(dataset, tmp_path / "none.parquet")


def test_all_policy_says_so_on_the_card(tmp_path: Path) -> None:
    ctx = published(tmp_path, "publish.licence_policy=all")
    card = (ctx.paths.out / "dataset" / "README.md").read_text("utf-8")
    assert "everything is published, whatever its licence" in card
    assert "other" in yaml.safe_load(card.split("---")[1])["license"]


def test_card_says_what_is_there(run: RunContext, tmp_path: Path) -> None:
    card = (run.paths.out / "dataset" / "README.md").read_text("utf-8")
    head = yaml.safe_load(card.split("---")[1])
    assert {c["config_name"] for c in head["configs"]} == {c.name for c in CONFIGS}
    sizes = {
        i["config_name"]: {s["name"]: s["num_examples"] for s in i["splits"]} for i in head["dataset_info"]
    }
    assert sizes["tools"] == {"train": 24}
    assert head["license"] == ["cc-by-4.0", "mit"]
    assert "all-MiniLM-L6-v2 in the thenlper/gte-large role" in card
    assert "| Candidate encoder of Real | thenlper/gte-large |" not in card
    assert "tools: licence_not_open: 6" in card
    assert "| `labeling.min_cosine` | 0.7 | 0.19 |" in card
    assert "cos(SBERT(name), SBERT(description))" in card
    assert write_card(run, tmp_path / "card.md").read_text("utf-8") == card


def test_empty_split_is_refused(run: RunContext, tables: RunTables) -> None:
    tables["syn_queries"] = tables["syn_queries"].filter(pl.col("split") != "cold")
    with pytest.raises(
        UserError, match=r"'cold' of config 'syn' would be empty \(synthesis.cold_fraction = 0.1\)"
    ):
        check_splits(split_frames(select(tables, "publish")), run.settings)
    tables["real_qrels"] = tables["real_qrels"].clear()
    with pytest.raises(UserError, match=r"of config 'real' would be empty .*verifier_threshold = 0.65"):
        check_splits(split_frames(select(tables, "publish")), run.settings)


def test_failed_audit_is_not_published(tmp_path: Path) -> None:
    ctx = write_fixture_run(fixture_settings(tmp_path))
    write_json(ctx.paths.out / "audit.json", audit(passed=False))
    with pytest.raises(GateError, match="did not pass its audit"):
        execute(PublishStage(), ctx)
    assert not (ctx.paths.out / "dataset").exists()


@pytest.mark.parametrize("content", ["{", "[]", "{}", '{"passed": 1}', '{"passed": true}'])
def test_a_damaged_audit_is_named(tmp_path: Path, content: str) -> None:
    ctx = published(tmp_path)
    (ctx.paths.out / "audit.json").write_text(content)
    with pytest.raises(UserError, match=r"audit\.json is damaged.*remedy: run `ecoagent audit --force`"):
        execute(PublishStage(), ctx)
    with pytest.raises(UserError, match=r"audit\.json is damaged"):
        write_card(ctx, tmp_path / "card.md")


def test_wrong_count_on_the_card_is_noticed(tmp_path: Path) -> None:
    ctx = published(tmp_path)
    card = ctx.paths.out / "dataset" / "README.md"
    card.write_text(card.read_text("utf-8").replace("num_examples: 24", "num_examples: 23"), "utf-8")
    with pytest.raises(UserError, match="cannot be loaded"):
        verify_dataset(ctx.paths.out / "dataset")


def test_republishing_leaves_no_stale_file(tmp_path: Path) -> None:
    ctx = published(tmp_path, "publish.rows_per_shard=10")
    again = RunContext.create(fixture_settings(tmp_path), ctx.progress)
    execute(PublishStage(), again)
    assert [p.name for p in (ctx.paths.out / "dataset" / "tools").iterdir()] == [
        "train-00000-of-00001.parquet"
    ]
    rejects = read_table(ctx.paths.out / "publish_rejects.parquet")
    assert rejects["reason"].value_counts(sort=True)["reason"].to_list()
    assert read_json(ctx.paths.manifest)["stages"]["publish"]["rejects"]["tools: licence_not_open"] == 6


def test_deviations_are_computed() -> None:
    assert deviations(Settings()) == []
    found = {d.key: (d.paper, d.run) for d in deviations(load_settings("local", env={}))}
    assert found["labeling.encoder"] == ("thenlper/gte-large", "all-MiniLM-L6-v2")
    assert "llm.concurrency" not in found and "audit.min_tools" not in found
    assert found["train.cpu_bfloat16"] == ("False", "True")
    paper, beside = (
        load_settings("paper", env={}, overrides=more) for more in ([], ["train.siamese.epochs=3"])
    )
    assert deviations(beside) == deviations(paper), "the paper has no siamese encoder to deviate from"
    assert {r.shown for r in model_roles(Settings()) if " role" in r.shown} == set()
