"""The event loop of `asyncio` over the events of the host, which records their order: a repeated attempt gets the same."""

import asyncio
from collections.abc import Coroutine
from contextlib import suppress
from math import ceil
from typing import Any, NoReturn

from . import queue
from .failure import Failure

#: The number of turns without a pause after which the loop looks for an event. Else a coroutine that only repeats
#: `await asyncio.sleep(0)` would keep calls from ending.
_TURNS_WITHOUT_EVENTS = 100


def run(main: Coroutine[Any, Any, Any]) -> Any:
    """Runs a coroutine to its end and cancels the tasks that it leaves behind, as `asyncio.run` does."""
    loop = Loop()
    try:
        return loop.run_until_complete(main)
    finally:
        # A task that goes on awaiting what never comes is left.
        with suppress(Failure):
            _cancel_tasks(loop)
        loop.close()


def _cancel_tasks(loop: "Loop") -> None:
    tasks = asyncio.all_tasks(loop)
    for task in tasks:
        task.cancel()
    if tasks:
        loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))
    loop.run_until_complete(loop.shutdown_asyncgens())


class Loop(asyncio.BaseEventLoop):
    """An event loop that waits for events of the host only."""

    def __init__(self) -> None:
        super().__init__()
        self._selector = self
        self._waited_until = 0.0
        self._turns = 0

    def time(self) -> float:
        """Returns the time of the last event, in seconds. A wait moves it on, also if the clock stands still."""
        return max(super().time(), self._waited_until)

    def select(self, timeout: float | None) -> list[queue.Event]:
        """Waits for an event."""
        if timeout is not None and timeout <= 0:
            self._turns += 1
            if self._turns % _TURNS_WITHOUT_EVENTS or not queue.is_awaited():
                return []
        milliseconds = None if timeout is None else max(1, ceil(timeout * 1000))
        until = self.time() + (timeout or 0)
        event = queue.take(milliseconds)
        if event is not None:
            return [event]
        if timeout is None:
            raise Failure(
                "node_failed",
                "the function awaits something that never comes: no call is in progress, and no timer is set",
            )
        self._waited_until = until
        return []

    def _process_events(self, events: list[queue.Event]) -> None:
        for event in events:
            queue.deliver(event)

    def _write_to_self(self) -> None:
        """Does nothing: no other thread can wake the loop."""

    def run_in_executor(self, executor: Any, function: Any, *arguments: Any) -> NoReturn:
        """Raises: the sandbox has no threads."""
        raise NotImplementedError("the sandbox has no threads: call the function without an executor and `to_thread`")
