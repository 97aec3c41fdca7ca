"""Growth: publication times, pinned releases, the monthly table, tags, figures."""

from __future__ import annotations

import io
import json
import tarfile
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from ecoagent.crawlers import npm_times
from ecoagent.crawlers.archives import hashes
from ecoagent.crawlers.artifacts import ArtifactStore
from ecoagent.crawlers.history import History, load_history, read_release, save_history
from ecoagent.crawlers.lock import LockEntry
from ecoagent.crawlers.npm_times import DatesUnknownError, date_of, out_of_order, read_times
from ecoagent.reliability import ReliabilityScales
from ecoagent.report import growth, growth_stage
from ecoagent.report.growth import Snapshot, gini, monthly, months_between, release_rows, summed, tag_table
from ecoagent.report.growth_figures import growth_figure, tags_figure
from ecoagent.runs import RunContext, execute, read_json, write_json
from ecoagent.settings import UserError
from tests.unit.fixture_run import fixture_settings, write_fixture_run

TIMES = {
    "created": "2023-01-02T03:04:05.000Z",
    "modified": "2024-01-01T00:00:00.000Z",
    "1.0.0": "2023-01-02T03:04:05.000Z",
    "1.0.1": "2023-02-01T23:30:00-05:00",
}


# ---- npm's times


@pytest.mark.parametrize(
    "wrap", [lambda t: t, lambda t: [t], lambda t: {"time": t}, lambda t: {"a": {"time": t}}]
)
def test_times_however_npm_wraps_them(wrap: Any) -> None:
    times = read_times(json.dumps(wrap(TIMES)), "a")
    assert times["1.0.0"] == "2023-01-02T03:04:05Z" and date_of(times, "created") == "2023-01-02"
    assert date_of(times, "1.0.1") == "2023-02-02", "in UTC"
    assert date_of(times, "9.9.9") is None


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        ("", "no times"),
        ("{}", "no times"),
        ("nonsense", "no times"),
        ('{"1.0.0": 5, "created": null}', "no times"),
        (json.dumps({"1.0.0": "2026-05-01T00:00:00+00:00"}), "no time of creation"),
        (json.dumps(TIMES | {"1.0.1": "2022-12-31T00:00:00Z"}), "dates 1.0.1 before 1.0.0"),
    ],
)
def test_times_that_are_not_those_of_publication_are_refused(answer: str, why: str) -> None:
    with pytest.raises(DatesUnknownError, match=why):
        read_times(answer, "a")


def test_only_the_order_within_a_minor_line_is_judged() -> None:
    fix_of_an_old_line = {"1.9.1": "2025-05-01", "2.0.0": "2025-01-01", "2.0.1-beta.1": "2020-01-01"}
    assert out_of_order(fix_of_an_old_line) is None
    assert out_of_order({"1.0.9": "2025-01-02", "1.0.10": "2025-01-01"}) == ("1.0.9", "1.0.10")


def test_npm_is_asked_by_name_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[list[str]] = []

    def answer(command: list[str], shown: str, timeout_s: float) -> str:
        asked.append(command)
        return json.dumps(TIMES)

    monkeypatch.setattr(npm_times, "npm_command", lambda: ["npm"])
    monkeypatch.setattr(npm_times, "_run", answer)
    assert "1.0.1" in npm_times.publication_times("@scope/name", timeout_s=1)
    assert asked == [["npm", "view", "--json", "--fetch-retries=1", "@scope/name", "time"]]


# ---- pinned releases


def node(name: str, words: str, **facts: Any) -> dict[str, Any]:
    base = {"name": name, "displayName": name.rsplit(".", maxsplit=1)[-1], "description": words}
    return {
        **base,
        "group": ["output"],
        "version": 1,
        "properties": [],
        "codex": {"categories": ["Mail"]},
        **facts,
    }


