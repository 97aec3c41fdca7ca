"""Near-duplicate tools: keys, rules, blocks, groups, and agreement with the pairs labelled by hand."""

from __future__ import annotations

import importlib.util
import random
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ecoagent.crawlers import ArtifactStore, FetchError
from ecoagent.crawlers.client import ClientMissingError
from ecoagent.reliability.duplicate_labels import Agreement, agreement, load_labelled_pairs
from ecoagent.reliability.duplicates import (
    BLOCK,
    COSINE_SAME_OBJECT,
    COSINE_SAME_SERVICE,
    ToolKey,
    candidate_pairs,
    duplicate_groups,
    hard_rule,
    judge,
    key_of,
    text_of_key,
)
from ecoagent.schema import Operation, Provenance, ToolRecord
from ecoagent.settings import UserError

from .test_normalize import record

ROOT = Path(__file__).resolve().parents[2]


def tool(identifier: str, name: str, description: str = "Does it.", **values: Any) -> ToolRecord:
    """A tool of a made-up package; ``package`` and ``group`` place it."""
    package, group = values.pop("package", "tool-pkg"), values.pop("group", "tools")
    place = Provenance(
        artifact=package,
        artifact_version="1",
        sha256="0",
        path="x.py",
        backend="client",
        parser_version="1",
    )
    return record(
        identifier,
        **{
            "name": name,
            "description": description,
            "provenance": place,
            "group_id": f"{package}.{group}",
            "group_name": group,
            **values,
        },
    )


def node(package: str, place: str, shown: str, **values: Any) -> ToolRecord:
    name, _, operation = place.partition("/")
    kind = "node_operation" if operation else "node"
    return tool(
        f"n8n:{package}.{place}",
        place,
        **{
            "display_name": shown,
            "source": "n8n_community",
            "package": package,
            "kind": kind,
            "group": values.pop("group", name),
            **values,
        },
    )


def verdict(a: ToolRecord, b: ToolRecord, cosine: float | None) -> tuple[bool, str]:
    first, second = judge(key_of(a), key_of(b), cosine), judge(key_of(b), key_of(a), cosine)
    assert first == second, "a verdict does not depend on the order"
    return first.same, first.rule


def test_key_reads_verb_object_and_service() -> None:
    key = key_of(tool("langchain:a", "create_zmail_draft", package="one-pkg", group="zmail"))
    assert (key.verb, key.objects, key.service) == ("create", ("draft",), ("zmail",))
    many = key_of(node("n8n-nodes-zmail", "zmail/draft.getAll", "Get many drafts"))
    assert (many.verb, many.objects, many.operation) == ("list", ("draft",), "draft.getAll")
    plural = key_of(tool("langchain:b", "Get Issues"))
    single = key_of(tool("langchain:c", "Get Issue"))
    assert (plural.verb, single.verb) == ("list", "get")
    assert (
        key_of(tool("langchain:d", "speech_to_text")).objects
        != key_of(tool("langchain:e", "text_to_speech")).objects
    )


def test_words_written_together_are_one_name() -> None:
    hub = key_of(tool("langchain:a", "Create File", group="GitHub"))
    lab = key_of(tool("langchain:b", "Create File", group="GitLab"))
    assert (hub.service, lab.service) == (("github",), ("gitlab",))
    assert "quickquickgo" in key_of(tool("llamaindex:a", "search", group="Quick Quick Go")).service


def test_one_class_in_two_packages_is_exact() -> None:
    old = tool("langchain:old.Draft", "create_zmail_draft", package="existing-pkg", group="zmail")
    new = tool("langchain:new.Draft", "create_zmail_draft", package="new-pkg", group="zmail")
    assert verdict(old, new, None) == (True, "exact")


def test_equal_words_of_two_services_are_two_tools() -> None:
    a = tool("langchain:a", "Create File", "Creates a file.", group="GitHub")
    b = tool("langchain:b", "Create File", "Creates a file.", group="GitLab")
    assert verdict(a, b, 1.0) == (False, "service")
    boilerplate = [
        node("n8n-nodes-x", n, n.title(), description="Consume the API") for n in ("quarx", "blorp")
    ]
    assert not verdict(*boilerplate, 1.0)[0]


def test_wrappers_of_one_operation_need_a_cosine() -> None:
    a = tool("langchain:a", "send_zmail_message", package="one-pkg", group="zmail")
    b = node("n8n-nodes-zmail", "zmail/message.send", "Send a message")
    assert verdict(a, b, COSINE_SAME_OBJECT) == (True, "operation_equal")
    assert verdict(a, b, COSINE_SAME_OBJECT - 0.01) == (False, "operation_equal")
    assert verdict(a, b, None) == (False, "operation_equal")
    vague = tool("crewai:v", "search_zmail", package="per-pkg", group="zmail")
    precise = tool("llamaindex:p", "search_messages", package="via-pkg", group="zmail")
    assert verdict(vague, precise, COSINE_SAME_SERVICE) == (True, "service_equal")
    assert verdict(vague, precise, COSINE_SAME_SERVICE - 0.01) == (False, "service_equal")


