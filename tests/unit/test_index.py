"""The index of tool vectors: exact answers, an approximate graph that grows, files that are whole."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ecoagent.retrieval import ToolIndex, load_index, rank_vectors, save_index
from ecoagent.retrieval import index as module
from ecoagent.runs import sha256_file
from ecoagent.settings import IndexSettings, UserError

pytest.importorskip("usearch")

DIM = 16
GRAPH = IndexSettings(exact_limit=0)


def unit(seed: int, n: int, dim: int = DIM) -> np.ndarray:
    rows = np.random.default_rng(seed).normal(size=(n, dim)).astype(np.float32)
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def names(n: int) -> list[str]:
    return [f"t{i:05d}" for i in range(n)]


def filled(n: int, chosen: IndexSettings | None = None, seed: int = 0) -> ToolIndex:
    index = ToolIndex(DIM, chosen)
    index.add(names(n), unit(seed, n))
    return index


def test_exact_search_is_the_ranking_of_all_tools() -> None:
    tools, queries = unit(0, 300), unit(1, 20)
    tools[7] = tools[200]  # a tie
    ids = [names(300)[i] for i in np.random.default_rng(2).permutation(300)]
    index = ToolIndex(DIM)
    index.add(ids, tools)
    asked = tuple(f"q{i:02d}" for i in range(20))
    right = rank_vectors(queries, tools, asked, tuple(ids), 300, name="x")
    found = index.run(asked, queries, 300, name="x")
    for row in range(20):
        assert found.scores[row] == pytest.approx(right.scores[row], abs=2e-6)
        keys = [(-s, t) for s, t in zip(found.scores[row], found.tool_ids[row], strict=True)]
        assert keys == sorted(keys) and set(found.tool_ids[row]) == set(ids)
    best = index.search(tools[7], 2)
    assert {h.id for h in best} == {ids[7], ids[200]} and best[0].score == best[1].score == 1.0
    assert best[0].id < best[1].id


@settings(max_examples=30, deadline=None)
@given(
    seed=st.integers(0, 1000),
    cuts=st.lists(st.integers(0, 40), max_size=4),
    gone=st.sets(st.integers(0, 39), max_size=30),
    k=st.integers(1, 45),
)
def test_how_an_index_came_about_does_not_show(seed: int, cuts: list[int], gone: set[int], k: int) -> None:
    vectors, ids, queries = unit(seed, 40), names(40), unit(seed + 1, 5)
    order = np.random.default_rng(seed).permutation(40)
    grown = ToolIndex(DIM)
    for start, stop in zip([0, *sorted(cuts)], [*sorted(cuts), 40], strict=True):
        part = order[start:stop]
        grown.add([ids[i] for i in part], vectors[part])
    grown.remove([ids[i] for i in sorted(gone)])
    back = [i for i in sorted(gone) if i % 2]
    grown.add([ids[i] for i in back], vectors[back])
    there = [i for i in range(40) if i not in gone or i in back]
    direct = ToolIndex(DIM)
    direct.add([ids[i] for i in there], vectors[there])
    assert grown.ids == direct.ids and len(grown) == len(there)
    many = grown.search_many(queries, k)
    assert many == direct.search_many(queries, k)
    assert many == [grown.search(query, k) for query in queries]
    assert all(len(row) == min(k, len(there)) for row in many)


def test_blocks_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    index, queries = filled(200), unit(3, 30)
    whole = index.search_many(queries, 10)
    monkeypatch.setattr(module, "BLOCK_FLOATS", 500)
    assert index.search_many(queries, 10) == whole


@pytest.mark.parametrize("chosen", [IndexSettings(), GRAPH], ids=["exact", "graph"])
def test_a_tool_is_found_right_after_it_is_added_and_not_after_it_went(chosen: IndexSettings) -> None:
    index = filled(500, chosen)
    index.search(unit(9, 1)[0])  # the graph is there before the new tool
    assert (index.graph is not None) == (chosen is GRAPH)
    new = unit(10, 1)
    assert "new" not in index
    index.add(["new"], new)
    assert index.search(new[0], 1)[0].id == "new" and "new" in index
    moved = unit(11, 1)
    index.add(["new"], moved)
    assert len(index) == 501
    assert index.search(moved[0], 1)[0].id == "new"
    assert all(h.score < 0.999 for h in index.search(new[0], 5))
    index.remove(["new"])
    assert "new" not in {h.id for h in index.search(moved[0], 50)}
    with pytest.raises(UserError, match="'new' is not in the index"):
        index.remove(["new"])


def test_the_graph_finds_most_and_its_scores_are_exact() -> None:
    index, queries = filled(3000, GRAPH), unit(5, 100)
    found = index.graph_recall(queries, 10)
    assert found.queries == 100 and found.k == 10
    assert found.recall >= 0.95 and 0 <= found.worst <= found.recall
    exact = {h.id: h.score for h in index.search(queries[0], 3000, exact=True)}
    assert all(exact[h.id] == h.score for h in index.search(queries[0], 10, exact=False))
    # A graph that looks at little finds less: the measure tells.
    poor = ToolIndex(DIM, IndexSettings(exact_limit=0, connectivity=2, expansion_add=1, expansion_search=1))
    poor.add(names(3000), unit(0, 3000))
    assert poor.graph_recall(queries, 10).recall < found.recall
    # Half of the tools go, others come: nothing is built again and recall holds.
    graph = index.graph
    index.remove(names(1500))
    index.add([f"n{i}" for i in range(500)], unit(6, 500))
    assert index.graph is graph and len(graph) == len(index) == 2000
    assert index.graph_recall(queries, 10).recall >= 0.9


def test_equal_calls_give_an_equal_graph() -> None:
    queries = unit(5, 50)
    first, second = filled(800, GRAPH), filled(800, GRAPH)
    assert first.search_many(queries, 10) == second.search_many(queries, 10)
    assert bytes(first.graph.save()) == bytes(second.graph.save())


def test_without_usearch_a_large_index_is_searched_exactly(monkeypatch: pytest.MonkeyPatch) -> None:
    right = filled(50).search_many(unit(1, 5), 3)
    monkeypatch.setattr(module, "find_spec", lambda name: None)
    index = filled(50, GRAPH)
    assert index.search_many(unit(1, 5), 3) == right
    with pytest.raises(UserError, match=r"ecoagent\[ann\]"):
        index.search(unit(1, 1)[0], exact=False)


@pytest.mark.parametrize("chosen", [IndexSettings(), GRAPH], ids=["exact", "graph"])
def test_a_saved_index_answers_as_before_and_goes_on(chosen: IndexSettings, tmp_path: Path) -> None:
    index, queries = filled(300, chosen), unit(2, 10)
    before = index.search_many(queries, 10)
    gone = sorted({before[0][0].id, before[1][0].id})
    index.remove(gone)
    save_index(index, tmp_path, about={"encoder": "x"}, extra={"tools.txt": lambda p: p.write_text("kept")})
    loaded = load_index(tmp_path, chosen)
    again = loaded.index
    assert loaded.about == {"encoder": "x"} and loaded.extra["tools.txt"].read_text() == "kept"
    assert again.search_many(queries, 10) == index.search_many(queries, 10) != before
    for one in (index, again):
        one.add([gone[0], "late"], unit(7, 2))
    assert again.slots() == index.slots() and again.ids == index.ids
    assert again.search_many(queries, 10) == index.search_many(queries, 10)
    files = set(tmp_path.iterdir())
    save_index(again, tmp_path)
    assert len(set(tmp_path.iterdir())) == len(files) - 1  # the text went, the rest was replaced
    assert not files & set(tmp_path.iterdir()) - {tmp_path / "index.json"}


def test_a_save_that_breaks_off_leaves_the_earlier_index(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    index = filled(20)
    save_index(index, tmp_path)
    before = {p.name: sha256_file(p) for p in tmp_path.iterdir()}
    index.add(["new"], unit(8, 1))

    def broken(*args: object) -> None:
        raise OSError("no space")

    monkeypatch.setattr("ecoagent.retrieval.index_files.write_json", broken)
    with pytest.raises(OSError, match="no space"):
        save_index(index, tmp_path)
    assert before.items() <= {p.name: sha256_file(p) for p in tmp_path.iterdir()}.items()
    assert len(load_index(tmp_path).index) == 20
    monkeypatch.undo()
    save_index(index, tmp_path)
    assert len(load_index(tmp_path).index) == 21 and len(list(tmp_path.iterdir())) == 3


def test_damage_names_the_file(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="there is no index"):
        load_index(tmp_path)
    save_index(filled(20), tmp_path)
    [vectors] = tmp_path.glob("vectors-*.npy")
    whole = vectors.read_bytes()
    vectors.write_bytes(whole[:-1] + b"\0")
    with pytest.raises(UserError, match=rf"{vectors.name} is damaged.*index build"):
        load_index(tmp_path)
    vectors.unlink()
    with pytest.raises(UserError, match=r"vectors-.*not there"):
        load_index(tmp_path)
    vectors.write_bytes(whole)
    pointer = tmp_path / "index.json"
    said = json.loads(pointer.read_text())
    pointer.write_text(json.dumps(said | {"format": 7}))
    with pytest.raises(UserError, match="format 7"):
        load_index(tmp_path)
    pointer.write_text(json.dumps(said | {"dim": 3}))
    with pytest.raises(UserError, match="do not belong together"):
        load_index(tmp_path)


def test_wrong_vectors_are_refused() -> None:
    index = ToolIndex(DIM)
    index.add([], np.empty((0, DIM), np.float32))
    assert index.search(unit(0, 1)[0]) == [] and len(index) == 0
    with pytest.raises(UserError, match="shape"):
        index.add(["a"], unit(0, 1, 8))
    with pytest.raises(UserError, match="twice"):
        index.add(["a", "a"], unit(0, 2))
    for factor in (2.0, np.nan):
        with pytest.raises(UserError, match="'a' is not of length 1"):
            index.add(["a"], unit(0, 1) * np.float32(factor))
    with pytest.raises(UserError, match=r"shape \(1, 8\)"):
        index.search(unit(0, 1, 8)[0])
    with pytest.raises(UserError, match="recall needs"):
        index.graph_recall(unit(0, 1))
    assert len(index) == 0
