"""Pairs of tools labelled by hand, and how well verdicts agree with them.

``data/duplicate_pairs.csv`` holds ids, labels and measured values, no text of any catalog. Its
columns: ``same`` is the label by the definition in ``duplicates``; ``kind`` says why the pair was
looked at (``trap`` named beforehand, ``cross_source`` two packages, ``within`` one package,
``random``, ``found`` shown by an early version of the rules, and judged afterwards); ``fold`` is
``dev`` or ``test``, by the parity of the SHA-256 of both ids joined by a line feed, and ``dev`` for
pairs found; ``cosine``, ``rule`` and ``found`` are what the rules said when the file was written.
The artifacts are those of ``data/duplicate_pairs.lock.json``.
"""

from __future__ import annotations

import csv
from collections.abc import Iterable
from dataclasses import dataclass
from importlib import resources


@dataclass(frozen=True)
class LabelledPair:
    """A pair and its label; fields as the file's columns."""

    tool_id: str
    other_id: str
    same: bool
    kind: str
    fold: str
    cosine: float
    rule: str
    found: bool
    why: str


@dataclass(frozen=True)
class Agreement:
    """Right and wrong verdicts: true positives, false positives, false negatives, true negatives."""

    tp: int
    fp: int
    fn: int
    tn: int

    @property
    def precision(self) -> float:
        """Share of pairs found that are the same; 1 if none is found."""
        return self.tp / (self.tp + self.fp) if self.tp + self.fp else 1.0

    @property
    def recall(self) -> float:
        """Share of pairs that are the same that are found; 1 if there are none."""
        return self.tp / (self.tp + self.fn) if self.tp + self.fn else 1.0

    @property
    def f1(self) -> float:
        """Harmonic mean of both; 0 if both are 0."""
        total = self.precision + self.recall
        return 2 * self.precision * self.recall / total if total else 0.0


def load_labelled_pairs() -> list[LabelledPair]:
    """The committed pairs, sorted by ids."""
    text = resources.files("ecoagent.reliability").joinpath("data/duplicate_pairs.csv").read_text("utf-8")
    return [
        LabelledPair(
            row["tool_id"],
            row["other_id"],
            row["same"] == "yes",
            row["kind"],
            row["fold"],
            float(row["cosine"]),
            row["rule"],
            row["found"] == "yes",
            row["why"],
        )
        for row in csv.DictReader(text.splitlines())
    ]


def agreement(verdicts: Iterable[tuple[bool, bool]]) -> Agreement:
    """Counts of (found, label) pairs."""
    listed = list(verdicts)
    return Agreement(
        *(listed.count(case) for case in ((True, True), (True, False), (False, True), (False, False)))
    )
