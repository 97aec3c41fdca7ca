"""Link audits: what is asked, in which order, what is kept, and the command."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner
from typer.testing import Result as Ended

from ecoagent.cli.links import audit_links
from ecoagent.reliability.flaws import load_flaws
from ecoagent.reliability.link_store import OFFLINE_HOSTS, PER_SHARD, LinkStore
from ecoagent.reliability.links import (
    Kind,
    Result,
    State,
    Target,
    check,
    chosen,
    due,
    link_targets,
    normal_url,
    plan,
    state_counts,
)
from ecoagent.runs import read_rows, run_lock, write_table
from ecoagent.schema import Endpoint, LinkRow, NormalizedTool, RejectedTool
from ecoagent.settings import UserError
from tests.standin.server import StandIn
from tests.unit.test_flaws import reject, tool

NOW = datetime(2026, 5, 4, 12, 0, tzinfo=UTC)


def clock() -> datetime:
    return NOW


@dataclass(frozen=True)
class Seen:
    state: State
    reason: str
    status: int | None = None


ALIVE = Seen("alive", "status_200", 200)
NO_HOST = Seen("dead", "no_such_host")


class Script:
    """A prober that says what it was told to; thread-safe as far as the tests need it."""

    def __init__(self, answers: Mapping[str, Seen] | None = None, *, wait: float = 0.0) -> None:
        self.answers, self.wait = answers or {}, wait
        self.asked: list[str] = []
        self.kinds: dict[str, Kind] = {}
        self.busy: dict[str, int] = {}
        self.most = 0
        self.lock = threading.Lock()

    def probe(self, url: str, *, kind: Kind = "page") -> Seen:
        host = url.split("/")[2]
        with self.lock:
            self.asked.append(url)
            self.kinds[url] = kind
            self.busy[host] = self.busy.get(host, 0) + 1
            self.most = max(self.most, self.busy[host])
        time.sleep(self.wait)
        with self.lock:
            self.busy[host] -= 1
        return self.answers.get(url, ALIVE)


def target(url: str, *kinds: str) -> Target:
    return Target(url, url.split("/")[2], kinds or ("docs",), ("langchain",), ("langchain:a",))


def targets(hosts: int, each: int) -> list[Target]:
    return [target(f"https://h{h}.io/{n}") for h in range(hosts) for n in range(each)]


def endpoint(url: str, *, template: bool = False) -> Endpoint:
    return Endpoint(url=url, origin="literal", is_template=template)


@pytest.mark.parametrize(
    ("written", "asked"),
    [
        ("HTTPS://API.Tides.io:443/v1?a=B#part", "https://api.tides.io/v1?a=B"),
        ("http://tides.io", "http://tides.io/"),
        ("http://tides.io:8080/A", "http://tides.io:8080/A"),
        ("https://tides.io./a", "https://tides.io/a"),
        ("=https://tides.io/a", "https://tides.io/a"),
        ("git+https://tides.io/a.git", "https://tides.io/a.git"),
        ("https://tides.io/a#{part}", "https://tides.io/a"),
        ("https://tides.io/{id}", None),
        ("https://<host>/a", None),
        ("https://tides.io/${id", None),
        ("https://...", None),
        ("ftp://tides.io/a", None),
        ("git@tides.io:a/b.git", None),
        ("https://me:secret@tides.io/", None),
        ("http://localhost:8000/", None),
        ("http://127.0.0.1/", None),
        ("http://[::1]/", None),
        ("http://8.8.8.8/", None),
        ("https://api.example.com/v1", None),
        ("https://n8n.local/", None),
        ("https://tides.io:port/", None),
        ("https://[broken/", None),
        ("mailto:a@tides.io", None),
        ("", None),
    ],
)
def test_normal_addresses(written: str, asked: str | None) -> None:
    assert normal_url(written) == asked


def test_local_hosts_only_where_they_are_allowed() -> None:
    assert normal_url("http://127.0.0.1:81/a", ["127.0.0.1:81"]) == "http://127.0.0.1:81/a"
    assert normal_url("http://127.0.0.1:82/a", ["127.0.0.1:81"]) is None


def test_targets_are_distinct_and_sorted() -> None:
    found = link_targets(
        [
            tool("b", docs_url="https://T.io/d#x", repository="https://g.io/r", url="https://t.io/p"),
            tool(
                "a",
                source="crewai",
                docs_url="https://t.io/d",
                endpoints=[
                    endpoint("https://t.io/d"),
                    endpoint("https://api.t.io/"),
                    endpoint("https://api.t.io/{x}", template=True),
                    endpoint("https://t.io/guide#part"),
                ],
            ),
        ]
    )
    assert [t.url for t in found] == [
        "https://api.t.io/", "https://g.io/r", "https://t.io/d", "https://t.io/guide", "https://t.io/p",
    ]  # fmt: skip
    by = {t.url: t for t in found}
    assert by["https://t.io/d"].kinds == ("docs", "endpoint")
    assert by["https://t.io/d"].sources == ("crewai", "langchain")
    assert by["https://t.io/d"].tool_ids == ("crewai:a", "langchain:b")
    assert by["https://t.io/d"].probe_kind == "page"
    assert by["https://api.t.io/"].probe_kind == "endpoint"
    assert by["https://t.io/guide"].kinds == ("docs",), "a fragment is never sent"
    assert [t.url for t in chosen(found, ["repository"], [])] == ["https://g.io/r"]
    assert len(chosen(found, [], ["crewai"])) == 3


def test_a_host_is_asked_by_one_thread_at_a_time_and_none_waits_for_another() -> None:
    script, results = Script(wait=0.005), []
    wanted = [*targets(9, 2), *(target(f"https://big.io/{n}") for n in range(12))]
    assert check(wanted, script, workers=4, on_result=results.append, now=clock) == 30
    assert sorted(r.url for r in results) == sorted(t.url for t in wanted)
    assert script.most == 1
    assert script.asked[0].startswith("https://big.io/")
    # The big host is what takes the time: it is asked from the start, not after all the others.
    place = max(n for n, url in enumerate(script.asked[:24]) if "big.io" in url)
    assert sum("big.io" in url for url in script.asked[: place + 1]) >= 4
    assert {r.checked_at for r in results} == {"2026-05-04T12:00:00Z"}


def test_checks_of_nothing_and_of_one_host() -> None:
    assert check([], Script(), workers=4, on_result=lambda r: None) == 0
    assert check(targets(1, 5), Script(), workers=4, on_result=lambda r: None) == 5


def test_kinds_reach_the_prober() -> None:
    script = Script()
    check([target("https://a.io/", "endpoint"), target("https://b.io/")], script, workers=1, on_result=print)
    assert script.kinds == {"https://a.io/": "endpoint", "https://b.io/": "page"}


def test_an_error_of_the_prober_or_of_the_caller_ends_the_check() -> None:
    class Broken(Script):
        def probe(self, url: str, *, kind: Kind = "page") -> Seen:
            if url == "https://h1.io/1":
                raise ValueError("broken")
            return super().probe(url, kind=kind)

    with pytest.raises(ValueError, match="broken"):
        check(targets(3, 3), Broken(), workers=2, on_result=lambda r: None)

    def full(result: Result) -> None:
        raise OSError("disk")

    with pytest.raises(OSError, match="disk"):
        check(targets(3, 3), Script(), workers=2, on_result=full)


def test_stop() -> None:
    stop, script = threading.Event(), Script()
    done = check(targets(2, 50), script, workers=2, on_result=lambda r: stop.set(), stop=stop)
    assert 1 <= done < 100


def test_what_is_due() -> None:
    def at(days: float, state: State = "alive") -> Result:
        checked = NOW - timedelta(days=days)
        return Result("", state, "r", 200, checked.strftime("%Y-%m-%dT%H:%M:%SZ"))

    wanted = [target(f"https://{n}.io/") for n in ("new", "fresh", "old", "unknown")]
    known = {
        "https://fresh.io/": at(6.9),
        "https://old.io/": at(7.1),
        "https://unknown.io/": at(1, "unknown"),
    }
    names = [t.host for t in due(wanted, known, now=NOW, max_age_days=7)]
    assert names == ["new.io", "old.io"]
    again = due(wanted, known, now=NOW, max_age_days=7, retry_unknown=True)
    assert [t.host for t in again] == ["new.io", "old.io", "unknown.io"]


def test_plan() -> None:
    cost = plan(
        [*targets(3, 1), *(target(f"https://big.io/{n}") for n in range(120))], per_second=1, workers=8
    )
    assert (cost.urls, cost.hosts, cost.requests, cost.minutes) == (123, 4, 250, 4.0)
    assert cost.busiest[0] == ("big.io", 120)
    assert plan([], per_second=1, workers=1).minutes == 0


def store_at(raw: Path) -> LinkStore:
    return LinkStore(raw, clock=lambda: 0.0)


def test_a_killed_check_goes_on(tmp_path: Path) -> None:
    wanted = targets(4, 50)
    store = store_at(tmp_path)
    store.load()

    class Killed(BaseException):
        pass

    count = 0

    def keep(result: Result) -> None:
        nonlocal count
        count += 1
        if count == 130:
            raise Killed
        store.add(result)

    with pytest.raises(Killed):
        check(wanted, Script(), workers=4, on_result=keep, now=clock)
    # Nothing is said to the store: this is how it looks after kill -9, half a file included.
    (tmp_path / "links" / ".tmp-shard-000009.jsonl.1.1").write_text("{", "utf-8")

    again = store_at(tmp_path)
    known = again.load()
    assert len(known) == 2 * PER_SHARD
    rest = due(wanted, known, now=NOW, max_age_days=7)
    script = Script()
    check(rest, script, workers=4, on_result=again.add, now=clock)
    again.settle()
    rows = again.gather(wanted)
    assert len(script.asked) == 100
    assert [r.url for r in rows] == sorted(t.url for t in wanted)
    assert read_rows(tmp_path / "links.parquet", LinkRow) == rows
    assert not list((tmp_path / "links").iterdir())


def test_the_later_result_wins_and_damage_is_asked_again(tmp_path: Path) -> None:
    store, wanted = store_at(tmp_path), [target("https://a.io/")]
    store.add(Result("https://a.io/", "alive", "status_200", 200, "2026-01-01T00:00:00Z"))
    store.settle()
    store.gather(wanted)
    store.add(Result("https://a.io/", "dead", "not_found", 404, "2026-02-01T00:00:00Z"))
    store.flush()
    assert store_at(tmp_path).load()["https://a.io/"].state == "dead"
    for text in (
        "{",
        '{"url": 1}\n',
        "[]\n",
        '{"url":"u","state":"odd","reason":"","status":1,"checked_at":""}',
    ):
        (tmp_path / "links" / "shard-000007.jsonl").write_text(text, "utf-8")
        assert set(store_at(tmp_path).load()) == {"https://a.io/"}
    (tmp_path / "links.parquet").write_bytes(b"PAR1 not")
    with pytest.raises(UserError, match="asks anew"):
        store_at(tmp_path).load()


def result(host: str, seen: Seen) -> Result:
    return Result(f"https://{host}/", seen.state, seen.reason, seen.status, "2026-01-01T00:00:00Z")


def test_a_machine_without_network_finds_nothing_dead(tmp_path: Path) -> None:
    store = store_at(tmp_path)
    with pytest.raises(UserError, match="network"):
        for n in range(OFFLINE_HOSTS):
            store.add(result(f"h{n}.io", NO_HOST))
    store.flush()
    assert store_at(tmp_path).load() == {}

    small = store_at(tmp_path)
    for n in range(5):
        small.add(result(f"h{n}.io", NO_HOST))
    with pytest.raises(UserError, match="none of 5 hosts"):
        small.settle()


def test_dead_hosts_among_living_are_dead_and_a_lost_network_is_unknown(tmp_path: Path) -> None:
    store = store_at(tmp_path)
    for n in range(3):
        store.add(result(f"d{n}.io", NO_HOST))
    store.add(result("a.io", ALIVE))
    for n in range(OFFLINE_HOSTS + 5):
        store.add(result(f"h{n}.io", NO_HOST))
    store.settle()
    known = store_at(tmp_path).load()
    assert {known[f"https://d{n}.io/"].state for n in range(3)} == {"dead"}
    assert {known[f"https://h{n}.io/"].state for n in range(OFFLINE_HOSTS + 5)} == {"unknown"}


def test_counts_by_source_and_kind() -> None:
    one = Target("u", "h", ("docs", "page"), ("crewai", "langchain"), ("crewai:a", "langchain:b"))
    rows = state_counts([one, target("https://x.io/")], [])
    assert [(r["source"], r["kind"], r["not checked"]) for r in rows] == [
        ("crewai", "docs", 1), ("crewai", "page", 1), ("langchain", "docs", 2), ("langchain", "page", 1),
    ]  # fmt: skip


# The command, against a server on this machine.


@pytest.fixture
def web() -> Iterator[StandIn]:
    with StandIn() as server:
        yield server


Command = Callable[..., Ended]


@pytest.fixture
def command(tmp_path: Path, web: StandIn) -> Command:
    app = typer.Typer()
    app.command("audit-links")(audit_links)

    def call(*options: str) -> Ended:
        fast = [
            f'outputs="{tmp_path}"', f'http.allow_private=["{web.host}"]', "http.requests_per_second=50",
            "http.retries=0", "http.backoff_s=0", "http.timeout_s=1",
        ]  # fmt: skip
        sets = [part for text in fast for part in ("--set", text)]
        return CliRunner().invoke(app, ["--run", "r", *sets, *options])

    return call


@pytest.fixture
def run(tmp_path: Path, web: StandIn) -> Path:
    """A run of six tools: alive, dead, dead in words only, behind a login, silent, and an endpoint."""
    root = tmp_path / "runs" / "r"
    paths = {"alive": "/ok", "dead": "/missing", "soft": "/soft-404", "login": "/login", "silent": "/silent"}
    tools = [tool(name, docs_url=web.url(path)) for name, path in sorted(paths.items())]
    base = web.url("/login?api")
    tools.append(tool("zz", source="crewai", auth_required="unknown", endpoints=[endpoint(base)]))
    write_table(root / "core" / "tools_normalized.parquet", sorted(tools, key=lambda t: t.id), NormalizedTool)
    rejects = [reject("none", "no_description", description="")]
    write_table(root / "core" / "tool_rejects.parquet", rejects, RejectedTool)
    return root


def test_every_state(command: Command, run: Path, web: StandIn) -> None:
    ended = command("--json")
    assert ended.exit_code == 0, ended.output
    said: dict[str, Any] = json.loads(ended.stdout)
    rows = {r.url.removeprefix(web.url("")): r for r in read_rows(run / "raw" / "links.parquet", LinkRow)}
    assert {path: row.state for path, row in rows.items()} == {
        "/ok": "alive", "/missing": "dead", "/soft-404": "dead", "/login": "auth_walled",
        "/silent": "unknown", "/login?api": "auth_walled",
    }  # fmt: skip
    assert rows["/missing"].status == 404 and rows["/soft-404"].reason == "soft_404"
    assert said["asked"] == said["known"] == 6
    assert {(s["source"], s["kind"]) for s in said["states"]} == {
        ("crewai", "endpoint"),
        ("langchain", "docs"),
    }

    table = load_flaws(run / "out")
    assert table is not None and table.links == 5
    broken, auth = table.row("broken_link"), table.row("missing_auth")
    assert (broken.flawed, broken.tools, broken.unknown) == (2, 5, 2)
    assert table.row("missing_auth", "crewai").flawed == auth.flawed == 1
    assert not (run / "out" / "results" / "flaws.json").exists()


def test_a_second_run_asks_only_what_it_must(command: Command, run: Path, web: StandIn) -> None:
    assert command("--kind", "docs", "--limit", "2").exit_code == 0
    first = len(web.paths())
    assert 0 < first <= 4
    assert command("--source", "langchain").exit_code == 0
    assert len(read_rows(run / "raw" / "links.parquet", LinkRow)) == 5
    web.requests.clear()
    ended = command("--source", "langchain")
    assert ended.exit_code == 0 and not web.paths()
    assert "dead" in ended.output
    assert command("--source", "langchain", "--retry-unknown").exit_code == 0
    assert set(web.paths()) == {"/silent"}


def test_a_dry_run_asks_nothing(command: Command, run: Path, web: StandIn) -> None:
    ended = command("--dry-run", "--json")
    assert ended.exit_code == 0
    said = json.loads(ended.stdout)
    assert (said["urls"], said["hosts"], said["requests"]) == (6, 1, 12)
    assert "busiest hosts" in command("--dry-run").output
    assert not web.requests and not (run / "raw").exists() and not (run / ".lock").exists()


def test_ctrl_c_keeps_what_was_done(
    command: Command, run: Path, web: StandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    add, count = LinkStore.add, 0

    def stopped(self: LinkStore, result: Result) -> None:
        nonlocal count
        count += 1
        if count == 3:
            raise KeyboardInterrupt
        add(self, result)

    monkeypatch.setattr(LinkStore, "add", stopped)
    ended = command()
    assert ended.exit_code == 130
    assert len(read_rows(run / "raw" / "links.parquet", LinkRow)) == 2
    monkeypatch.undo()
    web.requests.clear()
    assert command().exit_code == 0
    assert len(set(web.paths())) == 4


def test_bad_input(command: Command, run: Path) -> None:
    for options, word in (
        (["--kind", "picture"], "endpoint"),
        (["--source", "pypi"], "langchain"),
        (["--run", "none"], "normalize"),
    ):
        ended = command(*options)
        assert ended.exit_code == 2 and word in ended.output
    with run_lock(run):
        # Re-entrant inside one process; another process is refused by tests of the lock itself.
        assert command("--limit", "1").exit_code == 0
