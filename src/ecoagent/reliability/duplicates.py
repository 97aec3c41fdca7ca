"""Near-duplicate tools: pairs that are one tool, and the groups they make.

Two tools are *the same* if an agent could use either for exactly the same request and get the same
effect from the same service. The form of the answer (text, JSON), optional inputs, the catalog, the
package and the version do not matter. So one class in two packages is the same, and so are wrappers
of one operation of one service in two catalogs, and a service under its old and its new name.
Different are: a trigger and an action, an operation and a whole node of many operations, two
operations of one node, "get one" and "get many", a search's results and an answer written from
them, and equal words for two services.

A pair is judged by hard rules that say *different*, then by exact equality of name and description,
then by service, verb and object together with the cosine of two vectors. Pairs come from blocks,
never from all against all. Groups are unions of pairs found the same, strongest first; a union that
would bring together two tools that a hard rule keeps apart is refused.
"""

from __future__ import annotations

import hashlib
from array import array
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from ecoagent.reliability.duplicate_keys import QUALIFIERS, ToolKey, key_of, text_of_key, verbs_agree
from ecoagent.schema import DuplicateRow

__all__ = [
    "Groups",
    "ToolKey",
    "Verdict",
    "candidate_pairs",
    "duplicate_groups",
    "hard_rule",
    "judge",
    "key_of",
    "text_of_key",
]

BLOCK = 64
"""Largest block whose members are all compared with each other."""
WINDOW = 8
"""Neighbours each member of a larger block is compared with, in order of what is compared."""
COSINE_SAME_OBJECT = 0.50
"""Least cosine where service, verb and object agree."""
COSINE_SAME_SERVICE = 0.64
"""Least cosine where the service agrees and verb and object do not speak against it."""
COSINE_NO_SERVICE = 0.60
"""Least cosine where neither tool names a service and verb and object agree."""
COSINE_DIGITS = 4
_BATCH = 4096

Vectors = npt.NDArray[Any]
VectorsOf = Callable[[Sequence[int]], Vectors]
"""Places of keys, ascending, to (n, d) vectors."""


@dataclass(frozen=True)
class Verdict:
    """Whether two tools are one, and the rule that says so."""

    same: bool
    rule: str


@dataclass(frozen=True)
class Groups:
    """Groups of tools that are one tool.

    Attributes:
        group: id to the smallest id of its group; every tool is in one.
        pairs: pairs whose names or vectors were compared, sorted by ids. Each pair that is the same
            lies in one group, and the same pairs connect each group.
    """

    group: dict[str, str]
    pairs: list[DuplicateRow]


def hard_rule(a: ToolKey, b: ToolKey) -> str | None:
    """The rule that keeps two tools apart whatever their texts; ``None`` if there is none.

    Symmetric. ``trigger``: one starts a workflow. ``whole_and_part``: one stands for several
    operations. ``operation``: two operations of one node. ``node``: two nodes of one package.
    ``verb``: the names' verbs differ. ``qualifier``: a word like "image" or "batch" said of one only.
    ``service``: both name a service and not the same.
    """
    if a.trigger != b.trigger:
        return "trigger"
    if a.whole != b.whole:
        return "whole_and_part"
    if a.node and b.node and a.package == b.package:
        if a.node != b.node:
            return "node"
        if a.operation != b.operation:
            return "operation"
    if not verbs_agree(a.verb, b.verb):
        return "verb"
    if any(word in QUALIFIERS or ">" in word for word in set(a.objects) ^ set(b.objects)):
        return "qualifier"
    if a.service and b.service and not _share_service(a, b):
        return "service"
    if a.houses and b.houses and set(a.houses).isdisjoint(b.houses):
        return "service"
    return None


def judge(a: ToolKey, b: ToolKey, cosine: float | None) -> Verdict:
    """Whether two tools are the same; symmetric.

    Args:
        a: one key.
        b: the other.
        cosine: cosine of the vectors of ``text_of_key``; ``None`` leaves out every rule that asks
            for it, so that only equal names and descriptions are the same.
    """
    hard = hard_rule(a, b)
    if hard is not None:
        return Verdict(False, hard)
    if _equal(a, b):
        return Verdict(True, "exact")
    needed, rule = needed_cosine(a, b)
    if needed is None or cosine is None:
        return Verdict(False, rule)
    return Verdict(cosine >= needed, rule)


