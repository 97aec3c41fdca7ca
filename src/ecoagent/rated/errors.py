"""Errors of the bandit and the policies."""

from __future__ import annotations

from ecoagent.settings import UserError


class BanditError(UserError, ValueError):
    """A call with values the bandit cannot use (wrong shape, NaN, unknown arm, reward out of range).

    Raised before any state changes.
    """
