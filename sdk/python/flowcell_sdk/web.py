"""`http.client`, and so `urllib.request`, over the capability `http`; also the package `requests`, if the pack imports it.

`pack` installs this in packs that import `http.client`. A request goes to the host as a whole, and so does its answer. The
host makes the connection, so there are no sockets, certificates and proxies.
"""

import http.client
import io
import socket
import sys
from typing import Any
from urllib.parse import urlsplit

from . import file, http as capability
from .failure import Failure

#: Headers that `http.client` sets, and that the host sets by itself.
_OF_THE_HOST = {"connection", "content-length", "host", "keep-alive"}
#: Failures of the network, which callers expect as an `OSError`. Other failures, such as `denied`, stay what they are.
_NETWORK = {"http_connect", "http_protocol", "http_tls"}


class HTTPSConnection(http.client.HTTPConnection):
    """A connection with TLS, which the host makes."""

    default_port = http.client.HTTPS_PORT


def install() -> None:
    """Sends the requests of the modules that the pack has imported through the host."""
    http.client.HTTPConnection.connect = _connect  # type: ignore[method-assign]
    request_whole = http.client.HTTPConnection.request

    def send_now(self: http.client.HTTPConnection, *arguments: Any, **named: Any) -> None:
        request_whole(self, *arguments, **named)
        # Here callers expect that the server cannot be reached.
        self.sock.send_request()

    http.client.HTTPConnection.request = send_now  # type: ignore[method-assign]
    http.client.HTTPSConnection = HTTPSConnection  # type: ignore[misc]
    if (request := sys.modules.get("urllib.request")) is not None:

        class HTTPSHandler(request.AbstractHTTPHandler):  # type: ignore[name-defined, misc]
            def https_open(self, asked: Any) -> Any:
                return self.do_open(HTTPSConnection, asked)

            https_request = request.AbstractHTTPHandler.do_request_

        request.HTTPSHandler = HTTPSHandler
    if (adapters := sys.modules.get("requests.adapters")) is not None:
        adapters.HTTPAdapter.send = _send_of_requests


def _connect(self: http.client.HTTPConnection) -> None:
    scheme = "https" if isinstance(self, HTTPSConnection) else "http"
    host = f"[{self.host}]" if ":" in self.host else self.host
    if self._tunnel_host:  # type: ignore[attr-defined]
        raise NotImplementedError("http.client: the host makes connections, so `set_tunnel` has no effect")
    port = "" if self.port == self.default_port else f":{self.port}"
    self.sock = _Exchange(f"{scheme}://{host}{port}", self.timeout)  # type: ignore[assignment]


class _Exchange:
    """The socket of a connection: keeps the request, sends it when the answer is read, and shows the answer as bytes."""

    def __init__(self, origin: str, timeout: Any) -> None:
        self._origin = origin
        self._sent = bytearray()
        self._answer: _Answer | None = None
        self.settimeout(timeout)

    def sendall(self, data: Any) -> None:
        self._sent += data

    def send_request(self) -> None:
        """Sends what was written as a request, and keeps its answer."""
        request, self._sent = _request(self._origin, bytes(self._sent), self._timeout_ms), bytearray()
        try:
            response = capability.send(request)
        except Failure as failure:
            if failure.code == "http_timeout":
                raise TimeoutError(failure.message) from failure
            if failure.code in _NETWORK:
                raise ConnectionError(failure.message) from failure
            raise
        self._answer = _Answer(response, request.method)

    def makefile(self, *_: Any, **__: Any) -> io.BufferedIOBase:
        if self._answer is None:
            self.send_request()
        answer, self._answer = self._answer, None
        return io.BufferedReader(answer)  # type: ignore[type-var]

    def settimeout(self, timeout: Any) -> None:
        is_given = timeout is not None and timeout is not socket._GLOBAL_DEFAULT_TIMEOUT  # type: ignore[attr-defined]
        self._timeout_ms = max(1, round(timeout * 1000)) if is_given else None

    def setsockopt(self, *_: Any) -> None:
        """Does nothing: the host chooses the options of its connections."""

    def close(self) -> None:
        """Does nothing: the answer that was read stays."""


