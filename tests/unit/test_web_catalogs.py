"""The documentation catalogs, collected from the stand-in and read; the whole command line on top."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from typer.testing import CliRunner

from ecoagent.cli import stages
from ecoagent.cli.app import app
from ecoagent.cli.options import print_json
from ecoagent.crawlers import CrawlStage, LockEntry, load_lock
from ecoagent.crawlers.web import npm_search, sources
from ecoagent.crawlers.web.client import PoliteClient
from ecoagent.runs import Progress, RunContext, execute
from ecoagent.schema import Candidate
from ecoagent.settings import HttpSettings, Settings, UserError
from tests.standin.server import Reply, StandIn
from tests.standin.site import Addresses, mount
from tests.standin.truth import CREWAI, CREWAI_SPECS, LANGCHAIN, NOT_LANGCHAIN, SPECS_LEFT_OUT
from tests.standin.truth_npm import N8N_TWICE, N8N_VERIFIED, NPM_GOOD, NPM_OPTIONAL


@pytest.fixture
def web() -> Iterator[StandIn]:
    with StandIn() as server:
        yield server


@pytest.fixture
def where(web: StandIn) -> Addresses:
    return mount(web)


def http_of(web: StandIn, where: Addresses, store: Path, **more: Any) -> HttpSettings:
    named = {n: getattr(where, n) for n in ("langchain_docs", "crewai_docs", "crewai_specs", "n8n_verified")}
    return HttpSettings(
        allow_private=(web.host,), requests_per_second=50, backoff_s=0.01, store=store, **{**named, **more}
    )


def crawl(name: str, http: HttpSettings, folder: Path, granularity: Any = "tool") -> list[Candidate]:
    kind = sources.snapshot_named(name)
    path = folder / sources.filename(name)
    with PoliteClient(http) as client:
        path.write_bytes(sources.snapshot(name, http, client))
    entry = LockEntry(
        source=kind.source,
        ecosystem="http",
        name=name,
        version="0" * 12,
        filename=path.name,
        sha256="0" * 64,
        size=1,
        url=kind.index(http),
        licence=kind.licence,
    )
    return sources.parse_snapshot(path, entry, granularity)


def path_of(url: str | None, web: StandIn) -> str | None:
    return url.replace(web.url(""), "") if url else url


def test_langchain_is_what_a_careful_human_reads(web: StandIn, where: Addresses, tmp_path: Path) -> None:
    found = crawl("langchain-docs", http_of(web, where, tmp_path / "r"), tmp_path)
    by_page = {path_of(c.record.docs_url, web): c for c in found}
    wanted = [t for t in LANGCHAIN if not t["optional"]]
    assert {path_of(c.record.docs_url, web) for c in found} == {t["final_url"] for t in wanted}
    for truth in wanted:
        got = by_page[truth["final_url"]]
        record = got.record
        if truth["dead"] == "external":
            assert record.display_name == truth["name"]
            assert (got.status, got.reason) == (
                ("kept", None) if truth.get("row") else ("rejected", "no_description")
            )
            assert record.description == truth.get("row", "")
            continue
        if truth["dead"]:
            assert (got.reason, got.detail) == ("dead_page", truth["dead"]), truth["name"]
            assert record.description == ""
            continue
        assert record.display_name == truth["name"]
        assert record.description == (truth["description"] or ""), truth["name"]
        assert got.reason == (None if truth["description"] else "no_description")
        assert record.group_id == (truth["package"] or f"docs#{truth['docs_url'].rpartition('/')[2]}")
        if truth["classes"]:
            assert record.id.startswith("langchain:") and record.id.endswith(f".{truth['classes'][0]}")
        else:
            assert "#" in record.id
        assert record.deprecated.state == truth["deprecated"]
        assert record.deprecated.replacement == truth["replacement"]
    assert not {c.record.display_name for c in found} & set(NOT_LANGCHAIN)
    assert all(c.record.description_origin == ("docs" if c.record.description else "none") for c in found)
    assert all(c.record.provenance.backend == "http" for c in found)


def test_crewai_one_language_and_version(web: StandIn, where: Addresses, tmp_path: Path) -> None:
    found = crawl("crewai-docs", http_of(web, where, tmp_path / "r"), tmp_path)
    by_page = {path_of(c.record.docs_url, web): c for c in found}
    assert set(by_page) == {t["docs_url"] for t in CREWAI}
    for truth in CREWAI:
        got = by_page[truth["docs_url"]]
        if truth["dead"]:
            assert (got.reason, got.detail) == ("dead_page", truth["dead"])
            continue
        assert got.record.id == f"crewai:{truth['class']}"
        assert got.record.display_name == truth["name"]
        assert got.record.description == truth["description"]
        assert got.record.tags == [truth["category"]]
        assert got.record.deprecated.state == truth["deprecated"]
        assert got.record.deprecated.replacement == truth["replacement"]
    assert all(p.startswith("/en/tools/") for p in web.paths())


def test_crewai_specs(web: StandIn, where: Addresses, tmp_path: Path) -> None:
    found = crawl("crewai-specs", http_of(web, where, tmp_path / "r"), tmp_path)
    first = {c.record.id: c for c in found if c.reason not in ("duplicate", "bad_name")}
    assert len(found) == len(CREWAI_SPECS) + SPECS_LEFT_OUT - 2  # null and a string leave no trace
    for truth in CREWAI_SPECS:
        got = first[f"crewai:{truth['class']}"]
        record = got.record
        if truth["bad"]:
            assert got.reason == "no_description"
            continue
        assert got.status == "kept"
        assert record.name == (truth["name"] or truth["class"])
        assert record.description == truth["description"]
        assert record.parameter_names == sorted(truth["params"])
        assert [(a.name, a.required) for a in record.auth] == sorted(
            (e["name"], e["required"]) for e in truth["env"]
        )
        assert record.schema_origin == ("specs" if record.input_schema else None)


def test_n8n_verified(web: StandIn, where: Addresses, tmp_path: Path) -> None:
    found = crawl("n8n-verified", http_of(web, where, tmp_path / "r"), tmp_path)
    by_id = {c.record.id: c for c in found}
    for truth in N8N_VERIFIED:
        if truth["bad"] == "package_name":
            continue
        got = by_id[f"n8n:{truth['package']}.{truth['node']}"]
        assert got.record.verified is True
        assert got.record.source == "n8n_community"
        if truth["bad"] == "no_description":
            assert got.reason == "no_description"
        elif not truth["optional"]:
            assert got.status == "kept"
            assert got.record.description == truth["description"]
            assert got.record.display_name == truth["name"]
            assert got.record.published_at
            assert (got.record.downloads is None) == ("downloads" in truth)
    bad = [c for c in found if c.reason == "bad_name"]
    assert len(bad) == sum(t["bad"] == "package_name" for t in N8N_VERIFIED) + 1  # one has no attributes
    assert all("#" in c.record.id for c in bad)
    assert sum(c.record.group_id == N8N_TWICE for c in found) == 1
    assert len(found) == len(N8N_VERIFIED) + 1


@pytest.mark.parametrize("granularity", ["package", "operation"])
def test_other_granularities_have_unique_ids(
    web: StandIn, where: Addresses, tmp_path: Path, granularity: str
) -> None:
    http = http_of(web, where, tmp_path / "r")
    for name in sources.SNAPSHOTS:
        found = crawl(name, http, tmp_path, granularity)
        kept = [c.record.id for c in found if c.status == "kept"]
        assert len(kept) == len(set(kept))
        assert kept or (name.startswith("crewai") and granularity == "package")
        if granularity == "package":
            assert all(c.record.granularity == "package" for c in found if c.status == "kept")


def test_a_second_collect_makes_no_requests(web: StandIn, where: Addresses, tmp_path: Path) -> None:
    http = http_of(web, where, tmp_path / "r")
    for name in sources.SNAPSHOTS:
        with PoliteClient(http) as client:
            first = sources.snapshot(name, http, client)
        web.requests.clear()
        with PoliteClient(http) as client:
            assert sources.snapshot(name, http, client) == first
        assert (client.counts.requests, web.paths(robots=True)) == (0, [])


def test_too_many_pages_and_a_dead_index(web: StandIn, where: Addresses, tmp_path: Path) -> None:
    http = http_of(web, where, tmp_path / "r", max_pages=3)
    for name in ("langchain-docs", "crewai-docs"):
        with PoliteClient(http) as client, pytest.raises(UserError, match="more than 3 pages"):
            sources.snapshot(name, http, client)
    gone = http_of(web, where, tmp_path / "r", langchain_docs=web.url("/oss/nothing"))
    with PoliteClient(gone) as client, pytest.raises(UserError, match="not_found"):
        sources.snapshot("langchain-docs", gone, client)


def test_npm_search(web: StandIn, where: Addresses, tmp_path: Path) -> None:
    http = http_of(web, where, tmp_path / "r", npm_search=True)
    lines: list[str] = []
    for registry in (where.npm_registry, where.npm_registry_looping):
        with PoliteClient(http) as client:
            found = npm_search.search(client, http, lines.append, registry=lambda r=registry: r)  # type: ignore[misc]
        names = [f.name for f in found]
        assert names == sorted(set(names))
        if registry == where.npm_registry:
            assert set(names) - set(NPM_OPTIONAL) == set(NPM_GOOD)
        assert {f.version for f in found if f.name in NPM_OPTIONAL[1:]} <= {""}
        assert all(f.published is None or len(f.published) == 10 for f in found)


def test_npm_search_refuses(web: StandIn, where: Addresses, tmp_path: Path) -> None:
    off = http_of(web, where, tmp_path / "r")
    on = http_of(web, where, tmp_path / "r", npm_search=True)
    with PoliteClient(on) as client:
        with pytest.raises(UserError, match="is off"):
            npm_search.search(client, off, print, registry=lambda: where.npm_registry)
        for address in ("", "undefined", "file:///etc", "ftp://host/", "http://"):
            with pytest.raises(UserError, match=r"no http\(s\) address"):
                npm_search.search(client, on, print, registry=lambda a=address: a)  # type: ignore[misc]
    assert web.paths() == []


# The command line.


class Desk:
    """A folder to run the command in, with everything pointed at the stand-in."""

    def __init__(self, root: Path, web: StandIn, where: Addresses) -> None:
        self.root, self.web = root, web
        self.lock = root / "my.lock.json"
        self.sets = [
            f"outputs={json.dumps(str(root / 'outputs'))}",
            f"crawl.artifact_dir={json.dumps(str(root / 'store'))}",
            f"http.store={json.dumps(str(root / 'responses'))}",
            f"http.allow_private=[{json.dumps(web.host)}]",
            "http.requests_per_second=50",
            "http.backoff_s=0.01",
            *(
                f"http.{n}={json.dumps(getattr(where, n))}"
                for n in ("langchain_docs", "crewai_docs", "crewai_specs", "n8n_verified")
            ),
        ]

    def run(self, *arguments: str, lock: bool = True) -> Any:
        options = [x for s in self.sets for x in ("--set", s)]
        if lock:
            options += ["--lock", str(self.lock)]
        return CliRunner().invoke(app, ["crawl", *arguments, *options])

    def candidates(self, run: str) -> bytes:
        files = sorted((self.root / "outputs" / "runs" / run / "raw" / "crawl").glob("*/candidates.jsonl"))
        assert files
        return b"".join(f.read_bytes() for f in files)


@pytest.fixture
def desk(web: StandIn, where: Addresses, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Desk:
    def refuse(*args: object, **kwargs: object) -> str:
        raise AssertionError("pip or npm was called")

    monkeypatch.setattr("ecoagent.crawlers.client._run", refuse)
    monkeypatch.setattr("ecoagent.crawlers.npm_times._run", refuse)

    def without_prefect(names: Any, settings: Settings, *args: Any, **options: Any) -> int:
        """The stage itself instead of its flow, which takes Prefect half a minute to start."""
        if options["dry_run"]:
            print_json({"crawl": CrawlStage().estimate(RunContext.create(settings))})
            return 0
        execute(CrawlStage(), RunContext.create(settings, Progress()), force=bool(options["force"]))
        return 0

    monkeypatch.setattr(stages, "run_flow", without_prefect)
    return Desk(tmp_path, web, where)


def test_pin_crawl_and_crawl_again(desk: Desk) -> None:
    dry = desk.run("--update-lock", "--backend", "http", "--dry-run", "--json")
    assert dry.exit_code == 0, dry.output
    planned = json.loads(dry.stdout)["update-lock"]
    assert planned["snapshots"] == 4
    assert planned["requests"] > 100
    assert planned["client_calls"] == 0
    assert desk.web.paths(robots=True) == []
    assert not desk.lock.exists()

    done = desk.run("--update-lock", "--backend", "http")
    assert done.exit_code == 0, done.output
    entries = {e.name: e for e in load_lock(desk.lock).artifacts}
    assert set(entries) == set(sources.SNAPSHOTS)
    assert all(e.version == e.sha256[:12] and e.filename == f"{e.name}.jsonl" for e in entries.values())
    first = desk.lock.read_bytes()
    assert desk.run("--update-lock", "--backend", "http").exit_code == 0
    assert desk.lock.read_bytes() == first

    desk.web.requests.clear()
    estimate = desk.run("--backend", "http", "--dry-run", "--json", "--run", "one")
    assert json.loads(estimate.stdout)["crawl"]["requests"] == 0
    for run in ("one", "two"):
        crawled = desk.run("--backend", "http", "--run", run)
        assert crawled.exit_code == 0, crawled.output
    assert desk.candidates("one") == desk.candidates("two")
    assert desk.web.paths(robots=True) == []
    raw = desk.root / "outputs" / "runs" / "one" / "raw"
    summary = json.loads((raw / "crawl_summary.json").read_text())
    assert summary["rejected"]["langchain"]["dead_page"] == 6
    assert summary["kept"]["n8n_community"] > 50


def test_changed_pages_end_the_crawl(desk: Desk) -> None:
    assert desk.run("--update-lock", "--backend", "http", "--source", "crewai").exit_code == 0
    for path in (desk.root / "store").glob("*/crewai-docs.jsonl"):
        path.unlink()
    # The pages are as they were: collected anew, from the stored responses.
    assert desk.run("--backend", "http", "--source", "crewai", "--run", "same").exit_code == 0
    for path in (desk.root / "store").glob("*/crewai-docs.jsonl"):
        path.unlink()
    page = "/en/tools/ai-ml/easeltool"
    desk.web.add(
        page, Reply(b"<html><body><main><h1>Easel</h1><p>It is all new now.</p></main></body></html>")
    )
    desk.sets.append("http.max_age_h=0")
    done = desk.run("--backend", "http", "--source", "crewai", "--run", "changed")
    assert done.exit_code == 2
    shown = done.output.replace("\n", " ")
    assert "have changed since they were pinned" in shown
    assert "--update-lock --backend http" in shown


def test_nothing_pinned_says_how(desk: Desk) -> None:
    done = desk.run("--backend", "http", "--run", "x", lock=False)
    assert done.exit_code == 2
    assert "--update-lock --backend http" in done.output.replace("\n", " ")


def test_discover_appends_to_a_table(desk: Desk) -> None:
    table = desk.root / "mine.csv"
    table.write_text("source,package,version\nn8n_community,n8n-nodes-zither,9.9.9\ncrewai,crewai-tools,\n")
    dry = desk.run("--discover", "--table", str(table), "--dry-run", lock=False)
    assert dry.exit_code == 0, dry.output
    assert desk.web.paths(robots=True) == []
    done = desk.run("--discover", "--table", str(table), lock=False)
    assert done.exit_code == 0, done.output
    lines = table.read_text().splitlines()
    assert lines[0] == "source,package,version,licence,seen_in,crawled"
    rows = [line.split(",") for line in lines[1:]]
    assert rows[0][:2] == ["crewai", "crewai-tools"]
    names = [r[1] for r in rows[1:]]
    assert names == sorted(names)
    assert "9.9.9" in next(line for line in lines if "zither" in line)
    assert not any(".." in n or "://" in n for n in names)
    again = desk.run("--discover", "--table", str(table), lock=False)
    assert "0 new" in again.output
    assert table.read_text().splitlines() == lines


def test_discover_needs_a_table(desk: Desk) -> None:
    for arguments in (("--discover",), ("--discover", "--table", "shipped")):
        done = desk.run(*arguments, lock=False)
        assert done.exit_code == 2
        assert "--table FILE" in done.output


def test_addresses_of_records_are_of_the_site(web: StandIn, where: Addresses, tmp_path: Path) -> None:
    found = crawl("crewai-docs", http_of(web, where, tmp_path / "r"), tmp_path)
    assert {urlsplit(str(c.record.docs_url)).netloc for c in found} == {web.host}


HTML = "text/html; charset=utf-8"


def served(web: StandIn, tmp_path: Path, body: str, kind: str = HTML) -> HttpSettings:
    """Settings under which every catalog starts at one page of our own."""
    web.add("/own/tools", Reply(body.encode(), content_type=kind))
    start = web.url("/own/tools")
    return HttpSettings(
        allow_private=(web.host,), requests_per_second=50, backoff_s=0.01, retries=0, store=tmp_path / "own",
        langchain_docs=start, crewai_docs=start, crewai_specs=start, n8n_verified=start,
    )  # fmt: skip


def snapshot(name: str, http: HttpSettings) -> bytes:
    with PoliteClient(http) as client:
        return sources.snapshot(name, http, client)


@pytest.mark.parametrize("name", sorted(sources.SNAPSHOTS))
@pytest.mark.parametrize(
    ("body", "kind"),
    [
        ("<html><body><main><h1>Hello</h1><p>Nothing is listed here.</p></main></body></html>", HTML),
        ('<html><body><a href="http://[::1">a</a><p>x</p></body></html>', HTML),
        ("[" * 50_000, "application/json"),
        ('{"data": [{"id": ' + "7" * 5000 + "}]}", "application/json"),
        ('{"data": [], "tools": []}', "application/json"),
    ],
    ids=["no rows", "no address", "deep", "long number", "empty lists"],
)
def test_pages_that_list_nothing_are_an_error(
    web: StandIn, tmp_path: Path, name: str, body: str, kind: str
) -> None:
    with pytest.raises(UserError):
        snapshot(name, served(web, tmp_path, body, kind))


def test_a_site_that_stops_answering_is_not_pinned(web: StandIn, tmp_path: Path) -> None:
    links = "".join(f'<a href="/own/tools/t{i}">Tool {i}</a>' for i in range(4))
    for i in range(4):
        web.add(f"/own/tools/t{i}", Reply(b"busy", status=503))
    with pytest.raises(UserError, match="gave no answer") as caught:
        snapshot("crewai-docs", served(web, tmp_path, f"<html><body><main>{links}</main></body></html>"))
    assert "later" in (caught.value.remedy or "")
