"""Services that the operator gives flows under a name, such as `img` and `agent`.

The flow grants which: `grants: { services: ["img", "agent"] }`.
"""

from collections.abc import Sequence
from typing import Any, Literal, TypedDict

from wit_world.imports import services

from .failure import called
from .json import text


class Refusal(TypedDict):
    """Why a service has not done what it was asked for: `raise Failure.of(answer["error"])` hands it on."""

    #: `denied`, `service_not_found`, or the code of what has failed.
    code: str
    message: str


class Answer(TypedDict, total=False):
    """What a service has answered: its `result` if it is `ok`, else the `error`."""

    kind: Literal["flow-service-response"]
    callId: str
    ok: bool
    result: Any
    error: Refusal


def start_call(service: str, args: Sequence[Any] = (), *, call_id: str | None = None) -> int:
    """Calls a service and goes on; `queue.next` hands its `Answer` over.

    The answer has the `call_id`, which is the service's name without one.
    """
    call = {"kind": "flow-service-call", "callId": service if call_id is None else call_id}
    with called():
        return services.start_call(text(call | {"service": service, "args": list(args)}))
