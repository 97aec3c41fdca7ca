"""The crawl and normalize stages end to end on handwritten artifacts, without any client."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest

from ecoagent.crawlers import HashMismatchError, load_candidates, verify
from ecoagent.crawlers.lock import Lock, LockEntry, save_lock
from ecoagent.crawlers.normalize_stage import NormalizeStage
from ecoagent.crawlers.stage import CrawlStage
from ecoagent.runs import Progress, RunContext, execute, read_rows
from ecoagent.schema import NormalizedTool, RejectedTool
from ecoagent.settings import Settings, UserError, load_settings

from .fixtures_crawl import community, entry_of, sources, tarball, wheel
from .test_parse_n8n import CREDENTIAL, NODE, SHARED
from .test_parse_python import CREWAI, LANGCHAIN, LLAMA


@pytest.fixture
def world(tmp_path: Path) -> Path:
    """A lock file and a store that already holds its artifacts."""
    built = [
        ("langchain", "demo-lc", wheel(tmp_path / "lc.whl", sources(LANGCHAIN))),
        ("crewai", "demo-crew", wheel(tmp_path / "crew.whl", sources(CREWAI))),
        ("llamaindex", "llama-index-tools-notes", wheel(tmp_path / "notes.whl", sources(LLAMA))),
        (
            "n8n_community",
            "n8n-nodes-demo",
            tarball(
                tmp_path / "n8n-nodes-demo.tgz",
                community(
                    {"dist/Demo.node.js": NODE},
                    {"dist/shared.js": SHARED, "dist/DemoApi.credentials.js": CREDENTIAL},
                ),
            ),
        ),
    ]
    entries = [entry_of(path, source, name) for source, name, path in built]
    for entry, (_, _, path) in zip(entries, built, strict=True):
        keep(tmp_path, entry, path)
    save_lock(tmp_path / "lock.json", Lock(artifacts=tuple(entries)))
    return tmp_path


def keep(root: Path, entry: LockEntry, path: Path) -> None:
    target = root / "store" / entry.sha256 / entry.filename
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_bytes(path.read_bytes())


def settings_of(world: Path, *overrides: str, run: str = "t") -> Settings:
    return load_settings(
        "local",
        env={},
        overrides=[
            f'crawl.lock="{world / "lock.json"}"',
            f'crawl.artifact_dir="{world / "store"}"',
            f'outputs="{world / "outputs"}"',
            *overrides,
        ],
        run=run,
    )


def context(world: Path, *overrides: str, run: str = "t") -> RunContext:
    return RunContext.create(settings_of(world, *overrides, run=run), Progress(io.StringIO()))


@pytest.fixture(autouse=True)
def no_client(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*args: object, **kwargs: object) -> None:
        raise UserError("a client was called")

    monkeypatch.setattr("ecoagent.crawlers.client._run", refuse)


def test_crawl_then_normalize(world: Path) -> None:
    ctx = context(world)
    assert CrawlStage().estimate(ctx) == {
        "artifacts": 4,
        "client_calls": 0,
        "download_mb": 0.0,
        "minutes": pytest.approx(0, abs=0.1),
    }
    report = execute(CrawlStage(), ctx).report
    assert report.rows == {"crewai": 2, "langchain": 5, "llamaindex": 2, "n8n_community": 1}
    assert report.summary["incomplete"] == []
    assert report.rejects["template"] == 2
    summary = json.loads((ctx.paths.raw / "crawl_summary.json").read_text())
    assert {a["artifact"] for a in summary["artifacts"]} >= {"demo-lc==1.0.0", "n8n-nodes-demo@1.0.0"}
    execute(NormalizeStage(), ctx)
    tools = read_rows(ctx.paths.core / "tools_normalized.parquet", NormalizedTool)
    rejects = read_rows(ctx.paths.core / "tool_rejects.parquet", RejectedTool)
    assert [t.id for t in tools] == sorted(t.id for t in tools)
    assert len(tools) + len(rejects) == len(load_candidates(ctx.paths.raw))
    assert {r.stage for r in rejects} == {"crawl"}
    assert next(t for t in tools if t.id == "n8n:n8n-nodes-demo.demo").provider == "demo.io"


def test_second_run_is_up_to_date_and_another_is_byte_identical(world: Path) -> None:
    first, second = context(world), context(world, run="u")
    for ctx in (first, second):
        execute(CrawlStage(), ctx)
        execute(NormalizeStage(), ctx)
    assert execute(CrawlStage(), first).status == "up to date"
    for name in ("tools_normalized.parquet", "tool_rejects.parquet"):
        assert (first.paths.core / name).read_bytes() == (second.paths.core / name).read_bytes()


def replace_entry(world: Path, name: str, **update: object) -> None:
    lock = json.loads((world / "lock.json").read_text())
    for item in lock["artifacts"]:
        if item["name"] == name:
            item.update(update)
    (world / "lock.json").write_text(json.dumps(lock))


def test_dead_package_is_a_reject_and_is_tried_again(world: Path) -> None:
    gone = next((world / "store").glob("*/crew.whl"))
    data = gone.read_bytes()
    gone.unlink()
    ctx = context(world)
    report = execute(CrawlStage(), ctx).report
    assert report.rejects["unavailable"] == 1
    assert report.summary["incomplete"] == ["crewai__demo-crew"]
    execute(NormalizeStage(), ctx)
    reject = next(
        r
        for r in read_rows(ctx.paths.core / "tool_rejects.parquet", RejectedTool)
        if r.reason == "unavailable"
    )
    assert (reject.id, reject.detail) == ("crewai:demo-crew", "a client was called")
    # Only the shard that failed has lost its marker.
    marked = {p.parent.name for p in (ctx.paths.raw / "crawl").glob("*/_shard.json")}
    assert marked == {"langchain__demo-lc", "llamaindex__llama-index-tools-notes", "n8n__n8n-nodes-demo"}
    gone.write_bytes(data)
    (ctx.paths.markers / "crawl.json").unlink()
    assert execute(CrawlStage(), ctx).report.summary["incomplete"] == []


def test_package_that_is_not_what_it_says_is_a_reject(world: Path) -> None:
    path = tarball(world / "pad.tgz", {"package.json": b'{"name": "left-pad"}'})
    entry = entry_of(path, "n8n_community", "left-pad")
    keep(world, entry, path)
    lock = json.loads((world / "lock.json").read_text())
    lock["artifacts"].append(entry.model_dump(mode="json"))
    (world / "lock.json").write_text(json.dumps(lock))
    report = execute(CrawlStage(), context(world)).report
    assert report.rejects["unavailable"] == 1


def test_hash_mismatch_stops_the_crawl(world: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    replace_entry(world, "demo-crew", sha256="f" * 64)

    def download(name: str, version: str, folder: Path, *, timeout_s: float) -> Path:
        target = folder / "crew.whl"
        target.write_bytes(b"other bytes")
        return target

    monkeypatch.setattr("ecoagent.crawlers.artifacts.download_wheel", download)
    with pytest.raises(HashMismatchError, match=r"demo-crew==1\.0\.0.*expected f{64}"):
        execute(CrawlStage(), context(world))


def test_all_dead_is_an_error(world: Path) -> None:
    for path in (world / "store").glob("*/*"):
        path.unlink()
    with pytest.raises(UserError, match="none of the 4 artifacts"):
        execute(CrawlStage(), context(world))


def test_limit_is_per_catalog_and_settings_change_the_key(world: Path) -> None:
    ctx = RunContext.create(
        settings_of(world, "limit=1", 'crawl.catalogs=["crewai"]'), Progress(io.StringIO())
    )
    assert [s.key for s in CrawlStage().plan(ctx)] == ["crewai__demo-crew"]
    stage, plain = CrawlStage(), context(world)
    shard = stage.plan(plain)[0]
    other = context(world, 'crawl.granularity="operation"')
    assert stage.shard_content(plain, shard) != stage.shard_content(other, shard)


def test_operation_granularity(world: Path) -> None:
    report = execute(CrawlStage(), context(world, 'crawl.granularity="operation"')).report
    assert sum(report.rows.values()) == 10


def test_normalize_needs_a_crawl(world: Path) -> None:
    with pytest.raises(UserError, match="no crawled candidates"):
        execute(NormalizeStage(), context(world, run="none"))


def test_bad_candidate_line_is_named(world: Path) -> None:
    ctx = context(world)
    execute(CrawlStage(), ctx)
    path = ctx.paths.raw / "crawl" / "crewai__demo-crew" / "candidates.jsonl"
    path.write_text(path.read_text() + '{"status": "kept"}\n')
    with pytest.raises(UserError, match=r"candidates\.jsonl row 8 is not a candidate"):
        load_candidates(ctx.paths.raw)


BORROWER = NODE.replace("demoApi", "lentApi")
LENT = [{"name": "lentApi", "properties": [{"name": "token", "typeOptions": {"password": True}}]}]


@pytest.fixture
def lending(tmp_path: Path) -> Path:
    """A community node that names a credential type of an official package."""
    borrower = tarball(
        tmp_path / "b.tgz", community({"dist/Demo.node.js": BORROWER}, {"dist/shared.js": SHARED})
    )
    lender = tarball(
        tmp_path / "l.tgz",
        {
            "package.json": b"{}",
            "dist/types/nodes.json": b"[]",
            "dist/types/credentials.json": json.dumps(LENT).encode(),
        },
    )
    entries = [
        entry_of(borrower, "n8n_community", "n8n-nodes-demo"),
        entry_of(lender, "n8n_official", "n8n-own"),
    ]
    for entry, path in zip(entries, (borrower, lender), strict=True):
        keep(tmp_path, entry, path)
    save_lock(tmp_path / "lock.json", Lock(artifacts=tuple(entries)))
    return tmp_path


def test_credential_types_are_lent_by_what_is_crawled_only(lending: Path) -> None:
    alone = context(lending, run="alone")
    execute(CrawlStage(), alone)
    (found,) = load_candidates(alone.paths.raw)
    # The lender lies in the store, but is not crawled: results must not depend on the store.
    assert (found.record.auth[0].fields, found.record.quality_flags) == ([], ["credential_type_elsewhere"])
    both = context(lending, "crawl.n8n_official=true", run="both")
    execute(CrawlStage(), both)
    (found,) = load_candidates(both.paths.raw)
    assert ([f.name for f in found.record.auth[0].fields], found.record.quality_flags) == (["token"], [])
    stage = CrawlStage()
    shard = next(s for s in stage.plan(both) if s.key == "n8n__n8n-nodes-demo")
    assert stage.shard_content(alone, shard)["lenders"] == []
    assert len(stage.shard_content(both, shard)["lenders"]) == 1


def test_text_no_file_can_hold_is_the_packages_own_fault(world: Path) -> None:
    source = """
        from langchain_core.tools import BaseTool

        class Bad(BaseTool):
            name: str = "bad"
            description: str = "half \\ud800"

            def _run(self):
                return ""
        """
    path = wheel(world / "bad.whl", sources({"bad/tool.py": source}))
    entry = entry_of(path, "langchain", "demo-bad")
    keep(world, entry, path)
    lock = json.loads((world / "lock.json").read_text())
    lock["artifacts"].append(entry.model_dump(mode="json"))
    (world / "lock.json").write_text(json.dumps(lock))
    report = execute(CrawlStage(), context(world)).report
    assert report.rejects["unavailable"] == 1
    assert report.summary["incomplete"] == ["langchain__demo-bad"]


def test_one_more_artifact_leaves_the_others_as_they_are(world: Path) -> None:
    lock = Lock.model_validate(json.loads((world / "lock.json").read_text()))
    ctx = context(world)
    save_lock(world / "lock.json", Lock(artifacts=lock.artifacts[:-1]))
    execute(CrawlStage(), ctx)
    before = {p: p.stat().st_mtime_ns for p in (ctx.paths.raw / "crawl").rglob("_shard.json")}
    save_lock(world / "lock.json", lock)
    execute(CrawlStage(), ctx)
    marker = json.loads((ctx.paths.markers / "crawl.json").read_text())
    assert marker["shards"] == {"planned": len(lock.artifacts), "run": 1}
    assert {p: p.stat().st_mtime_ns for p in before} == before


def test_a_wrong_size_in_the_lock_ends_the_crawl(world: Path) -> None:
    lock = Lock.model_validate(json.loads((world / "lock.json").read_text()))
    first = lock.artifacts[0]
    wrong = first.model_copy(update={"size": first.size + 1})
    path = world / "store" / first.sha256 / first.filename
    with pytest.raises(HashMismatchError, match=f"{first.size + 1} bytes"):
        verify(wrong, path)
