"""The table of an ablation, from the reciprocal ranks of its arms."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np
import numpy.typing as npt

from ecoagent.evaluation.clustered import ClusterInterval, PairedTest, cluster_interval, paired_test
from ecoagent.evaluation.offline import DECIMALS, JudgedSplit

UNTRAINED = "untrained"
TOWERS = "towers"


def result_rows(
    found: Mapping[str, Sequence[Mapping[str, Any]]],
    splits: Sequence[JudgedSplit],
    clusters: Mapping[str, Sequence[str]],
    *,
    seed: int,
    against: Mapping[str, str] | None = None,
) -> list[dict[str, Any]]:
    """A row for each split and arm: MRR, and its difference from other arms.

    Args:
        found: arm to the ``reciprocal_ranks`` of each seed.
        splits: splits judged.
        clusters: split to a cluster name for each of its queries, in their order.
        seed: of the resamples.
        against: key of a row to the arm it is compared with; none = ``all``, and the arm's own control.
    """
    rows = []
    for split in splits:
        names = clusters[split.name]
        means = {arm: _over_seeds(runs, split) for arm, runs in found.items()}
        for arm, values in means.items():
            inside = cluster_interval(values.tolist(), names, seed=seed)
            row: dict[str, Any] = {
                "arm": arm,
                "set": split.set_name,
                "split": split.split,
                "queries": len(values),
                "tools": inside.clusters,
                "MRR": round(inside.mean, DECIMALS),
                "interval": _ends(inside),
                "by_seed": [round(float(v.mean()), DECIMALS) for v in _by_seed(found[arm], split)],
            }
            others = against or {"against_all": "all", "against_random": f"random_{arm}"}
            for key, other in others.items():
                if other in means and other != arm:
                    test = paired_test(values.tolist(), means[other].tolist(), names, seed=seed)
                    row[key] = _shown(test)
            rows.append(row)
    return rows


def _by_seed(runs: Sequence[Mapping[str, Any]], split: JudgedSplit) -> list[npt.NDArray[np.float64]]:
    return [np.array([run["reciprocal_ranks"][split.name][q] for q in split.queries.ids]) for run in runs]


def _over_seeds(runs: Sequence[Mapping[str, Any]], split: JudgedSplit) -> npt.NDArray[np.float64]:
    """Mean over seeds, query by query."""
    mean: npt.NDArray[np.float64] = np.stack(_by_seed(runs, split)).mean(axis=0)
    return mean


def _ends(found: ClusterInterval) -> list[float]:
    return [round(found.low, DECIMALS), round(found.high, DECIMALS)]


def _shown(test: PairedTest) -> dict[str, Any]:
    plain = asdict(test.difference)
    return {
        "difference": round(plain["mean"], DECIMALS),
        "interval": _ends(test.difference),
        "p": round(test.p, DECIMALS),
    }
