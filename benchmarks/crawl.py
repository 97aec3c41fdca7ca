"""Two ways to crawl the same bytes: file by file, as the authors' released crawler does, and by artifact.

Usage: python benchmarks/crawl.py [--store outputs/store/artifacts] [--digests FILE] [--texts]
                                  [--out benchmarks/results/crawl.json]

Both run against one loopback host that serves the locked artifacts' own files, so both see the same bytes:

- *file by file* is a plain re-implementation, written from a description of the released crawler, not from
  its code. It lists a folder of a git host, asks for one file per entry and takes text from what comes:
  CrewAI: the README of each tool folder; n8n: a regular expression over each ``*.node.js`` (the compiled
  file, as npm packages hold no TypeScript), one tool per top folder; LlamaIndex: the README of each package
  (a wheel carries it as its METADATA); LangChain: the released crawler reads about 100 pages of the
  documentation site, which no artifact holds, so the doc string of each entry of ``tools/`` stands for a
  page here. Network trouble, rate limits and the community's packages are left out: they would add to its
  14-18 thousand requests.
- *by artifact* is this project: the index entry and the archive (2 requests), hash, then the parser.

Texts are judged against what the artifact itself declares: n8n's against ``dist/types/nodes.json``, read
here without the project's parsers; classes and functions against ``--digests``, hashes of an independent
extraction of most tools. Without ``--digests`` they are judged against the project's own reading, and the
result says so.

- *right*: equal once white space is folded; *near*: half of all words shared; *wrong*: any other text (a
  README's sentence may be fair, but is not what the tool tells a model); *no text*: an empty one;
- *unjudged*: a tool the judge does not list; *no tool*: an entry that stands for no tool at all, for a hidden
  one, or for one that another entry stands for; *missing*: declared and described, but nothing found for it.

Of an entry that stands for several declared tools the best match counts. The sums leave LangChain out, where
a doc string stands for a page. Seconds are on the loopback, where a request costs nothing; ``polite_seconds``
adds one second a request, the rate of a polite crawler. The results file holds no upstream text.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import re
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.parse import quote

sys.path.insert(0, str(Path(__file__).resolve().parent))

from standin_world import (
    NODE_FILE,
    Client,
    Found,
    Run,
    World,
    crewai_by_file,
    langchain_by_file,
    llamaindex_by_file,
    n8n_by_file,
)

from ecoagent.crawlers.catalogs import parse_artifact
from ecoagent.crawlers.digests import short_hash
from ecoagent.crawlers.lock import LockEntry, load_lock
from ecoagent.schema import Candidate, catalog_of, fold_space

WORDS = re.compile(r"\w+")
TALLIES = ("right", "near", "wrong", "no_text", "unjudged", "no_tool")
EXAMPLES = 5


@dataclass
class Declared:
    """What an artifact declares of one tool; ``digest``: hash of the description, none = not judged."""

    id: str
    path: str
    digest: str | None
    text: str | None


def by_artifact(client: Client, entries: Sequence[LockEntry], folder: Path) -> tuple[Run, list[Candidate]]:
    """Index entry and archive of each package, hash, parser."""
    candidates: list[Candidate] = []
    for entry in entries:
        about = json.loads(client.get(f"/index/{entry.key}") or b"{}")
        body = client.get(f"/files/{quote(about['file'])}") or b""
        assert hashlib.sha256(body).hexdigest() == entry.sha256
        candidates += parse_artifact(folder / entry.sha256 / entry.filename, entry)
    kept = [c.record for c in candidates if c.status == "kept"]
    return client.done(Found(r.provenance.path, r.description, r.id) for r in kept), candidates


def declared_nodes(files: dict[str, bytes], package: str) -> list[Declared]:
    """Visible nodes with a description, by ``nodes.json``, the highest version of each name."""
    best: dict[str, dict[str, Any]] = {}

    def highest(node: dict[str, Any]) -> float:
        version = node.get("version", 0)
        return max(version) if isinstance(version, list) else float(version)

    for node in json.loads(files["dist/types/nodes.json"]):
        if node["name"] not in best or highest(node) > highest(best[node["name"]]):
            best[node["name"]] = node
    places = json.loads(files["dist/known/nodes.json"])
    return [
        Declared(
            f"n8n:{package}.{name}",
            places[name]["sourcePath"],
            short_hash(fold_space(node["description"])),
            fold_space(node["description"]),
        )
        for name, node in sorted(best.items())
        if not node.get("hidden") and fold_space(node.get("description") or "")
    ]


def declared_classes(
    candidates: Sequence[Candidate], entries: Sequence[LockEntry], digests: dict[str, Any] | None
) -> list[Declared]:
    """Described classes and functions: the digest file's, else the project's own kept records."""
    records = {c.record.id: c.record for c in candidates}
    texts = {i: fold_space(r.description) for i, r in records.items()}
    kept = {c.record.id for c in candidates if c.status == "kept"}
    catalog = catalog_of(entries[0].source)
    empty = short_hash("")
    if digests is None:
        expected = {i: short_hash(texts[i]) for i in kept}
    else:
        expected = {i: d["desc"] for i, d in digests[catalog].items() if d["desc"] != empty}
    return [
        Declared(
            i,
            _place(i, records[i].provenance.path if i in records else "", catalog),
            expected.get(i),
            texts[i] if i in texts and short_hash(texts[i]) == expected.get(i) else None,
        )
        for i in sorted({*expected, *kept})
    ]


def _place(identifier: str, path: str, catalog: str) -> str:
    return f"{identifier.split(':')[1]}:" if catalog == "llamaindex" else path


def _kind(text: str, other: str) -> str:
    if text.startswith("```"):
        return "code fence"
    if text.startswith(("<", "![", "[![")):
        return "badge or markup"
    if re.match(r"(?i)deprecated\b|this (field|option|operation)", text):
        return "an option's deprecation"
    return other


def _shared(a: str, b: str) -> float:
    one, two = set(WORDS.findall(a.lower())), set(WORDS.findall(b.lower()))
    return len(one & two) / len(one | two) if one | two else 0.0


def _stands_for(found: Found, declared: Declared) -> bool:
    if found.id is not None:
        return found.id == declared.id
    if found.path.endswith(("/", ":")):
        return declared.path.startswith(found.path)
    source = PurePosixPath(declared.path)
    return declared.path == found.path or PurePosixPath(found.path) == source


def judge(run: Run, everything: Sequence[Declared], other: str = "another text") -> dict[str, Any]:
    """Counts of right, near, wrong and missing texts, kinds of the wrong ones, and a few by id."""
    declared = [d for d in everything if d.digest is not None]
    unjudged = [d for d in everything if d.digest is None]
    taken: set[str] = set()
    tally: Counter[str] = Counter()
    kinds: Counter[str] = Counter()
    shown: list[dict[str, Any]] = []
    for found in run.found:
        text = fold_space(found.text)
        mine = [d for d in declared if d.id not in taken and _stands_for(found, d)]
        if not mine:
            known = any(_stands_for(found, d) for d in unjudged)
            tally["unjudged" if known else "no_tool"] += 1
            continue
        digest = short_hash(text)
        best = max(mine, key=lambda d: (d.digest == digest, _shared(text, d.text or "")))
        taken.add(best.id)
        if best.digest == digest:
            tally["right"] += 1
        elif text and _shared(text, best.text or "") >= 0.5:
            tally["near"] += 1
        elif not text:
            tally["no_text"] += 1
        else:
            tally["wrong"] += 1
            kind = _kind(text, other)
            kinds[kind] += 1
            if kinds[kind] <= EXAMPLES:
                shown.append(
                    {
                        "id": best.id,
                        "from": found.path,
                        "kind": kind,
                        "characters": len(text),
                        "declared_characters": len(best.text or ""),
                        "shared_words": round(_shared(text, best.text or ""), 3),
                        "text": text,
                        "declared": best.text,
                    }
                )
    missing = len(declared) - len(taken)
    return {
        "requests": run.requests,
        "bytes": run.bytes,
        "seconds": round(run.seconds, 3),
        "polite_seconds": round(run.seconds + run.requests, 3),
        "found": len(run.found),
        "declared": len(declared),
        **{k: tally[k] for k in TALLIES},
        "missing": missing,
        "right_share": round(tally["right"] / len(declared), 4) if declared else None,
        "wrong_kinds": dict(sorted(kinds.items())),
        "wrong_examples": shown,
    }


def _ratios(ours: dict[str, Any], theirs: dict[str, Any]) -> dict[str, float | None]:
    def over(a: float, b: float) -> float | None:
        return round(a / b, 3) if b else None

    return {
        "requests_theirs_to_ours": over(theirs["requests"], ours["requests"]),
        "bytes_theirs_to_ours": over(theirs["bytes"], ours["bytes"]),
        "seconds_theirs_to_ours": over(theirs["seconds"], ours["seconds"]),
        "polite_seconds_theirs_to_ours": over(theirs["polite_seconds"], ours["polite_seconds"]),
        "right_ours_to_theirs": over(ours["right"], theirs["right"]),
    }


def measure(store: Path, digests: dict[str, Any] | None) -> dict[str, Any]:
    """Every catalog, both ways, in one run."""
    lock = load_lock()
    chosen: dict[str, list[LockEntry]] = {
        "n8n official (base)": [a for a in lock.artifacts if a.name == "n8n-nodes-base"],
        "crewai": [a for a in lock.artifacts if a.source == "crewai" and a.ecosystem == "pip"],
        "llamaindex": [a for a in lock.artifacts if a.source == "llamaindex" and a.ecosystem == "pip"],
        "langchain": [a for a in lock.artifacts if a.name == "langchain-community"],
    }

    def wanted(name: str) -> bool:
        return bool(NODE_FILE.match(name)) or name.endswith((".py", "README.md", "METADATA", "nodes.json"))

    results: dict[str, Any] = {}
    with World() as world:
        for row, entries in chosen.items():
            files: dict[str, bytes] = {}
            for entry in entries:
                path = store / entry.sha256 / entry.filename
                if not path.is_file():
                    raise SystemExit(f"{path} is not there: run `ecoagent crawl` first, or give --store")
                files |= world.publish(entry, path, wanted)
            ours, candidates = by_artifact(Client(world), entries, store)
            key = entries[0].key
            theirs: dict[str, Callable[[], Run]] = {
                "n8n official (base)": lambda k=key: n8n_by_file(Client(world), k, collapse=True),
                "crewai": lambda k=key: crewai_by_file(Client(world), k),
                "llamaindex": lambda e=entries: llamaindex_by_file(Client(world), e),
                "langchain": lambda k=key: langchain_by_file(Client(world), k),
            }
            if row.startswith("n8n"):
                declared = declared_nodes(files, entries[0].name)
            else:
                listed = digests if digests is None else _only(digests, entries)
                declared = declared_classes(candidates, entries, listed)
            other = "text of an option" if row.startswith("n8n") else "another text"
            results[row] = {
                "packages": len(entries),
                "judge": "nodes.json" if row.startswith("n8n") else ("digests" if digests else "own reading"),
                "by_artifact": judge(ours, declared),
                "by_file": judge(theirs[row](), declared, other),
            }
            if row.startswith("n8n"):
                single = n8n_by_file(Client(world), key, collapse=False)
                results[row]["by_file_not_collapsed"] = judge(single, declared, other)
            results[row]["ratios"] = _ratios(results[row]["by_artifact"], results[row]["by_file"])
    return results


def _only(digests: dict[str, Any], entries: Sequence[LockEntry]) -> dict[str, Any]:
    """Digests of the packages at hand; LlamaIndex ids name theirs."""
    names = {e.name for e in entries}
    catalog = catalog_of(entries[0].source)
    kept = {
        i: d
        for i, d in digests[catalog].items()
        if (catalog == "langchain" and i.startswith("langchain:langchain_community."))
        or catalog == "crewai"
        or (catalog == "llamaindex" and i.split(":")[1] in names)
    }
    return {catalog: kept}


def total(results: dict[str, Any], way: str) -> dict[str, Any]:
    """Sums over the catalogs, LangChain left out."""
    keys = ("requests", "bytes", "seconds", "polite_seconds", "found", "declared", *TALLIES, "missing")
    sums = {k: round(sum(r[way][k] for n, r in results.items() if n != "langchain"), 3) for k in keys}
    return {**sums, "right_share": round(sums["right"] / sums["declared"], 4)}


def show(results: dict[str, Any], *, texts: bool) -> None:
    """The table, and wrong texts on request."""
    columns = ("found", "declared", *TALLIES, "missing")
    print(f"{'catalog':<21}{'way':<23}{'requests':>9}{'MB':>7}{'s':>7}" + "".join(f"{c:>9}" for c in columns))
    for row, result in results.items():
        for way in ("by_file", "by_file_not_collapsed", "by_artifact"):
            if way not in result:
                continue
            r = result[way]
            sizes = f"{r['requests']:>9}{r['bytes'] / 1e6:>7.2f}{r['seconds']:>7.2f}"
            print(f"{row:<21}{way:<23}{sizes}" + "".join(f"{r[c]:>9}" for c in columns))
            for example in r.get("wrong_examples", []) if texts else []:
                print(f"    {example['kind']}: {example['id']}\n      has  {example['text'][:100]!r}")
                print(f"      says {str(example['declared'])[:100]!r}")


def without_text(value: Any) -> Any:
    """The results without upstream text."""
    if isinstance(value, dict):
        return {k: without_text(v) for k, v in value.items() if k not in ("text", "declared_text")}
    if isinstance(value, list):
        return [without_text({k: v for k, v in i.items() if k != "declared"}) for i in value]
    return value


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--store", type=Path, default=Path("outputs/store/artifacts"))
    parser.add_argument("--digests", type=Path, default=None)
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/crawl.json"))
    parser.add_argument("--texts", action="store_true", help="print wrong texts; they are never written")
    options = parser.parse_args()
    digests = json.loads(options.digests.read_text("utf-8")) if options.digests else None
    results = measure(options.store, digests)
    ways = {way: total(results, way) for way in ("by_artifact", "by_file")}
    everything = {**results, "all": {**ways, "ratios": _ratios(ways["by_artifact"], ways["by_file"])}}
    show(everything, texts=options.texts)
    print("ratios:", json.dumps(everything["all"]["ratios"]))
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(json.dumps(without_text(everything), indent=2, sort_keys=True) + "\n", "utf-8")
    print(f"written to {options.out}")


if __name__ == "__main__":
    main()
