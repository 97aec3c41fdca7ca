"""Runs a policy over a recorded stream while tools fail.

A scenario says when which tool is up; the policy never sees that, only the outcome of what it executes
(reading A of the feedback bit: 1 = the executed tool was up).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from ecoagent.evaluation.stream import FailureRule, Stream, failing_tools
from ecoagent.rated import Policy
from ecoagent.settings import UserError

Flags = NDArray[np.bool_]


class Availability(Protocol):
    """The state of the world of one run."""

    def up(self, step: int, arm: int) -> bool:
        """Whether executing ``arm`` at ``step`` (from 1) succeeds.

        A function of its arguments alone: policies that execute different tools, or several in a step,
        must meet the same outages, so randomness has to be drawn beforehand or derived from both.
        """
        ...


class Scenario(Protocol):
    """Declaration of a kind of failure."""

    @property
    def name(self) -> str:
        """Name in tables."""
        ...

    @property
    def onset(self) -> int:
        """Last step before the failures."""
        ...

    def start(self, stream: Stream, seed: int) -> Availability:
        """The world for one stream; equal arguments give equal worlds."""
        ...


@dataclass(frozen=True)
class FixedOutage:
    """Tools that are down from the step after ``onset`` to the end."""

    onset: int
    down: frozenset[int]

    def up(self, step: int, arm: int) -> bool:
        """Down only after onset, and only the failing tools."""
        return step <= self.onset or arm not in self.down


@dataclass(frozen=True)
class PermanentOutage:
    """The paper's scenario: frequent golds, the most frequent excepted, fail for good (Section 4.2)."""

    rate: float
    onset: int = 2_000
    skip: float = 0.10
    rule: FailureRule = "paper"
    name: str = "permanent"

    def start(self, stream: Stream, seed: int) -> FixedOutage:
        """The failing set depends on the stream alone; the seed is not used."""
        failing = failing_tools(stream.gold_counts, self.rate, self.skip, rule=self.rule)
        return FixedOutage(self.onset, frozenset(stream.source.arm_of[tool] for tool in failing))


@dataclass(frozen=True)
class SimulationLog:
    """What happened at each step; arrays are ``(T,)``.

    ``arm``, ``correct`` and ``up`` are of the last execution of a step, ``first_up`` of the first. They
    agree for a policy that executes once.
    """

    arm: NDArray[np.int32]
    correct: Flags
    up: Flags
    first_up: Flags
    executions: NDArray[np.int8]

    @property
    def success(self) -> Flags:
        """The step ended with a right tool that was up."""
        return self.correct & self.up

    @property
    def fault(self) -> Flags:
        """The first execution of the step met a tool that was down."""
        return ~self.first_up

    def __len__(self) -> int:
        return len(self.arm)


def simulate(policy: Policy, stream: Stream, scenario: Scenario, seed: int = 0) -> SimulationLog:
    """Run ``policy`` (its state changes) over ``stream`` under ``scenario``.

    Within a step the policy's order is followed until an execution succeeds. The policy learns from each
    execution whether the tool was up, and nothing about tools that it did not execute.

    Raises UserError if the policy returns no arm, one that is no candidate of the step, one twice or
    more than it declares.
    """
    steps = len(stream)
    arms: list[int] = [0] * steps
    correct, up, first_up = bytearray(steps), bytearray(steps), bytearray(steps)
    executions = bytearray(steps)
    status = scenario.start(stream, seed).up
    choose, update, limit = policy.choose, policy.update, policy.executions
    for at, query in enumerate(stream):
        step, gold_among = at + 1, query.gold_among
        order = choose(step, query.x, query.candidates, query.semantic, query.static)
        if not 1 <= len(order) <= limit or (len(order) > 1 and len(set(order)) != len(order)):
            raise UserError(f"step {step}: policy chose {list(order)}; needs 1 to {limit} different arms")
        for count, arm in enumerate(order, start=1):
            if arm not in gold_among:
                raise UserError(f"step {step}: policy executed arm {arm}, which is no candidate")
            alive = status(step, arm)
            update(step, query.x, arm, 1.0 if alive else 0.0)
            if count == 1:
                first_up[at] = alive
            arms[at], correct[at], up[at], executions[at] = arm, gold_among[arm], alive, count
            if alive:
                break
    return SimulationLog(
        np.array(arms, dtype=np.int32),
        _flags(correct),
        _flags(up),
        _flags(first_up),
        np.frombuffer(executions, dtype=np.int8).copy(),
    )


def binned(values: NDArray[Any], width: int) -> Sequence[float]:
    """Means of successive bins of ``width`` entries; a last, shorter bin is a mean of what it has."""
    edges = np.arange(0, len(values), width)
    sums = np.add.reduceat(values.astype(np.float64), edges)
    means: list[float] = (sums / np.diff(np.append(edges, len(values)))).tolist()
    return means


def _flags(values: bytearray) -> Flags:
    return np.frombuffer(values, dtype=np.bool_).copy()