@pytest.mark.parametrize(
    ("a", "b", "rule"),
    [
        (node("p", "zmail", "Zmail"), node("p", "zmailTrigger", "Zmail Trigger", trigger=True), "trigger"),
        (
            node("p", "zmail/a.get", "Get a draft"),
            node("p", "zmail/a.getAll", "Get many drafts"),
            "operation",
        ),
        (node("p", "zmail/a.add", "Add a thing"), node("p", "zmail/b.add", "Add a thing"), "operation"),
        (node("p", "zmail", "Zmail"), node("p", "zmailTwo", "Zmail"), "node"),
        (tool("x:a", "get_zmail_draft"), tool("x:b", "delete_zmail_draft"), "verb"),
        (tool("x:a", "Zebra Web Search"), tool("x:b", "Zebra Image Search"), "qualifier"),
        (tool("x:a", "Search", group="zebra"), tool("x:b", "Search", group="quagga"), "service"),
        (
            node("p", "zmail", "Zmail", operations=[Operation(operation=o, name=o) for o in ("get", "send")]),
            node("q", "zmail/message.get", "Get a message"),
            "whole_and_part",
        ),
    ],
)
def test_hard_rules(a: ToolRecord, b: ToolRecord, rule: str) -> None:
    assert verdict(a, b, 1.0) == (False, rule)


def test_an_operation_listed_twice_is_one() -> None:
    a = node("p", "zmail/post.get", "Get a post")
    b = node("p", "zmail/post.get~2", "Get a post")
    assert verdict(a, b, None) == (True, "exact")


def test_text_names_the_group_once() -> None:
    assert text_of_key(tool("x:a", "send", "Sends.", group="Zmail")) == "Zmail: send. Sends."
    assert text_of_key(tool("x:a", "Zmail send", "Sends.", group="zmail")) == "Zmail send. Sends."


SERVICES = ("zmail", "quarx", "blorp")
VERBS = ("get", "send", "delete", "")
OBJECTS = ((), ("draft",), ("message",), ("draft", "message"))


@st.composite
def key_lists(draw: st.DrawFn) -> list[ToolKey]:
    count = draw(st.integers(0, 14))
    keys = []
    for number in range(count):
        verb, objects = draw(st.sampled_from(VERBS)), draw(st.sampled_from(OBJECTS))
        service = draw(st.sets(st.sampled_from(SERVICES), max_size=2))
        package = draw(st.sampled_from(("p", "q", "r")))
        at = draw(st.sampled_from(("", "n", "m")))
        operation = draw(st.sampled_from(("", "a", "b"))) if at else ""
        names = tuple(sorted(service))
        words = tuple(sorted(service | draw(st.sets(st.sampled_from(SERVICES), max_size=1))))
        flags = draw(st.booleans()), draw(st.integers(0, 5)) == 0
        name, text = f"{verb} {' '.join(objects)}", draw(st.sampled_from("xyz"))
        identifier = f"{draw(st.sampled_from('abc'))}{number}"
        keys.append(
            ToolKey(
                identifier, name, text, package, at, operation, *flags, verb, objects, names, (), (), words
            )
        )
    return keys


def stub_vectors(keys: Sequence[ToolKey]) -> Any:
    """Vectors that hang on the id only."""

    def vectors_of(places: Sequence[int]) -> Any:
        rows = [np.random.default_rng(sum(map(ord, keys[p].id)) % 5).normal(size=3) for p in places]
        return np.array(rows).reshape(len(rows), 3)

    return vectors_of


@given(key_lists(), st.integers(0, 10))
def test_groups_are_what_they_promise(keys: list[ToolKey], seed: int) -> None:
    found = duplicate_groups(keys, stub_vectors(keys))
    shuffled = random.Random(seed).sample(keys, len(keys))
    again = duplicate_groups(shuffled, stub_vectors(shuffled))
    assert (again.group, again.pairs) == (found.group, found.pairs)
    assert set(found.group) == {k.id for k in keys}
    members: dict[str, list[ToolKey]] = {}
    for key in keys:
        members.setdefault(found.group[key.id], []).append(key)
    edges = {frozenset((p.tool_id, p.other_id)) for p in found.pairs if p.same}
    for name, group in members.items():
        ids = {k.id for k in group}
        assert min(ids) == name
        assert not any(hard_rule(a, b) for a in group for b in group if a.id != b.id)
        reached, open_ids = {name}, [name]
        while open_ids:
            at = open_ids.pop()
            new = {i for edge in edges if at in edge for i in edge} - reached
            reached |= new
            open_ids += new
        assert reached == ids, "the pairs that are the same connect the group, and no other"


@given(key_lists())
def test_pairs_come_once_in_order_and_never_against_a_hard_rule(keys: list[ToolKey]) -> None:
    pairs = [(i, j) for i, j, _ in candidate_pairs(keys)]
    assert pairs == sorted(set(pairs))
    assert all(i < j and hard_rule(keys[i], keys[j]) is None for i, j in pairs)
    missed = {(i, j) for j in range(len(keys)) for i in range(j) if judge(keys[i], keys[j], 1.0).same} - set(
        pairs
    )
    assert not missed, "small blocks lose no pair a cosine of 1 would join"