def pin(store: ArtifactStore, version: str, day: str, nodes: list[dict[str, Any]]) -> LockEntry:
    """A release of a made-up package, put into the store."""
    members = {
        "package.json": {"name": "made-up", "version": version, "license": "MIT"},
        "dist/types/nodes.json": nodes,
        "dist/types/credentials.json": [],
        "dist/known/nodes.json": {},
    }
    made = store.root / f"made-up-{version}.tgz"
    made.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(made, "w:gz") as archive:
        for name, content in members.items():
            data = json.dumps(content).encode()
            info = tarfile.TarInfo(f"package/{name}")
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    entry = LockEntry(
        source="n8n_official",
        ecosystem="npm",
        name="made-up",
        version=version,
        filename=made.name,
        sha256=hashes(made)[0],
        size=made.stat().st_size,
        published_at=day,
    )
    final = store.path(entry)
    final.parent.mkdir(parents=True, exist_ok=True)
    made.rename(final)
    return entry


def test_shipped_history_spans_two_years() -> None:
    shipped = load_history()
    base = [r for r in shipped.ordered if r.name == "n8n-nodes-base"]
    days = [r.published_at or "" for r in base]
    assert len(base) >= 5 and days == sorted(days)
    assert int(days[-1][:4]) * 12 + int(days[-1][5:7]) - int(days[0][:4]) * 12 - int(days[0][5:7]) >= 20
    assert all(r.integrity for r in shipped.releases) and "release notes" in shipped.dates_from
    assert [r.version for r in shipped.newest(1).ordered] == ["2.41.1", "2.41.2"]


def test_history_file_round_trip_and_faults(tmp_path: Path) -> None:
    path = save_history(tmp_path / "h.json", load_history())
    assert load_history(path).digest == load_history().digest
    data = json.loads(path.read_text("utf-8"))
    data["releases"].append(data["releases"][0])
    path.write_text(json.dumps(data), "utf-8")
    with pytest.raises(UserError, match="listed twice"):
        load_history(path)
    del data["releases"][-1]["published_at"], data["releases"][1:-1]
    data["releases"] = data["releases"][-1:]
    path.write_text(json.dumps(data), "utf-8")
    with pytest.raises(UserError, match="without published_at"):
        load_history(path)
    data["releases"][0]["sha256"] = "no"
    path.write_text(json.dumps(data), "utf-8")
    with pytest.raises(UserError, match=r"entry 1 \(.+langchain 1\.68\.0\) sha256"):
        load_history(path)
    path.write_text("{", "utf-8")
    with pytest.raises(UserError, match="not JSON"):
        load_history(path)
    with pytest.raises(UserError, match="cannot be read"):
        load_history(tmp_path / "none.json")


def test_names_of_old_lists_lose_the_package(tmp_path: Path) -> None:
    settings = fixture_settings(tmp_path, f"crawl.artifact_dir={tmp_path / 'store'}")
    store = ArtifactStore.of(settings.crawl)
    old = pin(store, "1.0.0", "2025-01-05", [node("made-up.send", "Sends a letter to somebody far away.")])
    (found,) = read_release(old, settings.crawl)
    assert (found.record.name, found.record.id) == ("send", "n8n:made-up.send")


# ---- the monthly table


def test_months_cross_a_year() -> None:
    assert months_between("2024-11-30", "2025-02-01") == ["2024-11", "2024-12", "2025-01", "2025-02"]
    assert months_between("2025-02", "2025-01") == []


def test_totals_are_what_came_and_went() -> None:
    one = [
        Snapshot("2025-01-10", {"a": True, "b": False}),
        Snapshot("2025-03-10", {"a": False, "c": True, "d": True}),
    ]
    two = [Snapshot("2025-02-10", {"x": True})]
    rows = monthly("s", {"one": one, "two": two}, months_between("2025-01", "2025-04"))
    assert [(r.total, r.reliable, r.base, r.added, r.removed, r.pinned) for r in rows] == [
        (2, 1, 2, 0, 0, True),
        (3, 2, 1, 0, 0, True),
        (4, 3, 0, 2, 1, True),
        (4, 3, 0, 0, 0, False),
    ]
    before = 0
    for row in rows:
        assert row.total == before + row.base + row.added - row.removed
        before = row.total
    born = monthly(
        "t", {"one": one[:1], "two": two}, months_between("2025-01", "2025-02"), first_is_base=False
    )
    assert [(r.base, r.added) for r in born] == [(2, 0), (0, 1)]
    both = summed([*rows, *born])
    assert [(r.month, r.total) for r in both][:2] == [("2025-01", 4), ("2025-02", 6)]


