"""Errors that end a command, with the exit code each stands for."""

from __future__ import annotations


class UserError(Exception):
    """Bad input or a missing requirement (exit code 2). Says what, where and the remedy."""

    exit_code = 2

    def __init__(self, message: str, *, remedy: str | None = None) -> None:
        self.message, self.remedy = message, remedy
        super().__init__(f"{message}; remedy: {remedy}" if remedy else message)

    def __reduce__(self) -> tuple[object, ...]:
        return (_rebuild, (type(self), self.message, self.remedy))


class MissingInputError(UserError):
    """A stage needs what an earlier stage has not made yet."""


class GateError(UserError):
    """A quality gate was not passed (exit code 1)."""

    exit_code = 1


def _rebuild(cls: type[UserError], message: str, remedy: str | None) -> UserError:
    return cls(message, remedy=remedy)
