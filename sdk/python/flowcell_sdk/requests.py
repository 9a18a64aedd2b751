"""A small part of the package `requests`, over the capability `http`.

    from flowcell_sdk import requests

    response = requests.get("https://api.example.com/orders", params={"page": 1})
    response.raise_for_status()
    orders = response.json()

Redirects are followed: the flow grants their origins, too. There are no cookies, certificates, proxies, hooks and streams;
an argument for them raises a `TypeError`. A failure of the network raises an exception of this module, whose cause is the
`Failure` of the host. Other failures, such as `denied`, stay what they are.
"""

import json as _json
from base64 import b64encode
from collections.abc import Generator, Iterable, Mapping
from typing import Any, NoReturn
from urllib.parse import parse_qsl, urlencode, urljoin, urlsplit

from . import file, http
from .failure import Failure

MAX_REDIRECTS = 30
#: The seconds that a call takes at most, if it has no other `timeout`.
TIMEOUT_S = 30

_REDIRECTS = {301, 302, 303, 307, 308}

Params = Mapping[str, Any] | Iterable[tuple[str, Any]] | str | None


class RequestException(OSError):
    """The base of the exceptions of this module."""

    def __init__(self, message: str, response: "Response | None" = None) -> None:
        super().__init__(message)
        self.response = response


class ConnectionError(RequestException):
    """The server was not reached, or it broke the protocol."""


class Timeout(RequestException):
    """The answer did not come in time."""


class TooManyRedirects(RequestException):
    """An answer redirects after 30 redirects."""


class HTTPError(RequestException):
    """The status of an answer is 400 or above. `raise_for_status` raises it."""


class JSONDecodeError(RequestException, ValueError):
    """The body is not JSON."""


class Headers(Mapping[str, str]):
    """The headers of an answer. The case of names does not matter. The values of repeated headers are joined by a comma."""

    def __init__(self, pairs: Iterable[tuple[str, str]]) -> None:
        self._values: dict[str, str] = {}
        for name, value in pairs:
            name = name.lower()
            self._values[name] = f"{self._values[name]}, {value}" if name in self._values else value

    def __getitem__(self, name: str) -> str:
        return self._values[name.lower()]

    def __iter__(self) -> Any:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)


class Response:
    """An answer."""

    def __init__(self, url: str, answer: http.Response, history: "list[Response]") -> None:
        self.url = url
        self.status_code = answer.status
        self.headers = Headers(answer.headers)
        #: The answers that redirected to this one.
        self.history = history
        self._answer = answer
        self._content: bytes | None = None

    @property
    def ok(self) -> bool:
        """True if the status is below 400."""
        return self.status_code < 400

    @property
    def content(self) -> bytes:
        """The body. A large one is read from its file, which needs memory for all of it."""
        if self._content is None:
            answer = self._answer
            if answer.file is not None:
                self._content = file.read_all(answer.file)
            else:
                self._content = (answer.data or b"") if answer.text is None else answer.text.encode()
        return self._content

    @property
    def file(self) -> Any:
        """The file value of a body that is large or not a text, else None."""
        return self._answer.file

    @property
    def text(self) -> str:
        """The body as text, in the encoding that the answer names or else in UTF-8."""
        if self._answer.text is not None:
            return self._answer.text
        kind = self.headers.get("content-type", "")
        named = kind.partition("charset=")[2].partition(";")[0].strip(" \"'")
        return self.content.decode(named or "utf-8", "replace")

    def json(self) -> Any:
        """Parses the body as JSON."""
        try:
            return _json.loads(self._answer.text if self._answer.text is not None else self.content)
        except ValueError as error:
            raise JSONDecodeError(f"the body is not JSON: {error}", self) from error

    def raise_for_status(self) -> None:
        """Raises an `HTTPError` if the status is 400 or above."""
        if not self.ok:
            raise HTTPError(f"{self.status_code} for {self.url}", self)


class Session:
    """Headers, query and credentials that several requests share."""

    def __init__(self) -> None:
        self.headers: dict[str, str] = {}
        self.params: dict[str, Any] = {}
        self.auth: tuple[str, str] | None = None

    def __enter__(self) -> "Session":
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def request(self, method: str, url: str, **arguments: Any) -> Response:
        """Sends a request as the function `request` does."""
        return request(method, url, **self._with(arguments))

    async def request_async(self, method: str, url: str, **arguments: Any) -> Response:
        """Sends a request and awaits its answer."""
        return await request_async(method, url, **self._with(arguments))

    def get(self, url: str, **arguments: Any) -> Response:
        """Sends a GET request."""
        return self.request("GET", url, **arguments)

    def post(self, url: str, data: Any = None, json: Any = None, **arguments: Any) -> Response:
        """Sends a POST request."""
        return self.request("POST", url, data=data, json=json, **arguments)

    def put(self, url: str, data: Any = None, **arguments: Any) -> Response:
        """Sends a PUT request."""
        return self.request("PUT", url, data=data, **arguments)

    def patch(self, url: str, data: Any = None, **arguments: Any) -> Response:
        """Sends a PATCH request."""
        return self.request("PATCH", url, data=data, **arguments)

    def delete(self, url: str, **arguments: Any) -> Response:
        """Sends a DELETE request."""
        return self.request("DELETE", url, **arguments)

    def head(self, url: str, **arguments: Any) -> Response:
        """Sends a HEAD request. It does not follow redirects unless `allow_redirects` is true."""
        return self.request("HEAD", url, **arguments)

    def _with(self, arguments: dict[str, Any]) -> dict[str, Any]:
        own = {"headers": {**self.headers, **(arguments.get("headers") or {})}}
        if self.params:
            own["params"] = [*self.params.items(), *_pairs(arguments.get("params"))]
        if arguments.get("auth") is None:
            own["auth"] = self.auth
        return {**arguments, **own}