def needed_cosine(a: ToolKey, b: ToolKey) -> tuple[float | None, str]:
    """Least cosine at which two tools no hard rule parts are one, and the rule's name.

    ``None`` where no cosine suffices.
    """
    mine, yours = set(a.objects), set(b.objects)
    agree = mine == yours and a.verb == b.verb and bool(mine or a.verb)
    if a.service or b.service:
        if not _share_service(a, b):
            return None, "service"
    elif a.houses != b.houses or _other_area(a, b):
        return None, "service"
    elif not a.houses:
        return (COSINE_NO_SERVICE, "no_service") if agree and mine else (None, "no_service")
    if agree:
        return COSINE_SAME_OBJECT, "operation_equal"
    return (COSINE_SAME_SERVICE, "service_equal") if _close(a, b) else (None, "object")


def candidate_pairs(keys: Sequence[ToolKey]) -> Iterator[tuple[int, int, str]]:
    """Pairs of places, smaller first, with the kind of block they met in; each once, ascending.

    Tools meet that share their name and description (``exact``), or a word that names a service of
    either, alone or with a verb or an object (``service``), or, where they name no service, houses,
    verb and objects (``local``). A block of more than ``BLOCK`` tools is not compared whole: in order
    of verb, objects, name, description and id each member meets, of the next ``BLOCK``, the first
    ``WINDOW`` that no hard rule parts from it. Pairs that a hard rule parts are left out everywhere.
    Time and memory grow with the number of keys, not with its square.
    """
    named = {word for key in keys for word in key.service}
    blocks: defaultdict[bytes, array[int]] = defaultdict(lambda: array("q"))
    for place, key in enumerate(keys):
        for label in _labels(key, named):
            blocks[label].append(place)
    met: array[int] = array("q")
    for label, places in blocks.items():
        if len(places) > 1:
            _meet(keys, sorted(places, key=lambda i: _order(keys[i])), label[0], met)
    codes = np.unique(np.frombuffer(met, dtype=np.int64)) if met else np.zeros(0, np.int64)
    last = -1
    for code in codes:
        pair, kind = divmod(int(code), len(_KINDS))
        if pair != last:
            last = pair
            yield pair // len(keys), pair % len(keys), _KINDS[kind]


def duplicate_groups(keys: Sequence[ToolKey], vectors_of: VectorsOf | None) -> Groups:
    """Group the tools that are one tool; the same for any order of the keys.

    Args:
        keys: one per tool, ids distinct.
        vectors_of: gives the vectors of ``text_of_key`` at some places, ascending; asked once per
            place and only for places in pairs whose verdict hangs on a cosine. ``None`` = exact only.
    """
    pairs = [(i, j, *needed_cosine(keys[i], keys[j])) for i, j, _ in candidate_pairs(keys)]
    exact = {(i, j) for i, j, _, _ in pairs if _equal(keys[i], keys[j])}
    asked = [(i, j) for i, j, needed, _ in pairs if needed is not None and (i, j) not in exact]
    cosines = _cosines(asked, vectors_of) if vectors_of is not None else {}
    rows: dict[tuple[int, int], tuple[bool, str, float | None]] = {}
    for i, j in [*exact, *asked]:
        cosine = cosines.get((i, j))
        if cosine is not None or (i, j) in exact:
            verdict = judge(keys[i], keys[j], cosine)
            rows[i, j] = (verdict.same, verdict.rule, cosine)
    strongest = sorted(
        (pair for pair, row in rows.items() if row[0]),
        key=lambda p: (rows[p][1] != "exact", -(rows[p][2] or 0.0), *sorted((keys[p[0]].id, keys[p[1]].id))),
    )
    groups = _Union(keys)
    for i, j in strongest:
        if not groups.join(i, j):
            rows[i, j] = (False, "group", rows[i, j][2])
    found = [
        DuplicateRow(tool_id=a, other_id=b, same=same, rule=rule, cosine=cosine)
        for (i, j), (same, rule, cosine) in rows.items()
        for a, b in [sorted((keys[i].id, keys[j].id))]
    ]
    found.sort(key=lambda row: (row.tool_id, row.other_id))
    return Groups(groups.names(), found)


