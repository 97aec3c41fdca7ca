"""Precision and recall of near-duplicate tools on the pairs labelled by hand, and speed of the join.

Usage: python benchmarks/duplicates.py [--artifacts DIR] [--keys 200000] [--no-scale]

Fetches the artifacts of ``data/duplicate_pairs.lock.json`` through the user's pip and npm, reads them at
tool and at operation granularity, encodes the texts of labelled and candidate pairs with SBERT, prints
the tables and writes ``benchmarks/results/duplicates.json``.
"""

from __future__ import annotations

import argparse
import json
import random
import resource
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np

from ecoagent.crawlers import ArtifactStore, load_lock, parse_artifact
from ecoagent.metrics.intervals import wilson
from ecoagent.models import ModelStore
from ecoagent.reliability.duplicate_labels import LabelledPair, agreement, load_labelled_pairs
from ecoagent.reliability.duplicates import ToolKey, duplicate_groups, judge, key_of, text_of_key
from ecoagent.retrieval import load_encoder
from ecoagent.schema import ToolRecord
from ecoagent.settings import Settings

RESULTS = Path(__file__).resolve().parent / "results" / "duplicates.json"
GRANULARITIES = ("tool", "operation")


def read_catalogs(store: ArtifactStore) -> dict[str, dict[str, ToolRecord]]:
    """Kept records by id, at each granularity."""
    with resources.as_file(
        resources.files("ecoagent.reliability").joinpath("data/duplicate_pairs.lock.json")
    ) as path:
        lock = load_lock(path)
    found: dict[str, dict[str, ToolRecord]] = {g: {} for g in GRANULARITIES}
    for entry in lock.artifacts:
        path = store.fetch(entry)
        for granularity in GRANULARITIES:
            for item in parse_artifact(path, entry, granularity):
                if item.status == "kept":
                    found[granularity][item.record.id] = item.record
    return found


def load_embed() -> Callable[[Sequence[str]], Any]:
    """The SBERT of the default settings as a function of texts."""
    settings = Settings()
    name = settings.reliability.encoder
    return load_encoder(ModelStore(settings.models).path(name), name=name, pooling="mean").encode_documents


def measure(records: dict[str, ToolRecord], embed: Callable[[Sequence[str]], Any]) -> list[dict[str, Any]]:
    """Each labelled pair with what the rules say of it now, with and without cosines."""
    pairs = load_labelled_pairs()
    ids = sorted({i for p in pairs for i in (p.tool_id, p.other_id)})
    keys = {i: key_of(records[i]) for i in ids}
    vectors = dict(zip(ids, embed([text_of_key(records[i]) for i in ids]), strict=True))
    rows = []
    for pair in pairs:
        a, b = pair.tool_id, pair.other_id
        cosine = round(float(vectors[a] @ vectors[b]), 4)
        verdict = judge(keys[a], keys[b], cosine)
        rows.append(
            {
                "pair": pair,
                "cosine": cosine,
                "rule": verdict.rule,
                "found": verdict.same,
                "exact": judge(keys[a], keys[b], None).same,
            }
        )
    return rows


def score(rows: Iterable[dict[str, Any]], by: str = "found") -> dict[str, Any]:
    """Precision, recall and F1 of verdicts with 95% Wilson intervals."""
    counts = agreement((row[by], row["pair"].same) for row in rows)
    return {
        "pairs": counts.tp + counts.fp + counts.fn + counts.tn,
        "same": counts.tp + counts.fn,
        "precision": round(counts.precision, 4),
        "precision_95": [round(x, 4) for x in wilson(counts.precision, counts.tp + counts.fp)],
        "recall": round(counts.recall, 4),
        "recall_95": [round(x, 4) for x in wilson(counts.recall, counts.tp + counts.fn)],
        "f1": round(counts.f1, 4),
    }