def request(method: str, url: str, **arguments: Any) -> Response:
    """Sends a request and waits for the answer.

    Arguments: `params`, `data` (a form, a text or bytes), `json`, `headers`, `auth` (a user and a password), `timeout` (in
    seconds, of each request), `allow_redirects`.
    """
    steps = _steps(method.upper(), url, **arguments)
    asked = next(steps)
    while True:
        try:
            answer = http.send(asked)
        except Failure as failure:
            _raise(failure)
        try:
            asked = steps.send(answer)
        except StopIteration as end:
            return end.value


async def request_async(method: str, url: str, **arguments: Any) -> Response:
    """Sends a request and awaits its answer, in an `async def` function. It takes the arguments of `request`."""
    steps = _steps(method.upper(), url, **arguments)
    asked = next(steps)
    while True:
        try:
            answer = await http.send_async(asked)
        except Failure as failure:
            _raise(failure)
        try:
            asked = steps.send(answer)
        except StopIteration as end:
            return end.value


get, post, put = Session().get, Session().post, Session().put
patch, delete, head = Session().patch, Session().delete, Session().head


def _steps(
    method: str,
    url: str,
    *,
    params: Params = None,
    data: Any = None,
    json: Any = None,
    headers: Mapping[str, str] | None = None,
    auth: tuple[str, str] | None = None,
    timeout: float | None = TIMEOUT_S,
    allow_redirects: bool | None = None,
    **others: Any,
) -> Generator[http.Request, http.Response, Response]:
    """Yields the requests, gets their answers, and returns the last one."""
    if others:
        raise TypeError(f"flowcell_sdk.requests has no argument `{next(iter(others))}`")
    body, kind = _body(data, json)
    sent = {name.lower(): value for name, value in (headers or {}).items() if value is not None}
    if kind is not None:
        sent.setdefault("content-type", kind)
    if auth is not None:
        user, password = auth
        sent["authorization"] = "Basic " + b64encode(f"{user}:{password}".encode()).decode()
    if pairs := _pairs(params):
        before, mark, fragment = url.partition("#")
        url = f"{before}{'&' if '?' in before else '?'}{urlencode(pairs, doseq=True)}{mark}{fragment}"
    follows = method != "HEAD" if allow_redirects is None else allow_redirects
    timeout_ms = None if timeout is None else max(1, round(timeout * 1000))
    history: list[Response] = []
    while True:
        url = url.partition("#")[0]
        response = Response(url, (yield http.Request(url, method, sent, data=body, timeout_ms=timeout_ms)), history)
        location = response.headers.get("location") if response.status_code in _REDIRECTS else None
        if location is None or not follows:
            return response
        if len(history) == MAX_REDIRECTS:
            raise TooManyRedirects(f"more than {MAX_REDIRECTS} redirects", response)
        history = [*history, response]
        next_url = urljoin(url, location)
        if response.status_code == 303 and method != "HEAD" or response.status_code < 303 and method == "POST":
            method, body = "GET", None
            sent = {name: value for name, value in sent.items() if not name.startswith("content-")}
        if urlsplit(next_url)[:2] != urlsplit(url)[:2]:
            sent = {name: value for name, value in sent.items() if name not in ("authorization", "cookie")}
        url = next_url


def _body(data: Any, json: Any) -> tuple[bytes | None, str | None]:
    if json is not None and data is None:
        return _json.dumps(json, allow_nan=False).encode(), "application/json"
    if data is None or isinstance(data, bytes):
        return data, None
    if isinstance(data, str):
        return data.encode(), None
    if isinstance(data, (Mapping, list, tuple)):
        return urlencode(_pairs(data), doseq=True).encode(), "application/x-www-form-urlencoded"
    raise TypeError(f"`data` is a form, a text or bytes, not {type(data).__name__}")


def _pairs(params: Params) -> list[tuple[str, Any]]:
    if params is None:
        return []
    if isinstance(params, str):
        return parse_qsl(params, keep_blank_values=True)
    pairs = params.items() if isinstance(params, Mapping) else params
    return [(name, value) for name, value in pairs if value is not None]


def _raise(failure: Failure) -> NoReturn:
    """Raises the exception that callers of `requests` expect for a failure of the network, else the failure."""
    match failure.code:
        case "http_timeout":
            raise Timeout(failure.message) from failure
        case "http_connect" | "http_tls" | "http_protocol":
            raise ConnectionError(failure.message) from failure
    raise failure