class _Union:
    """Disjoint sets that refuse to bring together what a hard rule keeps apart."""

    def __init__(self, keys: Sequence[ToolKey]) -> None:
        self._keys = keys
        self._set: dict[int, list[int]] = {}

    def join(self, i: int, j: int) -> bool:
        """Unite the sets of two places; false if a pair across them is apart by a hard rule."""
        mine, yours = self._set.get(i, [i]), self._set.get(j, [j])
        if mine is yours:
            return True
        # Many equal tools have few distinct keys: compare one of each.
        if any(hard_rule(a, b) for a in self._distinct(mine) for b in self._distinct(yours)):
            return False
        for place in (joined := [*mine, *yours]):
            self._set[place] = joined
        return True

    def _distinct(self, places: list[int]) -> list[ToolKey]:
        return list({_ruled_by(self._keys[p]): self._keys[p] for p in places}.values())

    def names(self) -> dict[str, str]:
        """Id to the smallest id of its set."""
        smallest = {id(s): min(self._keys[p].id for p in s) for s in self._set.values()}
        return {
            key.id: smallest[id(self._set[place])] if place in self._set else key.id
            for place, key in enumerate(self._keys)
        }


_KINDS = ("exact", "service", "local")


def _ruled_by(key: ToolKey) -> tuple[object, ...]:
    """All that hard rules look at."""
    node = (key.package, key.node, key.operation) if key.node else ()
    return (key.trigger, key.whole, node, key.verb, key.objects, key.service, key.words)


def _equal(a: ToolKey, b: ToolKey) -> bool:
    """Equal names and descriptions; across packages the service must be the same or unnamed too."""
    if a.name != b.name or a.description != b.description:
        return False
    return a.package == b.package or _share_service(a, b) or not (a.service or b.service or _other_area(a, b))


def _share_service(a: ToolKey, b: ToolKey) -> bool:
    return not set(a.service).isdisjoint(b.words) or not set(b.service).isdisjoint(a.words)


def _other_area(a: ToolKey, b: ToolKey) -> bool:
    return bool(a.area and b.area) and set(a.area).isdisjoint(b.area)


def _close(a: ToolKey, b: ToolKey) -> bool:
    """Whether verb and objects, though not equal, leave room for one operation."""
    mine, yours = set(a.objects), set(b.objects)
    if a.verb and b.verb:
        # A package seldom offers one thing twice: a word more or less is another tool there.
        nested = a.package != b.package and a.verb == b.verb and (mine <= yours or yours <= mine)
        return nested or (a.package != b.package and mine == yours)
    if mine == yours:
        return True
    bare = (not a.verb and not mine) or (not b.verb and not yours)
    return bare and a.package != b.package


def _order(key: ToolKey) -> tuple[str, tuple[str, ...], str, str, str]:
    return key.verb, key.objects, key.name, key.description, key.id


def _labels(key: ToolKey, named: set[str]) -> set[bytes]:
    """Names of the blocks a tool is in: the kind, then a digest that is the same in every process."""
    found = {_label(0, key.name, key.description)}
    words = [w for w in key.words if w in named]
    for word in words:
        found.add(_label(1, word))
        if key.verb:
            found.add(_label(1, word, "verb", key.verb))
        found.update(_label(1, word, "object", o) for o in key.objects)
    if not key.service:
        found.add(_label(2, *key.houses, "verb", key.verb, *(key.objects if not key.houses else ())))
    return found


def _label(kind: int, *parts: str) -> bytes:
    return bytes([kind]) + hashlib.blake2b("\0".join(parts).encode(), digest_size=8).digest()


def _meet(keys: Sequence[ToolKey], members: list[int], kind: int, met: array[int]) -> None:
    limit = len(members) if len(members) <= BLOCK else WINDOW
    for at, i in enumerate(members):
        left = limit
        for j in members[at + 1 : at + 1 + BLOCK]:
            if hard_rule(keys[i], keys[j]) is None:
                met.append((min(i, j) * len(keys) + max(i, j)) * len(_KINDS) + kind)
                left -= 1
                if not left:
                    break


def _cosines(pairs: list[tuple[int, int]], vectors_of: VectorsOf) -> dict[tuple[int, int], float]:
    """Rounded cosines; vectors are kept as float32, only for the places that occur."""
    places = sorted({place for pair in pairs for place in pair})
    if not places:
        return {}
    parts = []
    for start in range(0, len(places), _BATCH):
        part = np.asarray(vectors_of(places[start : start + _BATCH]), dtype=np.float32)
        norms = np.linalg.norm(part, axis=1, keepdims=True)
        parts.append(np.divide(part, norms, out=np.zeros_like(part), where=norms > 0))
    vectors, row = np.concatenate(parts), {place: at for at, place in enumerate(places)}
    return {
        (i, j): round(float(np.dot(vectors[row[i]].astype(float), vectors[row[j]])), COSINE_DIGITS)
        for i, j in pairs
    }
