"""A pool of threads that does not hold up the end of the process."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from queue import SimpleQueue
from typing import Generic, TypeVar

from ecoagent.settings import UserError

A = TypeVar("A")
R = TypeVar("R")


class Workers(Generic[A, R]):
    """Runs one function over arguments on ``count`` threads, first come first served.

    Unlike ``ThreadPoolExecutor``'s, the threads are daemons: an interrupted program ends at once
    instead of waiting for requests in flight.
    """

    def __init__(self, function: Callable[[A], R], count: int) -> None:
        self._function = function
        self._queue: SimpleQueue[tuple[Future[R], A] | None] = SimpleQueue()
        self._threads = [threading.Thread(target=self._work, name="llm", daemon=True) for _ in range(count)]
        for thread in self._threads:
            thread.start()

    def submit(self, argument: A) -> Future[R]:
        """Queue one call. Its future raises the ``UserError`` the function raised, if it did."""
        future: Future[R] = Future()
        self._queue.put((future, argument))
        return future

    def close(self) -> None:
        """End the threads once their queue is empty; does not wait."""
        for _ in self._threads:
            self._queue.put(None)

    def _work(self) -> None:
        while (item := self._queue.get()) is not None:
            future, argument = item
            if not future.set_running_or_notify_cancel():
                continue
            try:
                future.set_result(self._function(argument))
            except UserError as error:
                future.set_exception(error)
            finally:
                if not future.done():
                    # A defect: the thread ends with its traceback, and the caller must not wait.
                    future.set_exception(RuntimeError("a worker thread failed, see its traceback"))
