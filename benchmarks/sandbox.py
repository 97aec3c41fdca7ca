"""Every node of n8n-nodes-base built in the sandbox, compared with the list the package ships.

    python benchmarks/sandbox.py --artifacts outputs/artifacts

Prints equal, different and failed nodes, seconds and peak memory; exits 1 if a node differs or fails.
"""

from __future__ import annotations

import argparse
import json
import resource
import sys
import time
from pathlib import Path
from typing import Any

from ecoagent.crawlers import ArtifactStore, load_lock
from ecoagent.crawlers.archives import read_members
from ecoagent.crawlers.n8n import dicts, newest, text
from ecoagent.crawlers.n8n_code import required
from ecoagent.crawlers.n8n_official import KNOWN, NODES
from ecoagent.crawlers.sandbox import evaluate

FIELDS = ("displayName", "description", "version", "group", "hidden", "usableAsTool", "credentials")
PACKAGE = "n8n-nodes-base"


def wanted(path: str) -> bool:
    """The lists and all code of the package."""
    listed = (NODES, KNOWN, "package.json")
    return path in listed or (path.startswith("dist/") and path.endswith((".js", ".json")))


def compare(members: dict[str, bytes]) -> tuple[list[str], dict[str, list[str]], dict[str, str]]:
    """Names of equal nodes, fields that differ by node, and why by node that could not be built."""
    listed = newest(dicts(json.loads(members[NODES])))
    places = {n: text(v.get("sourcePath")) for n, v in json.loads(members[KNOWN]).items() if n in listed}
    files = {p: b.decode("utf-8", "replace") for p, b in members.items() if "/types/" not in p}
    equal: list[str] = []
    different: dict[str, list[str]] = {}
    failed: dict[str, str] = {}
    for name, path in sorted(places.items()):
        # All files for each of 444 nodes would be 10 GB of text to hand over.
        built = evaluate({p: files[p] for p in required(path, files)}, [path])
        value = built.values.get(path)
        if not isinstance(value, dict) or not isinstance(value.get("description"), dict):
            failed[name] = built.errors.get(path, "no description")
            continue
        fields = [f for f in FIELDS if not same(f, value["description"].get(f), listed[name].get(f))]
        if fields:
            different[name] = fields
        else:
            equal.append(name)
    return equal, different, failed


def same(field: str, built: Any, listed: Any) -> bool:
    """Whether a field is equal; a flag that is not there is off, a list that is not there is empty."""
    if field in ("hidden", "usableAsTool"):
        return bool(built) == bool(listed)
    if field == "credentials":
        return [c.get("name") for c in dicts(built)] == [c.get("name") for c in dicts(listed)]
    return bool(built == listed)


def main() -> int:
    """Run the comparison."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--artifacts", type=Path, required=True, help="artifact store")
    store = ArtifactStore(parser.parse_args().artifacts)
    entry = next(e for e in load_lock().artifacts if e.name == PACKAGE)
    members = read_members(store.fetch(entry), wanted)
    start = time.monotonic()
    equal, different, failed = compare(members)
    seconds = time.monotonic() - start
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(json.dumps({"different": different, "failed": failed}, indent=1))
    print(
        f"{len(equal)} equal, {len(different)} different, {len(failed)} failed; "
        f"{seconds:.1f} s, peak {peak:.0f} MiB"
    )
    return 1 if different or failed else 0


if __name__ == "__main__":
    sys.exit(main())
