"""File values, for content that is too large for a text, such as a body above 3 MiB. Needs no grant.

Reading a file that the tenant does not have raises a `Failure` with the code `file_not_found`.
"""

from typing import Any

from wit_world.imports import context

from .failure import called
from .json import text as json_text

PIECE = 1 << 20


def read_bytes(file: Any, offset: int = 0, length: int = PIECE) -> bytes:
    """Reads at most 1 MiB from `offset` on; empty at the end of the file."""
    with called():
        return context.read_file(json_text(file), offset, length)


def read_all(file: Any) -> bytes:
    """Reads the whole content. A file has at most 32 MiB, and a node 64 MiB of memory."""
    pieces = bytearray()
    while piece := read_bytes(file, len(pieces)):
        pieces += piece
    return bytes(pieces)


def read_text(file: Any) -> str:
    """Reads the whole text, which must be UTF-8."""
    return read_all(file).decode()
