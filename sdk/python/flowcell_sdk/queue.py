"""Events that arrive while a task runs: the ends of its calls, and messages to its agent runs.

In an `async def` function, await `ended` and `received`; `next` does not let other coroutines run while it waits.
"""

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from componentize_py_types import Ok
from wit_world.imports import queue

from .failure import Failure, of_host
from .json import parsed
from .values import MAX_U32, whole_if_given

if TYPE_CHECKING:
    from asyncio import Future


@dataclass(frozen=True)
class Ended:
    """A call has ended, with a value or a failure."""

    call: int
    #: The result, unless the call failed.
    value: Any = None
    failure: Failure | None = None


@dataclass(frozen=True)
class Message:
    """A message to an agent run."""

    agent_run: str
    id: str
    value: Any


@dataclass(frozen=True)
class Closing:
    """This agent run gets no more messages and has to finish."""

    agent_run: str


Event = Ended | Message | Closing

#: The futures of calls whose end was awaited, by call.
_calls: "dict[int, Future[Any]]" = {}
#: The futures that wait for the next event that is not the end of an awaited call.
_receivers: "list[Future[Event]]" = []
#: Events that arrived and that no future waited for.
_events: list[Event] = []


def next(timeout_ms: int | None = None) -> Event | None:
    """Waits for the next event that is not the end of an awaited call.

    Returns None if the time is up, or if no event can arrive and no time was given.
    """
    whole_if_given(timeout_ms, "timeout_ms", MAX_U32)
    if _events:
        return _events.pop(0)
    end = None if timeout_ms is None else _now_ms() + timeout_ms
    while True:
        event = take(timeout_ms if end is None else min(max(0, end - _now_ms()), MAX_U32))
        if event is None or not _settle(event):
            return event


async def ended(call: int) -> Any:
    """Waits for the end of a call that was started. Returns its value, or raises its failure. `next` does not return this end."""
    import asyncio

    future = _calls.get(call)
    if future is None:
        future = _calls[call] = asyncio.get_running_loop().create_future()
        # The failure of a call that its function no longer waits for is not an error.
        future.add_done_callback(lambda future: future.cancelled() or future.exception())
        for event in _events:
            if isinstance(event, Ended) and event.call == call:
                _events.remove(event)
                _settle(event)
                break
    return await asyncio.shield(future)


async def received() -> Event:
    """Waits for the next event as `next` does, while other coroutines run."""
    import asyncio

    if _events:
        return _events.pop(0)
    future = asyncio.get_running_loop().create_future()
    _receivers.append(future)
    return await future


def take(timeout_ms: int | None) -> Event | None:
    """Takes the next event of the host."""
    match queue.next_event(timeout_ms):
        case None:
            return None
        case queue.Event_CallResult(result):
            outcome = result.outcome
            if isinstance(outcome, Ok):
                return Ended(result.id, parsed(outcome.value))
            return Ended(result.id, failure=of_host(outcome.value))
        case queue.Event_Message(message):
            return Message(message.agent_run, message.id, parsed(message.value))
        case queue.Event_Closing(agent_run):
            return Closing(agent_run)


def deliver(event: Event) -> None:
    """Hands an event to the future that waits for it, or keeps it."""
    if _settle(event):
        return
    while _receivers:
        receiver = _receivers.pop(0)
        if not receiver.done():
            receiver.set_result(event)
            return
    _events.append(event)


def is_awaited() -> bool:
    """Returns whether a future waits for an event."""
    return any(not future.done() for future in [*_calls.values(), *_receivers])


def _settle(event: Event) -> bool:
    future = _calls.get(event.call) if isinstance(event, Ended) else None
    if future is None or future.done():
        return False
    if event.failure is None:
        future.set_result(event.value)
    else:
        future.set_exception(event.failure)
    return True


def _now_ms() -> int:
    return time.monotonic_ns() // 1_000_000
