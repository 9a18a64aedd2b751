"""Checks of the values that the host gets.

The runtime ends the sandbox at a value of another type, with a trap that names no line of the author. An exception of the SDK
names the value and the line.
"""

from math import ceil
from operator import index
from typing import Any

MAX_U32 = 2**32 - 1
MAX_U64 = 2**64 - 1


def whole(value: Any, name: str, most: int = MAX_U64) -> int:
    """Returns a whole number from 0 to `most`."""
    try:
        number = index(value)
    except TypeError:
        raise wrong(value, name, "a whole number") from None
    if not 0 <= number <= most:
        raise ValueError(f"`{name}` must be from 0 to {most}, not {number}")
    return number


def whole_if_given(value: Any, name: str, most: int = MAX_U64) -> int | None:
    """Returns the same, or None for None."""
    return None if value is None else whole(value, name, most)


def delay(value: Any, name: str) -> int | None:
    """Returns a whole number of milliseconds from 0 to `MAX_U32` that is near to a number. None for None."""
    if value is None:
        return None
    if not isinstance(value, int | float) or value != value:
        raise wrong(value, name, "a number")
    return ceil(min(max(value, 0), MAX_U32))


def text(value: Any, name: str) -> str:
    """Returns a text. Halves of characters become U+FFFD."""
    if not isinstance(value, str):
        raise wrong(value, name, "a text")
    return well_formed(value)


def data(value: Any, name: str) -> bytes:
    """Returns bytes."""
    if not isinstance(value, bytes | bytearray | memoryview):
        raise wrong(value, name, "bytes")
    return bytes(value)


def well_formed(value: str) -> str:
    """Returns a text that UTF-8 can express: two halves of a character become one, others become U+FFFD."""
    if value.isascii():
        return value
    try:
        value.encode()
        return value
    except UnicodeEncodeError:
        return value.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def wrong(value: Any, name: str, expected: str) -> TypeError:
    """Returns the exception for a value of another type."""
    return TypeError(f"`{name}` must be {expected}, not {value!r:.40} of the type `{type(value).__qualname__}`")