def table(rows: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """Scores by fold and kind, exact rules only and with the embedding check."""

    def part(name: str, keep: Callable[[LabelledPair], bool]) -> dict[str, dict[str, Any]]:
        chosen = [row for row in rows if keep(row["pair"])]
        return {f"{name}, exact only": score(chosen, "exact"), f"{name}, with embeddings": score(chosen)}

    result = part("test fold", lambda p: p.fold == "test") | part("dev fold", lambda p: p.fold == "dev")
    for kind in ("trap", "cross_source", "within", "random", "found"):
        result |= part(kind, lambda p, kind=kind: p.kind == kind)
    return result | part("all", lambda p: True)


def group_catalog(records: dict[str, ToolRecord], embed: Callable[[Sequence[str]], Any]) -> dict[str, Any]:
    """Groups of a whole catalog; every pair found is looked up among the labels."""
    ordered = [records[i] for i in sorted(records)]
    keys = [key_of(r) for r in ordered]
    asked: list[int] = []

    def vectors_of(places: Sequence[int]) -> Any:
        asked.extend(places)
        return embed([text_of_key(ordered[p]) for p in places])

    start = time.perf_counter()
    result = duplicate_groups(keys, vectors_of)
    seconds = time.perf_counter() - start
    labels = {(p.tool_id, p.other_id): p.same for p in load_labelled_pairs()}
    same = [(r.tool_id, r.other_id) for r in result.pairs if r.same]
    sizes = Counter(result.group.values())
    return {
        "tools": len(keys),
        "groups": sum(n > 1 for n in sizes.values()),
        "tools_in_groups": sum(n for n in sizes.values() if n > 1),
        "groups_exact_only": sum(
            n > 1 for n in Counter(duplicate_groups(keys, None).group.values()).values()
        ),
        "pairs_same": len(same),
        "pairs_same_labelled": sum(p in labels for p in same),
        "pairs_same_right": sum(labels.get(p, False) for p in same),
        "texts_encoded": len(asked),
        "seconds": round(seconds, 2),
    }


def synthetic_keys(count: int, seed: int = 0) -> list[ToolKey]:
    """Keys of made-up packages of nodes, some sharing a service."""
    rng = random.Random(f"{seed}:keys")
    verbs, nouns = ("get", "list", "create", "update", "delete", "send"), [f"noun{i}" for i in range(200)]
    keys: list[ToolKey] = []
    while len(keys) < count:
        package, service = f"pkg{len(keys)}", f"service{int(rng.paretovariate(0.6)) % 20_000}"
        for number in range(min(rng.randint(1, 30), count - len(keys))):
            verb, noun = rng.choice(verbs), rng.choice(nouns)
            name, place = f"{verb} {noun}", f"{noun}.{verb}{number}"
            text = f"{rng.randrange(10**6):016x}"
            names = (service,)
            keys.append(
                ToolKey(
                    f"{package}/{place}", name, text, package, "node", place, False, False, verb, (noun,),
                    names, (), (), names,
                )
            )  # fmt: skip
    return keys


def scale(count: int) -> dict[str, Any]:
    """Time and memory of the whole grouping on made-up keys and vectors."""
    keys = synthetic_keys(count)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    start = time.perf_counter()
    rng = np.random.default_rng(0)
    found = duplicate_groups(keys, lambda places: rng.normal(size=(len(places), 384)))
    seconds = time.perf_counter() - start
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    return {
        "keys": count,
        "pairs": len(found.pairs),
        "seconds": round(seconds, 1),
        "peak_gib": round(peak, 2),
        "before_gib": round(before, 2),
    }


def main() -> None:
    """Print the tables and write the results."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--artifacts", type=Path, default=Path("outputs/artifacts"))
    parser.add_argument("--keys", type=int, default=200_000)
    parser.add_argument("--no-scale", action="store_true")
    chosen = parser.parse_args()
    catalogs, embed = read_catalogs(ArtifactStore(chosen.artifacts)), load_embed()
    rows = measure(catalogs["operation"] | catalogs["tool"], embed)
    scores = table(rows)
    for name, row in scores.items():
        low, high = row["precision_95"]
        print(
            f"{name:30} pairs {row['pairs']:4} same {row['same']:4}  precision {row['precision']:.3f} "
            f"[{low:.3f}, {high:.3f}]  recall {row['recall']:.3f} "
            f"[{row['recall_95'][0]:.3f}, {row['recall_95'][1]:.3f}]  F1 {row['f1']:.3f}"
        )
    rules = Counter((row["rule"], row["found"], row["found"] == row["pair"].same) for row in rows)
    by_rule = [{"rule": r, "same": s, "right": ok, "pairs": n} for (r, s, ok), n in sorted(rules.items())]
    for line in by_rule:
        print(line)
    groups = {g: group_catalog(catalogs[g], embed) for g in GRANULARITIES}
    print(json.dumps(groups, indent=1))
    result = {"scores": scores, "rules": by_rule, "groups": groups}
    if not chosen.no_scale:
        result["scale"] = scale(chosen.keys)
        print(result["scale"])
    RESULTS.parent.mkdir(parents=True, exist_ok=True)
    RESULTS.write_text(json.dumps(result, indent=1) + "\n", "utf-8")


if __name__ == "__main__":
    main()