def _request(origin: str, sent: bytes, timeout_ms: int | None) -> capability.Request:
    head, _, body = sent.partition(b"\r\n\r\n")
    first, *lines = head.decode("latin-1").split("\r\n")
    method, target, _ = first.split(" ", 2)
    headers: list[tuple[str, str]] = []
    for line in lines:
        name, _, value = line.partition(":")
        name, value = name.lower(), value.strip()
        if name == "transfer-encoding" and value == "chunked":
            body = _unchunked(body)
        # Without it the host asks for a packed answer, and unpacks it.
        elif name not in _OF_THE_HOST and (name, value) != ("accept-encoding", "identity"):
            headers.append((name, value))
    url = target if "://" in target.partition("?")[0] else origin + target
    return capability.Request(url, method, dict(_joined(headers)), data=body or None, timeout_ms=timeout_ms)


def _joined(headers: list[tuple[str, str]]) -> dict[str, str]:
    joined: dict[str, str] = {}
    for name, value in headers:
        separator = "; " if name == "cookie" else ", "
        joined[name] = f"{joined[name]}{separator}{value}" if name in joined else value
    return joined


def _unchunked(body: bytes) -> bytes:
    whole = bytearray()
    while body:
        size, _, body = body.partition(b"\r\n")
        length = int(size.split(b";")[0], 16)
        whole += body[:length]
        body = body[length + 2 :]
    return bytes(whole)


class _Answer(io.RawIOBase):
    """The bytes of an answer, as a server sends them. A file is read in pieces."""

    def __init__(self, response: capability.Response, method: str) -> None:
        self._file = response.file
        content = response.data if response.text is None else response.text.encode()
        content = content or b""
        length = self._file["size"] if self._file is not None else len(content)
        reason = http.client.responses.get(response.status, "")
        lines = [f"HTTP/1.1 {response.status} {reason}"]
        for name, value in response.headers:
            if name != "transfer-encoding" and (name != "content-length" or method == "HEAD"):
                lines.append(f"{name}: {value}")
        if method != "HEAD":
            lines.append(f"content-length: {length}")
        self._bytes = memoryview("\r\n".join([*lines, "", ""]).encode("latin-1", "replace") + content)
        self._read = 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        if not self._bytes and self._file is not None:
            self._bytes = memoryview(file.read_bytes(self._file, self._read))
            self._read += len(self._bytes)
        count = min(len(buffer), len(self._bytes))
        buffer[:count] = self._bytes[:count]
        self._bytes = self._bytes[count:]
        return count


def _send_of_requests(
    self: Any, request: Any, stream: bool = False, timeout: Any = None, verify: Any = True, cert: Any = None, proxies: Any = None
) -> Any:
    """Replaces `requests.adapters.HTTPAdapter.send`."""
    requests, urllib3 = sys.modules["requests"], sys.modules["urllib3"]
    url = urlsplit(request.url)
    for name, is_used in {"verify": verify is not True, "cert": cert, "proxies": (proxies or {}).get(url.scheme)}.items():
        if is_used:
            raise NotImplementedError(f"requests: the host makes the connection, so it cannot use `{name}`")
    parts = timeout if isinstance(timeout, tuple) else (timeout,)
    given = [part for part in parts if part is not None]
    kind = HTTPSConnection if url.scheme == "https" else http.client.HTTPConnection
    connection = kind(url.hostname or "", url.port, timeout=sum(given) if given else None)
    headers = dict(request.headers)
    # The host asks for packed answers by itself, and unpacks them.
    if headers.get("Accept-Encoding") == requests.utils.default_headers().get("Accept-Encoding"):
        headers.pop("Accept-Encoding", None)
    body = request.body
    if headers.pop("Transfer-Encoding", None) is not None:
        body = b"".join(body)
    try:
        connection.request(request.method, request.path_url, body, headers)
        answer = connection.getresponse()
    except TimeoutError as error:
        raise requests.exceptions.ReadTimeout(error, request=request) from error
    except OSError as error:
        raise requests.exceptions.ConnectionError(error, request=request) from error
    raw = urllib3.HTTPResponse(
        body=answer,
        headers=urllib3.HTTPHeaderDict(answer.msg.items()),
        status=answer.status,
        reason=answer.reason,
        preload_content=False,
        original_response=answer,
        request_method=request.method,
    )
    response = self.build_response(request, raw)
    if not stream:
        response.content
    return response