def test_a_month_with_two_releases_shows_the_later() -> None:
    releases = [Snapshot("2025-01-20", {"b": True}), Snapshot("2025-01-10", {"a": True})]
    (row,) = monthly("s", {"p": releases}, ["2025-01"])
    assert (row.total, row.base, row.added) == (1, 1, 0)
    listed = release_rows({"p": [("2", releases[0]), ("1", releases[1])]})
    assert [(r["version"], r["added"], r["removed"]) for r in listed] == [("1", [], []), ("2", ["b"], ["a"])]


# ---- tags


def test_tags_are_counted_once_a_tool() -> None:
    tools = pl.DataFrame(
        {
            "source": ["crewai", "crewai", "n8n_official", "langchain"],
            "tags": [["Mail", "mail "], ["mail", "rare"], ["Mail"], []],
        }
    )
    found = tag_table(tools)
    assert found["top"][0] == {"tag": "mail", "tools": 3, "by_source": {"crewai": 2, "n8n_official": 1}}
    assert (found["distinct"], found["uses"], found["used_once"], found["untagged"]) == (2, 4, 1, 1)
    assert found["untagged_by_source"]["langchain"] == [1, 1] and found["gini"] == 0.25
    assert tag_table(tools.head(0))["top"] == [] and tags_figure(tag_table(tools.head(0))) is None


def test_gini() -> None:
    assert gini([]) == 0 and gini([3, 3, 3]) == 0
    assert gini([0, 0, 0, 9]) == 0.75


# ---- the stage


class Words:
    """An encoder that tells texts apart by length alone and counts what it is given."""

    def __init__(self) -> None:
        self.seen = 0

    def encode_documents(self, texts: list[str]) -> Any:
        self.seen += len(texts)
        return np.array([[1.0, (len(t) % 7) / 7] for t in texts])


@pytest.fixture
def asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[RunContext, growth_stage.Asked, Words]:
    store_folder = tmp_path / "store"
    ctx = write_fixture_run(fixture_settings(tmp_path / "outputs", f"crawl.artifact_dir={store_folder}"))
    ruler = ReliabilityScales(40.0, 10.0, 8.0, 4.0, 30)
    write_json(ctx.paths.core / "reliability_scales.json", asdict(ruler))
    store = ArtifactStore.of(ctx.settings.crawl)
    letters, parcels = (
        node("send", "Sends a letter to somebody far away."),
        node("parcel", "Sends a parcel by the post of the land."),
    )
    releases = (
        pin(store, "1.0.0", "2025-01-05", [node("made-up.send", "Sends a letter to somebody far away.")]),
        pin(store, "1.1.0", "2025-03-05", [letters, parcels]),
        pin(store, "1.2.0", "2025-04-05", [parcels, letters | {"hidden": True}]),
    )
    encoder = Words()
    monkeypatch.setattr(growth_stage, "load_sbert", lambda ctx, name: encoder)
    history = History(dates_from="made up for the test", releases=releases)
    return ctx, growth_stage.Asked(history), encoder


def run_growth(ctx: RunContext, asked: growth_stage.Asked) -> tuple[str, dict[str, Any]]:
    stage = growth_stage.GrowthStage(asked)
    stage.prepare(ctx)
    status = execute(stage, ctx).status
    return status, read_json(ctx.paths.out / "results" / growth.GROWTH_FILE)


