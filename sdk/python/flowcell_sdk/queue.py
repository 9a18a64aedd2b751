"""What arrives while a task runs: the ends of calls that it has started, and messages to its agent runs."""

from dataclasses import dataclass
from typing import Any

from componentize_py_types import Ok
from wit_world.imports import queue

from .failure import Failure, of_host
from .json import parsed


@dataclass(frozen=True)
class Ended:
    """A call has ended, well or not."""

    call: int
    #: What came, unless it failed.
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
    """Nobody writes to this agent run any more: it is to finish."""

    agent_run: str


Event = Ended | Message | Closing


def next(timeout_ms: int | None = None) -> Event | None:
    """Waits for the next event. None: the time is up, or no time was given and nothing can arrive any more."""
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
