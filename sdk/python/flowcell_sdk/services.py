"""Services that the operator offers to flows by name, such as `img` and `agent`.

The flow grants names: `grants: { services: ["img", "agent"] }`.
"""

from collections.abc import Sequence
from typing import Any, Literal, TypedDict

from wit_world.imports import services

from .failure import called
from .json import text
from .queue import ended


class Refusal(TypedDict):
    """The reason why a service failed: `raise Failure.of(answer["error"])` passes it on."""

    #: `denied`, `service_not_found`, or the code of the failure.
    code: str
    message: str


class Answer(TypedDict, total=False):
    """The answer of a service: its `result` if `ok` is true, else its `error`."""

    kind: Literal["flow-service-response"]
    callId: str
    ok: bool
    result: Any
    error: Refusal


def start_call(service: str, args: Sequence[Any] = (), *, call_id: str | None = None) -> int:
    """Calls a service without waiting; `queue.next` returns its `Answer`.

    The answer repeats the `call_id`, by default the name of the service.
    """
    call = {"kind": "flow-service-call", "callId": service if call_id is None else call_id}
    with called():
        return services.start_call(text(call | {"service": service, "args": list(args)}))


async def call_async(service: str, args: Sequence[Any] = ()) -> Answer:
    """Calls a service and awaits its answer."""
    return await ended(start_call(service, args))
