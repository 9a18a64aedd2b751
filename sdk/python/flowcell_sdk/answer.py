"""Answers that are read in chunks, lines or events."""

import codecs
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from wit_world.imports import http

from .failure import Failure, called

#: The longest line and the longest data of an event, in characters.
_LONGEST = 8 << 20


@dataclass(frozen=True)
class Event:
    """A server-sent event."""

    #: The type of the event, `message` if it names none.
    name: str
    #: The data. Several lines are joined by a line end.
    data: str
    #: The last id that the stream has named so far; empty without one. A new request sends it as `Last-Event-ID`.
    id: str
    #: The last time that the stream has named so far, in milliseconds: how long to wait before a new request.
    retry_ms: int | None


class Answer:
    """An answer that is read in chunks. `with` closes its connection, and so does leaving the loop over an iterator.

    The host reads from the server only while the node waits for a chunk, and records each chunk. If the attempt is repeated,
    the node gets the same chunks again. If the connection is gone then, the next one raises `stream_interrupted`.
    """

    def __init__(self, opened: http.Opened) -> None:
        self.status: int = opened.status
        #: Names in lower case, with their values.
        self.headers: list[tuple[str, str]] = opened.headers
        self._stream: int | None = opened.stream

    def __enter__(self) -> "Answer":
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()

    def __iter__(self) -> Iterator[bytes]:
        return self.chunks()

    def read(self) -> bytes | None:
        """Waits for the next chunk, at most 64 KiB. None at the end, and after a failure."""
        if self._stream is None:
            return None
        stream, self._stream = self._stream, None
        with called():
            chunk = http.read_stream(stream)
        if chunk is not None:
            self._stream = stream
        return chunk

    def close(self) -> None:
        """Closes the connection. Does nothing after the end."""
        stream, self._stream = self._stream, None
        if stream is not None:
            http.close_stream(stream)

    def chunks(self) -> Iterator[bytes]:
        """Reads chunks of at most 64 KiB, each as soon as its first byte has arrived."""
        try:
            while (chunk := self.read()) is not None:
                yield chunk
        finally:
            self.close()

    def lines(self) -> Iterator[str]:
        """Reads the lines of a text in UTF-8, without their ends."""
        decoder = codecs.getincrementaldecoder("utf-8")()
        rest = ""
        for chunk in self.chunks():
            first, *lines = _decoded(decoder, chunk).split("\n")
            lines.insert(0, rest + first)
            rest = _bounded(lines.pop())
            for line in lines:
                yield line.removesuffix("\r")
        rest += _decoded(decoder, b"", True)
        if rest:
            yield rest.removesuffix("\r")

    def events(self) -> Iterator[Event]:
        """Reads server-sent events (`text/event-stream`) as the HTML standard says."""
        decoder = codecs.getincrementaldecoder("utf-8")("replace")
        parser = _Parser()
        rest, is_begun, is_after_return = "", False, False
        for chunk in self.chunks():
            text = decoder.decode(chunk)
            if not text:
                continue
            if not is_begun:
                is_begun, text = True, text.removeprefix("\ufeff")
            # The two characters of one line end.
            if is_after_return:
                text = text.removeprefix("\n")
            is_after_return = text.endswith("\r")
            first, *lines = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
            lines.insert(0, rest + first)
            rest = _bounded(lines.pop())
            for line in lines:
                if (event := parser.take(line)) is not None:
                    yield event


class _Parser:
    def __init__(self) -> None:
        self._id = self._name = ""
        self._retry_ms: int | None = None
        self._data: str | None = None

    def take(self, line: str) -> Event | None:
        """Takes in a line. Returns the event that an empty line ends."""
        if not line:
            name, data = self._name or "message", self._data
            self._name, self._data = "", None
            return None if data is None else Event(name, data, self._id, self._retry_ms)
        field, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if field == "event":
            self._name = value
        elif field == "data":
            self._data = _bounded(value if self._data is None else f"{self._data}\n{value}")
        elif field == "id" and "\0" not in value:
            self._id = value
        elif field == "retry" and value.isascii() and value.isdigit():
            self._retry_ms = int(value[:18])
        return None


def _decoded(decoder: codecs.IncrementalDecoder, chunk: bytes, is_end: bool = False) -> str:
    try:
        return decoder.decode(chunk, is_end)
    except UnicodeDecodeError:
        raise Failure("not_text", "the answer is not UTF-8") from None


def _bounded(text: str) -> str:
    if len(text) > _LONGEST:
        raise Failure("limit_exceeded", f"a line or an event has more than {_LONGEST} characters")
    return text
