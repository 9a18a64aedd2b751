"""Outbound HTTP. The flow grants origins, with optional path prefixes: `grants: { http: ["https://api.example.com"] }`.

A status of 400 and above is an answer, not a failure.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from wit_world.imports import http

from .answer import Answer, Event as Event
from .failure import called
from .file import read_text
from .json import parsed, text as json_text
from .queue import ended
from .values import MAX_U32, data as checked_data, text as plain, whole, whole_if_given


@dataclass(frozen=True)
class Request:
    """A request. At most one of `json`, `text`, `data` and `file` is its body."""

    url: str
    method: str = "GET"
    headers: Mapping[str, str] = field(default_factory=dict)
    json: Any = None
    text: str | None = None
    data: bytes | None = None
    #: A file value.
    file: Any = None
    #: Milliseconds from the beginning of the call to the end of the answer. Default: 30 seconds.
    timeout_ms: int | None = None

    def to_host(self) -> http.Request:
        """Converts the request into the host's form."""
        typed = {} if self.json is None else {"content-type": "application/json"}
        headers = [(plain(name, "headers"), plain(value, name)) for name, value in {**typed, **self.headers}.items()]
        timeout_ms = _time(self.timeout_ms, "timeout_ms")
        return http.Request(plain(self.method, "method"), plain(self.url, "url"), headers, self._body(), timeout_ms)

    def _body(self) -> http.Content:
        if self.json is not None:
            return http.Content_Text(json_text(self.json, "the member `json` of the request"))
        if self.text is not None:
            return http.Content_Text(plain(self.text, "text"))
        if self.data is not None:
            return http.Content_Bytes(checked_data(self.data, "data"))
        if self.file is not None:
            return http.Content_File(json_text(self.file))
        return http.Content_Empty()


@dataclass(frozen=True)
class Response:
    """An answer. At most one of `text`, `data` and `file` is its body."""

    status: int
    #: Names in lower case, with their values.
    headers: list[tuple[str, str]]
    text: str | None = None
    data: bytes | None = None
    #: A file value, for content that is too large for the sandbox.
    file: Any = None

    def json(self) -> Any:
        """Parses the body as JSON. Reads it from its file if it is one."""
        if self.file is not None:
            return parsed(read_text(self.file))
        return parsed(self.text if self.text is not None else (self.data or b"").decode())


def send(request: Request) -> Response:
    """Sends a request and waits for the answer."""
    with called():
        return _response(http.send(request.to_host()))


def open(request: Request, *, idle_ms: int | None = None, total_ms: int | None = None) -> Answer:
    """Sends a request, and returns when the head of its answer has arrived: `for event in http.open(request).events()`.

    `timeout_ms` of the request is the time until then. `idle_ms` is the longest time without a byte while the node waits for
    a chunk, 60 seconds by default, and `total_ms` the one until the end, 10 minutes by default.
    """
    times = http.StreamTimes(_time(idle_ms, "idle_ms"), _time(total_ms, "total_ms"))
    with called():
        return Answer(http.open_stream(request.to_host(), times))


def start_send(request: Request) -> int:
    """Sends a request without waiting; `queue.next` reports the end of the call."""
    with called():
        return http.start_send(request.to_host())


async def send_async(request: Request) -> Response:
    """Sends a request and awaits the answer."""
    call = start_send(request)
    await ended(call)
    return take_response(call)


def take_response(call: int) -> Response:
    """Takes the answer of a call after `queue.next` has reported its success. Works once for each call."""
    with called():
        return _response(http.take_response(whole(call, "call", MAX_U32)))


def keep(data: bytes, mime: str) -> Any:
    """Stores bytes as a file of this media type and returns the file value."""
    with called():
        return parsed(http.keep(checked_data(data, "data"), plain(mime, "mime")))


def _time(value: Any, name: str) -> int | None:
    return whole_if_given(value, name, MAX_U32)


def _response(response: http.Response) -> Response:
    match response.body:
        case http.Content_Text(text):
            return Response(response.status, response.headers, text=text)
        case http.Content_Bytes(data):
            return Response(response.status, response.headers, data=data)
        case http.Content_File(file):
            return Response(response.status, response.headers, file=parsed(file))
    return Response(response.status, response.headers)
