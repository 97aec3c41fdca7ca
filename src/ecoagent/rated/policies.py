"""Selection policies on one interface: which of a step's candidates to execute, and what to learn.

Each policy is a small class and one declaration in ``POLICIES``. Candidates come best first (semantic
score down, tool id up), so the lowest position wins a tie everywhere.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from ecoagent.rated.errors import BanditError
from ecoagent.rated.fusion import FUSION_WEIGHTS, fuse
from ecoagent.rated.linucb import DiscountedLinUCB, Precision

Floats = NDArray[np.floating[Any]]
Arms = NDArray[np.int64]


class Policy(Protocol):
    """What the simulator, and an agent's loop, asks of a policy."""

    @property
    def executions(self) -> int:
        """Largest number of executions in one step."""
        ...

    def choose(
        self, step: int, x: Floats, candidates: Arms, semantic: Floats, static: Floats
    ) -> Sequence[int]:
        """Arms to execute at this step, in order, at most ``executions``.

        The caller executes the first and goes on to the next only after a failure. ``step`` counts from
        1; ``x`` is the query's embedding ``(d,)``; ``candidates``, ``semantic`` (S_sem) and ``static``
        (r_static) are ``(k,)``, best first. Arrays are shared and must not be changed.
        """
        ...

    def update(self, step: int, x: Floats, arm: int, reward: float) -> None:
        """Feedback on one execution: ``reward`` in [0, 1]. Called once for each executed arm, no other."""
        ...


@dataclass(frozen=True)
class PolicyContext:
    """What a policy may be built from; the defaults are the paper's (Section 4.1)."""

    prior: Floats
    """r_static of every arm, ``(n_arms,)``."""
    dim: int
    """Length of a context."""
    alpha: float = 0.1
    gamma: float = 0.95
    fusion: tuple[float, float, float] = FUSION_WEIGHTS
    retry: int = 3
    dtype: Precision = "float32"

    @property
    def n_arms(self) -> int:
        """Number of arms."""
        return len(self.prior)


@dataclass(frozen=True)
class PolicySpec:
    """Declaration of a policy: its name in settings and tables, and how a fresh one is made."""

    name: str
    label: str
    about: str
    build: Callable[[PolicyContext], Policy]


class StaticPolicy:
    """Executes the semantic ranker's first candidate and learns nothing."""

    executions = 1

    def choose(
        self, step: int, x: Floats, candidates: Arms, semantic: Floats, static: Floats
    ) -> Sequence[int]:
        """The first candidate."""
        return (int(candidates[0]),)

    def update(self, step: int, x: Floats, arm: int, reward: float) -> None:
        """Nothing is learned."""


class RetryPolicy:
    """Tries up to k candidates in order within a step and keeps no memory (paper, Section 4.3)."""

    def __init__(self, k: int) -> None:
        if k < 1:
            raise BanditError(f"retry k={k}: must be at least 1")
        self.executions = k

    def choose(
        self, step: int, x: Floats, candidates: Arms, semantic: Floats, static: Floats
    ) -> Sequence[int]:
        """The first k candidates."""
        order: list[int] = candidates[: self.executions].tolist()
        return order

    def update(self, step: int, x: Floats, arm: int, reward: float) -> None:
        """Nothing is learned."""


class BlacklistPolicy:
    """Excludes a tool for good after its first failure; ranks by the semantic score (Section 4.3)."""

    executions = 1

    def __init__(self, n_arms: int) -> None:
        self.excluded = np.zeros(n_arms, dtype=np.bool_)

    def choose(
        self, step: int, x: Floats, candidates: Arms, semantic: Floats, static: Floats
    ) -> Sequence[int]:
        """The first candidate that never failed; the first of all if each has failed."""
        return (int(candidates[self.excluded[candidates].argmin()]),)

    def update(self, step: int, x: Floats, arm: int, reward: float) -> None:
        """A reward of zero excludes the arm."""
        if reward <= 0:
            self.excluded[arm] = True


class RatedPolicy:
    """RATED: argmax of Eq. 9 with discounted LinUCB over the query's embedding (Algorithm 1)."""

    executions = 1

    def __init__(self, bandit: DiscountedLinUCB, weights: tuple[float, float, float]) -> None:
        self.bandit, self.weights = bandit, weights

    def choose(
        self, step: int, x: Floats, candidates: Arms, semantic: Floats, static: Floats
    ) -> Sequence[int]:
        """The candidate with the largest S_final."""
        final = fuse(semantic, self.bandit.scores(x, candidates), static, self.weights)
        return (int(candidates[final.argmax()]),)

    def update(self, step: int, x: Floats, arm: int, reward: float) -> None:
        """Eq. 7-8 for the executed arm."""
        self.bandit.update(arm, x, reward)


class GlobalMabPolicy(RatedPolicy):
    """RATED with Global MAB: Algorithm 1 with the context x = 1, one statistic an arm."""

    def __init__(self, bandit: DiscountedLinUCB, weights: tuple[float, float, float]) -> None:
        if bandit.dim != 1:
            raise BanditError(f"Global MAB needs a bandit of dimension 1, got {bandit.dim}")
        super().__init__(bandit, weights)
        self._one = np.ones(1, dtype=bandit.dtype)

    def choose(
        self, step: int, x: Floats, candidates: Arms, semantic: Floats, static: Floats
    ) -> Sequence[int]:
        """The candidate with the largest S_final, whatever the query."""
        return super().choose(step, self._one, candidates, semantic, static)

    def update(self, step: int, x: Floats, arm: int, reward: float) -> None:
        """Eq. 7-8 with x = 1 for the executed arm."""
        super().update(step, self._one, arm, reward)


def _bandit(context: PolicyContext, dim: int) -> DiscountedLinUCB:
    return DiscountedLinUCB(
        context.n_arms,
        dim,
        alpha=context.alpha,
        gamma=context.gamma,
        prior=context.prior,
        dtype=context.dtype,
    )


POLICIES: dict[str, PolicySpec] = {
    spec.name: spec
    for spec in (
        PolicySpec(
            "static",
            "Static ranker",
            "the semantic ranker's first candidate, no feedback",
            lambda context: StaticPolicy(),
        ),
        PolicySpec(
            "blacklist",
            "Health-check Blacklist",
            "the first failure excludes a tool for good",
            lambda context: BlacklistPolicy(context.n_arms),
        ),
        PolicySpec(
            "retry",
            "Retry",
            "up to k candidates in order within a step, no memory",
            lambda context: RetryPolicy(context.retry),
        ),
        PolicySpec(
            "global_mab",
            "RATED w/ Global MAB",
            "Algorithm 1 with x = 1 per arm",
            lambda context: GlobalMabPolicy(_bandit(context, 1), context.fusion),
        ),
        PolicySpec(
            "rated",
            "RATED",
            "Algorithm 1, diagonal covariance",
            lambda context: RatedPolicy(_bandit(context, context.dim), context.fusion),
        ),
    )
}
"""Every policy by its name in settings."""


def policy_spec(name: str) -> PolicySpec:
    """The declaration of a policy; BanditError names the known ones if there is none."""
    try:
        return POLICIES[name]
    except KeyError:
        raise BanditError(f"unknown policy {name!r}", remedy=f"one of {', '.join(POLICIES)}") from None