def test_vectors_are_asked_once_and_only_where_a_verdict_hangs_on_them() -> None:
    keys = [
        key_of(tool("a", "send_zmail_message", "One.", package="one-pkg", group="zmail")),
        key_of(tool("b", "send_zmail_message", "Two.", package="per-pkg", group="zmail")),
        key_of(tool("c", "delete_zmail_message", "Three.", package="via-pkg", group="zmail")),
        key_of(tool("d", "send_quarx_message", "Four.", package="new-pkg", group="quarx")),
    ]
    asked: list[int] = []

    def vectors_of(places: Sequence[int]) -> Any:
        asked.extend(places)
        return np.ones((len(places), 2))

    found = duplicate_groups(keys, vectors_of)
    assert asked == [0, 1]
    assert found.group == {"a": "a", "b": "a", "c": "c", "d": "d"}
    assert [(p.tool_id, p.other_id, p.same, p.rule, p.cosine) for p in found.pairs] == [
        ("a", "b", True, "operation_equal", 1.0)
    ]
    assert duplicate_groups(keys, None).group == {i: i for i in "abcd"}
    assert duplicate_groups([], vectors_of).group == {}


def test_a_union_that_a_hard_rule_forbids_is_refused() -> None:
    """An operation without a verb lies between two whose verbs differ: it joins the nearer one only."""
    named = {"package": "p", "node": "", "operation": "", "whole": False, "trigger": False}
    rest = {"objects": ("draft",), "service": ("zmail",), "houses": (), "area": (), "words": ("zmail",)}
    keys = [
        ToolKey(i, i, i, **{**named, "package": i}, verb=verb, **rest)
        for i, verb in (("a", "get"), ("b", ""), ("c", "delete"))
    ]
    angles = {"a": 0.0, "b": 0.3, "c": 0.5}

    def vectors_of(places: Sequence[int]) -> Any:
        return np.array([[np.cos(angles[keys[p].id]), np.sin(angles[keys[p].id])] for p in places])

    found = duplicate_groups(keys, vectors_of)
    assert found.group == {"a": "a", "b": "b", "c": "b"}
    assert [(p.other_id, p.same, p.rule) for p in found.pairs] == [
        ("b", False, "group"),
        ("c", True, "service_equal"),
    ]


def test_large_blocks_are_not_compared_whole() -> None:
    count = 40 * BLOCK
    rest = {"objects": ("draft",), "service": ("zmail",), "houses": (), "area": (), "words": ("zmail",)}
    keys = [
        ToolKey(f"{i:05}", "send draft", f"{i}", f"p{i}", "", "", False, False, "send", **rest)
        for i in range(count)
    ]
    pairs = list(candidate_pairs(keys))
    assert count <= len(pairs) <= 8 * count


def test_labels_are_sound() -> None:
    pairs = load_labelled_pairs()
    assert len(pairs) >= 200
    assert len({(p.tool_id, p.other_id) for p in pairs}) == len(pairs)
    assert all(p.tool_id < p.other_id and p.why and p.fold in ("dev", "test") for p in pairs)
    assert {p.kind for p in pairs} == {"trap", "cross_source", "within", "random", "found"}
    assert sum(p.same for p in pairs) >= 50
    kept = agreement((p.found, p.same) for p in pairs if p.fold == "test")
    assert kept.precision >= 0.95
    assert kept.recall >= 0.65


def test_shares_of_right_verdicts() -> None:
    counts = agreement([(True, True), (True, False), (False, True), (False, False), (True, True)])
    assert counts == Agreement(2, 1, 1, 1)
    assert counts.precision == counts.recall == pytest.approx(2 / 3) == pytest.approx(counts.f1)
    assert agreement([]).precision == 1.0


def benchmark() -> ModuleType:
    spec = importlib.util.spec_from_file_location("bench_duplicates", ROOT / "benchmarks" / "duplicates.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.network
def test_rules_on_the_real_catalogs_agree_with_the_labels(tmp_path_factory: pytest.TempPathFactory) -> None:
    bench = benchmark()
    try:
        catalogs = bench.read_catalogs(
            ArtifactStore(tmp_path_factory.getbasetemp() / "artifacts", timeout_s=120)
        )
    except (FetchError, ClientMissingError) as error:
        pytest.skip(f"NOT RUN: an artifact cannot be fetched: {error}")
    try:
        embed = bench.load_embed()
    except UserError as error:
        pytest.skip(f"NOT RUN: no encoder: {error}")
    rows = bench.measure(catalogs["operation"] | catalogs["tool"], embed)
    # Another machine's float32 may move a cosine that lies at a threshold: one pair of slack each.
    assert sum(row["found"] != row["pair"].found for row in rows) <= 2
    assert max(abs(row["cosine"] - row["pair"].cosine) for row in rows) < 0.001
    scores = bench.table(rows)
    assert scores["test fold, with embeddings"]["precision"] >= 0.96
    assert scores["test fold, with embeddings"]["recall"] >= 0.67
    assert scores["all, exact only"]["precision"] == 1.0
