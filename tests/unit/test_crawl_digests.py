"""Digest comparison: the rules on records made here, and the real catalogs where they can be had."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest

from ecoagent.crawlers import ArtifactStore, FetchError, check_digests, load_lock, parse_artifact
from ecoagent.crawlers.client import ClientMissingError
from ecoagent.crawlers.digests import FIELDS, digests_of, short_hash
from ecoagent.schema import Auth, Candidate
from ecoagent.settings import UserError

from .test_normalize import record

ROOT = Path(__file__).resolve().parents[2]
GOLDEN = ROOT.parent / "shared" / "golden" / "catalogs" / "digests.json"


def test_hash_is_of_compact_json() -> None:
    assert short_hash(["a", "b"]) == "0473ef2dc0d324ab"
    assert short_hash("é") == "f2886017e9c7abac"


def write(path: Path, *candidates: Candidate) -> Path:
    listed: dict[str, dict[str, object]] = {}
    for item in candidates:
        listed.setdefault(item.record.id.partition(":")[0], {})[item.record.id] = digests_of(item.record)
    path.write_text(json.dumps(listed))
    return path


def kept(identifier: str, **values: object) -> Candidate:
    return Candidate(status="kept", record=record(identifier, **values))


def test_equal_ignoring_white_space_and_order(tmp_path: Path) -> None:
    auth = [Auth(type="env", name=n, origin="code") for n in ("B", "A")]
    first = kept("crewai:A", auth=auth, parameter_names=["y", "x"])
    path = write(tmp_path / "d.json", first)
    again = kept(
        "crewai:A",
        auth=auth[::-1],
        parameter_names=["x", "y"],
        description=" Finds the\npages that  match a question in the demo. ",
    )
    assert check_digests([again], path).line() == "5 equal, 0 different, 5 listed"


def test_differences_and_missing_are_named(tmp_path: Path) -> None:
    path = write(tmp_path / "d.json", kept("crewai:A"), kept("crewai:B"), kept("langchain:pkg.C"))
    report = check_digests([kept("crewai:A", description="Another text.")], path)
    assert report.lines() == [
        "different: crewai:A desc",
        "missing: crewai:B",
        "4 equal, 6 different, 10 listed",
    ]
    assert report.by_catalog["langchain"] == Counter(not_crawled=1)


def test_rejected_candidates_are_compared_and_toolkit_operations_bare(tmp_path: Path) -> None:
    path = write(tmp_path / "d.json", kept("langchain:p.t#X", kind="toolkit_operation"))
    rich = record("langchain:p.t#X", kind="toolkit_operation", parameter_names=["a"])
    rejected = Candidate(status="rejected", reason="no_description", record=rich)
    assert check_digests([rejected], path).different == 0


def test_digest_file_errors(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="cannot be read"):
        check_digests([], tmp_path / "none.json")
    (tmp_path / "bad.json").write_text("[1]")
    with pytest.raises(UserError, match="not catalog -> id"):
        check_digests([], tmp_path / "bad.json")


@pytest.mark.network
def test_real_catalogs_equal_an_independent_extraction(tmp_path_factory: pytest.TempPathFactory) -> None:
    if not GOLDEN.is_file():
        pytest.skip(f"NOT RUN: no digest file at {GOLDEN}: this checkout has no shared folder beside it")
    store = ArtifactStore(tmp_path_factory.getbasetemp() / "artifacts", timeout_s=120)
    found: list[Candidate] = []
    for entry in load_lock().artifacts:
        try:
            path = store.fetch(entry)
        except (FetchError, ClientMissingError) as error:
            pytest.skip(f"NOT RUN: {entry.spec} cannot be fetched: {error}")
        found += parse_artifact(path, entry)
    counts = Counter(c.record.source for c in found if c.status == "kept")
    assert counts == {
        "langchain": 212,
        "crewai": 100,
        "llamaindex": 32,
        "n8n_official": 518,
        "n8n_community": 8,
    }
    report = check_digests(found, GOLDEN)
    # The one text that only running the code could complete (a host's platform name).
    assert [(d.id, d.field) for d in report.differences] == [
        ("langchain:langchain_community.tools.shell.tool.ShellTool", "desc")
    ]
    assert report.missing == ()
    assert report.listed == 620 * len(FIELDS)