def test_growth_of_a_run(asked: tuple[RunContext, growth_stage.Asked, Words]) -> None:
    ctx, wanted, encoder = asked
    status, found = run_growth(ctx, wanted)
    assert status == "done"
    assert [(r["month"], r["total"], r["base"], r["added"], r["removed"]) for r in found["all"]] == [
        ("2025-01", 1, 1, 0, 0),
        ("2025-02", 1, 0, 0, 0),
        ("2025-03", 2, 0, 1, 0),
        ("2025-04", 1, 0, 0, 1),
    ]
    assert {u["source"] for u in found["undated"]} == {"langchain", "crewai", "llamaindex", "n8n_community"}
    assert encoder.seen == 4, "two distinct tools, name and description of each"
    names = sorted(p.name for p in ctx.paths.report.iterdir())
    assert names == ["growth.png", "growth.svg", "tags.png", "tags.svg"]
    before = {p.name: p.read_bytes() for p in ctx.paths.report.iterdir()}
    assert run_growth(ctx, wanted)[0] == "up to date"
    stage = growth_stage.GrowthStage(wanted)
    execute(stage, ctx, force=True)
    assert {p.name: p.read_bytes() for p in ctx.paths.report.iterdir()} == before
    assert encoder.seen == 4, "the cache outlives --force"
    svg = before["growth.svg"].decode()
    assert svg.startswith("<?xml") and "<dc:date>" not in svg


def test_a_later_crawl_parses_nothing_again(asked: tuple[RunContext, growth_stage.Asked, Words]) -> None:
    ctx, wanted, _ = asked
    run_growth(ctx, wanted)
    tools = pl.read_parquet(ctx.paths.core / "tools.parquet")
    points = [
        *growth.crawl_points("may", "2025-05-01", tools.head(10)),
        *growth.crawl_points("june", "2025-06-01", tools),
    ]
    created = {tools.filter(pl.col("source") == "n8n_community")["provenance"][0]["artifact"]: "2025-02-02"}
    more = growth_stage.Asked(wanted.history, created, points)
    shard = next((ctx.paths.raw / "growth").iterdir()) / "_shard.json"
    stamp = shard.stat().st_mtime_ns
    status, found = run_growth(ctx, more)
    assert status == "done" and shard.stat().st_mtime_ns == stamp
    assert {r["source"] for r in found["rows"]} == {"n8n_official", "n8n_community"}
    section = growth.growth_section(found, tools)
    assert [c["run"] for c in section["crawls"]] == ["may", "june"] and section["crawls"][1]["total"] == 30


def test_a_dead_release_is_a_note(
    asked: tuple[RunContext, growth_stage.Asked, Words], monkeypatch: pytest.MonkeyPatch
) -> None:
    ctx, wanted, _ = asked
    whole = read_release

    def fail(entry: LockEntry, crawl: Any) -> Any:
        if entry.version == "1.1.0":
            raise UserError("it is gone", remedy="none")
        return whole(entry, crawl)

    monkeypatch.setattr(growth_stage, "read_release", fail)
    _, found = run_growth(ctx, wanted)
    assert found["incomplete"] == ["n8n__made-up__1.1.0"] and "it is gone" in found["notes"][0]
    assert [r["version"] for r in found["releases"]] == ["1.0.0", "1.2.0"]
    monkeypatch.setattr(growth_stage, "read_release", whole)
    status, again = run_growth(ctx, wanted)
    assert status == "done" and again["incomplete"] == [] and len(again["releases"]) == 3


def test_a_ruler_that_cannot_be_read_is_named(asked: tuple[RunContext, growth_stage.Asked, Words]) -> None:
    ctx, wanted, _ = asked
    write_json(ctx.paths.core / "reliability_scales.json", {"other": 1})
    with pytest.raises(UserError, match="is not a ruler"):
        run_growth(ctx, wanted)


def test_figures_take_little() -> None:
    assert growth_figure({"all": [], "crawls": []}) is None
    row = {"month": "2025-01", "total": 0, "reliable": 0, "base": 0, "added": 0, "removed": 0, "pinned": True}
    picture = growth_figure({"all": [row], "undated": [], "crawls": []})
    assert picture is not None and picture.png.startswith(b"\x89PNG")
    days = [f"2025-0{m}-01" for m in range(1, 8)]
    points = [{"run": d, "date": d, "source": "crewai", "total": 3, "reliable": 1} for d in days]
    assert growth_figure({"all": [], "crawls": points}) is not None
