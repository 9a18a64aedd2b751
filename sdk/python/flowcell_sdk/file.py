"""File values, for content that is too large for a text, such as a body above 3 MiB. Needs no grant.

Reading a file that the tenant does not have raises a `Failure` with the code `file_not_found`.
"""

from collections.abc import Iterator
from typing import Any

from wit_world.imports import context, file_writer

from .failure import called
from .json import parsed, text as json_text
from .values import MAX_U32, data, text, whole

PIECE = 1 << 20


def read_bytes(file: Any, offset: int = 0, length: int = PIECE) -> bytes:
    """Reads at most 1 MiB from `offset` on; empty at the end of the file."""
    with called():
        return context.read_file(json_text(file), whole(offset, "offset"), whole(length, "length", MAX_U32))


def chunks(file: Any, offset: int = 0) -> Iterator[bytes]:
    """Reads from `offset` on in pieces of at most 1 MiB, so that the file may be larger than the memory of the node."""
    while piece := read_bytes(file, offset):
        offset += len(piece)
        yield piece


def lines(file: Any) -> Iterator[str]:
    """Reads the lines of a text in UTF-8, without their ends."""
    rest = bytearray()
    for piece in chunks(file):
        rest += piece
        *whole, last = rest.split(b"\n")
        for line in whole:
            yield line.removesuffix(b"\r").decode()
        rest = last
    if rest:
        yield rest.removesuffix(b"\r").decode()


class Writer:
    """Writes a new file value in parts. A file that is not finished goes away with the attempt."""

    def __init__(self) -> None:
        with called():
            self._number = file_writer.open()

    def write(self, content: bytes) -> int:
        """Adds bytes at the end. Returns the size so far."""
        given = data(content, "content")
        size = 0
        for at in range(0, len(given) or 1, PIECE):
            with called():
                size = file_writer.append(self._number, given[at : at + PIECE])
        return size

    def finish(self, mime: str = "application/octet-stream") -> Any:
        """Ends the file, and returns the file value."""
        with called():
            return parsed(file_writer.finish(self._number, text(mime, "mime")))

    def discard(self) -> None:
        """Discards the file. Does nothing once it is finished."""
        file_writer.discard(self._number)


def read_all(file: Any) -> bytes:
    """Reads the whole content, which must fit into the memory of the node, 64 MiB by default."""
    return b"".join(chunks(file))


def read_text(file: Any) -> str:
    """Reads the whole text, which must be UTF-8."""
    return read_all(file).decode()
