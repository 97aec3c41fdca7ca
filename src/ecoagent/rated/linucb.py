"""Discounted LinUCB, one linear model per tool (Eq. 6-8 and Algorithm 1 of the paper).

The state of all arms is contiguous: a step gathers the rows of the candidates and works on them as
one block. Nothing here re-regularises A, because the paper's Eq. 7 does not: directions that stop being
seen decay toward zero and their bonus grows. The only deviation is a floor far below any value that
matters, which keeps a long one-sided stream from turning into 0/0.
"""

from __future__ import annotations

import math
import operator
import threading
from pathlib import Path
from typing import Any, Literal, Self, cast, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ecoagent.rated.errors import BanditError
from ecoagent.rated.state import SAVED, read_state, write_state

Covariance = Literal["diagonal", "full"]
ColdStart = Literal["rsqrt", "recip"]
Precision = Literal["float32", "float64"]
Floats = NDArray[np.floating[Any]]

STATE_FORMAT = "ecoagent.rated.linucb"
STATE_VERSION = 1

_RENEWED_SPREAD = 1e3
"""A renewed inverse keeps eigenvalues down to this many rounding units of the largest one."""


class DiscountedLinUCB:
    """A ridge regression per arm, discounted at each of its own updates.

    For the executed arm only (Eq. 7-8): ``A <- gamma A + x x'`` (its diagonal under ``diagonal``) and
    ``b <- gamma b + y x``. The score of an arm (Eq. 6) is ``theta . x + alpha sqrt(x' A^-1 x)`` with
    ``theta = A^-1 b``. Cold start: ``A0 = ridge I``, ``b0 = prior * x0``, where every component of x0 is
    ``1/sqrt(dim)`` (``rsqrt``) or ``1/dim`` (``recip``); ``prior`` is r_static of Eq. 5, none = 0.

    Memory: ``2 dim`` numbers an arm when diagonal, ``2 dim^2 + dim`` when full. Thread-safe: every public
    call holds one lock. Wrong input raises BanditError and leaves the state untouched.
    """

    def __init__(
        self,
        n_arms: int,
        dim: int,
        *,
        alpha: float = 0.1,
        gamma: float = 0.95,
        ridge: float = 1.0,
        covariance: Covariance = "diagonal",
        prior: ArrayLike | None = None,
        x0: ColdStart = "rsqrt",
        dtype: Precision = "float32",
    ) -> None:
        if n_arms < 0 or dim < 1:
            raise BanditError(f"n_arms={n_arms}, dim={dim}: needs n_arms >= 0 and dim >= 1")
        if not (math.isfinite(alpha) and alpha >= 0):
            raise BanditError(f"alpha={alpha}: must be a number >= 0")
        if not 0 < gamma <= 1:
            raise BanditError(f"gamma={gamma}: must be in (0, 1]")
        if not (math.isfinite(ridge) and ridge > 0):
            raise BanditError(f"ridge={ridge}: must be a number > 0")
        for what, value, known in (
            ("covariance", covariance, get_args(Covariance)),
            ("x0", x0, get_args(ColdStart)),
            ("dtype", dtype, get_args(Precision)),
        ):
            if value not in known:
                raise BanditError(f"{what}={value!r}: must be one of {', '.join(known)}")
        self.dim, self.alpha, self.gamma, self.ridge = int(dim), float(alpha), float(gamma), float(ridge)
        self.covariance: Covariance = covariance
        self.x0: ColdStart = x0
        self.dtype: np.dtype[Any] = np.dtype(dtype)
        self._limits = np.finfo(self.dtype)
        self._lock = threading.RLock()
        rows = self._fresh_rows(self._priors(np.zeros(n_arms) if prior is None else prior, n_arms))
        self._A, self._b, self._inverse = rows
        self._pulls = np.zeros(n_arms, dtype=np.int64)

    # -- what a caller may read -------------------------------------------------------------------------

    @property
    def n_arms(self) -> int:
        """Number of arms."""
        return len(self._b)

    @property
    def A(self) -> Floats:  # noqa: N802 - the paper's symbol
        """Read-only view of A: ``(n_arms, dim)`` if diagonal, ``(n_arms, dim, dim)`` if full."""
        return _read_only(self._A)

    @property
    def b(self) -> Floats:
        """Read-only view of b: ``(n_arms, dim)``."""
        return _read_only(self._b)

    @property
    def pulls(self) -> NDArray[np.int64]:
        """Read-only view of the number of updates of each arm: ``(n_arms,)``."""
        view = self._pulls.view()
        view.flags.writeable = False
        return view

    # -- the step ---------------------------------------------------------------------------------------

    def scores(self, x: ArrayLike, arms: ArrayLike) -> Floats:
        """S_bandit (Eq. 6) of the ``k`` arms for context x ``(dim,)``: ``(k,)`` in the state's dtype."""
        mean, width = self.components(x, arms)
        width *= self.alpha
        mean += width
        return mean

    def components(self, x: ArrayLike, arms: ArrayLike) -> tuple[Floats, Floats]:
        """The two parts of Eq. 6 for ``k`` arms: ``theta . x`` and ``sqrt(x' A^-1 x)``, each ``(k,)``."""
        context = self._context(x)
        with self._lock:
            index = self._known(arms)
            if self._inverse is None:
                inverse = np.reciprocal(self._A.take(index, axis=0))
                theta = self._b.take(index, axis=0)
                theta *= inverse
                return theta @ context, np.sqrt(inverse @ (context * context))
            mean = np.empty(len(index), dtype=self.dtype)
            variance = np.empty(len(index), dtype=self.dtype)
            for position, arm in enumerate(index):
                direction = self._inverse[arm] @ context
                mean[position] = self._b[arm] @ direction
                variance[position] = context @ direction
            return mean, np.sqrt(np.maximum(variance, 0))

    def update(self, arm: int, x: ArrayLike, reward: float) -> None:
        """Learn that executing ``arm`` for context x ``(dim,)`` gave ``reward`` in [0, 1] (Eq. 7-8)."""
        context = self._context(x)
        try:
            y, arm = float(reward), operator.index(arm)
        except (TypeError, ValueError) as error:
            raise BanditError(f"arm {arm!r} or reward {reward!r} is not a number: {error}") from error
        if not 0.0 <= y <= 1.0:
            raise BanditError(f"reward {y} is outside [0, 1]")
        with self._lock:
            if not 0 <= arm < self.n_arms:
                raise BanditError(f"arm {arm} is unknown: there are {self.n_arms}, counted from 0")
            row = self._A[arm]
            if self._inverse is None:
                row *= self.gamma
                row += context * context
                # Far below any weight that matters; without it an unseen direction ends as 0/0.
                np.maximum(row, self._limits.tiny, out=row)
            else:
                self._update_inverse(arm, context)
            target = self._b[arm]
            target *= self.gamma
            if y:
                target += context * self.dtype.type(y)
            self._pulls[arm] += 1

    def add_arms(self, priors: ArrayLike) -> range:
        """Append arms with the given r_static ``(m,)`` in [0, 1]; returns their indices."""
        values = self._priors(priors, None)
        with self._lock:
            start = self.n_arms
            A, b, inverse = self._fresh_rows(values)
            self._A, self._b = np.concatenate([self._A, A]), np.concatenate([self._b, b])
            if self._inverse is not None and inverse is not None:
                self._inverse = np.concatenate([self._inverse, inverse])
            self._pulls = np.concatenate([self._pulls, np.zeros(len(values), dtype=np.int64)])
            return range(start, self.n_arms)

    # -- state on disk ----------------------------------------------------------------------------------

    def save(self, path: str | Path) -> None:
        """Write the state to one .npz file, whole or not at all."""
        with self._lock:
            header = {
                "n_arms": self.n_arms,
                "dim": self.dim,
                "alpha": self.alpha,
                "gamma": self.gamma,
                "ridge": self.ridge,
                "covariance": self.covariance,
                "x0": self.x0,
                "dtype": self.dtype.name,
            }
            arrays: dict[str, NDArray[Any]] = {"A": self._A, "b": self._b, "pulls": self._pulls}
            if self._inverse is not None:
                arrays["inverse"] = self._inverse
            write_state(Path(path), STATE_FORMAT, STATE_VERSION, header, arrays)

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Read a state written by ``save``; BanditError if it is damaged or of a newer version."""
        source = Path(path)
        header, arrays = read_state(source, STATE_FORMAT, STATE_VERSION)
        try:
            n_arms, dim = int(header["n_arms"]), int(header["dim"])
            bandit = cls(
                0,
                dim,
                alpha=float(header["alpha"]),
                gamma=float(header["gamma"]),
                ridge=float(header["ridge"]),
                covariance=cast(Covariance, header["covariance"]),
                x0=cast(ColdStart, header["x0"]),
                dtype=cast(Precision, header["dtype"]),
            )
            square = (n_arms, dim, dim)
            full = bandit.covariance == "full"
            expected: dict[str, tuple[tuple[int, ...], np.dtype[Any]]] = {
                "A": (square if full else (n_arms, dim), bandit.dtype),
                "b": ((n_arms, dim), bandit.dtype),
                "pulls": ((n_arms,), np.dtype(np.int64)),
            }
            if full:
                expected["inverse"] = (square, bandit.dtype)
            for name, (shape, kind) in expected.items():
                array = arrays[name]
                if array.shape != shape or array.dtype != kind or not np.isfinite(array).all():
                    raise BanditError(
                        f"state file {source}: array {name} does not fit its header", remedy=SAVED
                    )
        except (KeyError, TypeError) as error:
            raise BanditError(
                f"state file {source}: {error} is missing or malformed", remedy=SAVED
            ) from error
        bandit._A, bandit._b, bandit._pulls = arrays["A"], arrays["b"], arrays["pulls"]
        bandit._inverse = arrays["inverse"] if full else None
        return bandit

    # -- inside -----------------------------------------------------------------------------------------

    def _fresh_rows(self, priors: Floats) -> tuple[Floats, Floats, Floats | None]:
        """A0, b0 and, if full, the inverse of A0 for arms with these priors."""
        n = len(priors)
        component = 1 / math.sqrt(self.dim) if self.x0 == "rsqrt" else 1 / self.dim
        b = np.repeat((priors * component).astype(self.dtype)[:, None], self.dim, axis=1)
        if self.covariance == "diagonal":
            return np.full((n, self.dim), self.ridge, dtype=self.dtype), b, None
        eye = np.eye(self.dim, dtype=self.dtype)
        return np.tile(eye * self.ridge, (n, 1, 1)), b, np.tile(eye / self.ridge, (n, 1, 1))

    def _update_inverse(self, arm: int, x: Floats) -> None:
        """Eq. 7 with a full A and its inverse by Sherman and Morrison, renewed when precision runs out."""
        inverse = cast(Floats, self._inverse)
        A, inv = self._A[arm], inverse[arm]
        A *= self.gamma
        A += np.outer(x, x)
        direction = inv @ x
        inv -= np.outer(direction, direction / (self.gamma + x @ direction))
        inv /= self.gamma
        # Discounting without re-regularisation makes A singular in unseen directions: once the spread of
        # eigenvalues passes what the dtype resolves, the small ones are noise and are floored.
        spread = float(inv.diagonal().max()) * float(A.diagonal().max())
        if not spread * float(self._limits.eps) < 1 or inv.diagonal().min() <= 0:
            values, vectors = np.linalg.eigh(A.astype(np.float64))
            floor = float(values[-1]) * float(self._limits.eps) * _RENEWED_SPREAD
            inv[...] = (vectors / np.maximum(values, floor)) @ vectors.T

    def _context(self, x: ArrayLike) -> Floats:
        """x as a vector of the state's dtype; BanditError on a wrong shape or a value that is not finite."""
        try:
            context = np.asarray(x, dtype=self.dtype)
        except (TypeError, ValueError) as error:
            raise BanditError(f"context is not a vector of numbers: {error}") from error
        if context.shape != (self.dim,):
            raise BanditError(f"context has shape {context.shape}, expected ({self.dim},)")
        # One product finds NaN and infinity, and values whose squares overflow the dtype.
        if not math.isfinite(context @ context):
            raise BanditError("context holds NaN, infinity or values too large for the dtype")
        return context

    def _known(self, arms: ArrayLike) -> NDArray[np.int64]:
        """Arms as indices; BanditError if one is not an arm."""
        index = np.asarray(arms)
        if index.ndim != 1 or (index.dtype.kind not in "iu" and index.size):
            raise BanditError("arms must be a one-dimensional sequence of integers")
        index = np.ascontiguousarray(index, dtype=np.int64)
        # Seen as unsigned, a negative index is larger than any arm: one comparison checks both ends.
        if index.size and np.maximum.reduce(index.view(np.uint64)) >= self.n_arms:
            unknown = index[(index < 0) | (index >= self.n_arms)][0]
            raise BanditError(f"arm {unknown} is unknown: there are {self.n_arms}, counted from 0")
        return index

    @staticmethod
    def _priors(priors: ArrayLike, expected: int | None) -> Floats:
        """Priors as float64 ``(n,)``; BanditError on a wrong count or a value outside [0, 1]."""
        values = np.asarray(priors, dtype=np.float64)
        if values.ndim != 1 or (expected is not None and len(values) != expected):
            wanted = "one value per arm" if expected is None else f"({expected},)"
            raise BanditError(f"prior has shape {values.shape}, expected {wanted}")
        if not ((values >= 0) & (values <= 1)).all():
            raise BanditError("a prior is NaN or outside [0, 1]")
        return values


def _read_only(array: Floats) -> Floats:
    view = array.view()
    view.flags.writeable = False
    return view
