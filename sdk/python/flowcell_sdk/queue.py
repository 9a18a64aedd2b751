"""Events that arrive while a task runs: the ends of its calls, and messages to its agent runs."""

from dataclasses import dataclass
from typing import Any

from componentize_py_types import Ok
from wit_world.imports import queue

from .failure import Failure, of_host
from .json import parsed


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


def next(timeout_ms: int | None = None) -> Event | None:
    """Waits for the next event. Returns None if the time is up, or if no event can arrive and no time was given."""
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
