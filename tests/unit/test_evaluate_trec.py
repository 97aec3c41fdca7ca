"""TREC files say what the tables say."""

from __future__ import annotations

from pathlib import Path

import ir_measures
import numpy as np
import pytest

from ecoagent.evaluation.trec import trec_query, trec_tool, write_qrels, write_run
from ecoagent.metrics import METRICS, evaluate_run
from ecoagent.retrieval import RankedRun


def test_ids_are_prefixed_once_and_hold_no_blanks() -> None:
    assert trec_query("q:syn:0123456789ab") == "q:syn:0123456789ab"
    assert trec_query("17") == "q:17"
    assert trec_tool("n8n:a.b/my resource.get%all") == "t:n8n:a.b/my%20resource.get%25all"
    assert trec_tool("langchain:m#x@1,2") == "t:langchain:m#x@1,2"
    assert not set(trec_tool("a\tb\u00a0c\u2028d")) & set(" \t\u00a0\u2028")


def test_files_evaluate_to_the_table_even_where_scores_tie(tmp_path: Path) -> None:
    qrels = {"q:syn:b": frozenset({"z"}), "q:syn:a": frozenset({"x y", "z"})}
    run = RankedRun(
        "bm25",
        ("q:syn:b", "q:syn:a"),
        [["a", "x y", "z"], ["a", "b", "x y", "z"]],
        [[0.5, 0.5, 0.5], [12.345679, 12.345678, 12.345678, 0.0]],
    )
    found = evaluate_run(run, qrels)
    run_file, qrels_file = write_run(tmp_path / "a.run", run), write_qrels(tmp_path / "a.qrels", qrels)
    lines = run_file.read_text().splitlines()
    assert [line.split()[0] for line in lines] == ["q:syn:a"] * 4 + ["q:syn:b"] * 3
    assert lines[2].split()[2:4] == ["t:x%20y", "3"] and {len(line.split()) for line in lines} == {6}
    measures = {"MRR": ir_measures.RR, "nDCG@10": ir_measures.nDCG @ 10, "Recall@1": ir_measures.R @ 1}
    theirs = ir_measures.calc_aggregate(
        list(measures.values()),
        ir_measures.read_trec_qrels(str(qrels_file)),
        ir_measures.read_trec_run(str(run_file)),
    )
    for name, measure in measures.items():
        assert theirs[measure] == pytest.approx(found.means()[name], abs=1e-9)
    assert qrels_file.read_text() == "q:syn:a 0 t:x%20y 1\nq:syn:a 0 t:z 1\nq:syn:b 0 t:z 1\n"


THEIRS = {
    "MRR": ir_measures.RR,
    **{f"nDCG@{k}": ir_measures.nDCG @ k for k in (1, 3, 5, 10)},
    **{f"Recall@{k}": ir_measures.R @ k for k in (1, 5, 10)},
    **{f"Hit@{k}": ir_measures.Success @ k for k in (1, 5, 10)},
}


def test_every_metric_of_the_table_from_the_files_alone(tmp_path: Path) -> None:
    """Query by query, with several golds, tied scores, golds that are not found and a query unanswered."""
    assert set(THEIRS) == set(METRICS)
    rng = np.random.default_rng(4)
    tools = [f"n8n:pkg.node/{n}" for n in range(60)]
    qrels = {f"q:syn:{n:03d}": frozenset(rng.choice(tools, rng.integers(1, 5))) for n in range(40)}
    rankings = [[str(tool) for tool in rng.permutation(tools)[: rng.integers(0, 30)]] for _ in range(40)]
    scores = [sorted((round(float(s), 1) for s in rng.random(len(r))), reverse=True) for r in rankings]
    run = RankedRun("any", tuple(qrels), rankings, scores)
    found = evaluate_run(run, qrels)
    theirs = ir_measures.iter_calc(
        list(THEIRS.values()),
        list(ir_measures.read_trec_qrels(str(write_qrels(tmp_path / "a.qrels", qrels)))),
        list(ir_measures.read_trec_run(str(write_run(tmp_path / "a.run", run)))),
    )
    values = {(value.query_id, value.measure): value.value for value in theirs}
    for row, query in enumerate(found.query_ids):
        for name, measure in THEIRS.items():
            # A query without lines in the run file is not listed: it counts 0.
            expected = values.get((query, measure), 0.0)
            assert found.values[name][row] == pytest.approx(expected, abs=1e-9), (query, name)
    assert [] in rankings and found.means()["MRR"] > 0
