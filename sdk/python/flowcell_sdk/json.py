"""JSON, as the host reads and writes it."""

import json
from collections.abc import Iterator
from dataclasses import asdict, fields, is_dataclass
from typing import Any

from .values import well_formed

#: What to write instead of a value, by the name of its class or of a base of it, so that no module is imported for it.
_INSTEAD = {
    "Decimal": "write `str(value)`, or `float(value)` if it may be rounded",
    "Enum": "write its member `value`",
    "Part": "a part must be the output itself, or a member of the output",
    "Pause": "a pause must be the whole result",
    "PurePath": "write `str(value)`",
    "UUID": "write `str(value)`",
    "bytearray": "write a text, or keep the bytes as a file with `http.keep(value, mime)`",
    "bytes": "write a text, such as `value.decode()`, or keep the bytes as a file with `http.keep(value, mime)`",
    "complex": "write its parts as a list",
    "coroutine": "await it",
    "date": "write a text, such as `value.isoformat()`",
    "float": "JSON has no such number: write None or a text",
    "frozenset": "write a list, such as `sorted(value)`",
    "generator": "write `list(value)`",
    "memoryview": "write a text, or keep the bytes as a file with `http.keep(bytes(value), mime)`",
    "set": "write a list, such as `sorted(value)`",
    "time": "write a text, such as `value.isoformat()`",
    "timedelta": "write `value.total_seconds()`",
}
_PLAIN = "write a dict, a list, a text, a number, a bool or None"


def parsed(value: str) -> Any:
    """Parses a text."""
    return json.loads(value)


def text(value: Any, what: str = "the value", path: str = "") -> str:
    """Writes a value as JSON, dataclasses as objects.

    Raises a `TypeError` if JSON cannot express it. The error names `what`, the JSON Pointer of the place that begins with
    `path`, the type, and what to write instead.
    """
    try:
        return well_formed(json.dumps(value, ensure_ascii=False, allow_nan=False, default=_members))
    except RecursionError:
        raise TypeError(f"{what} cannot be written as JSON: it is nested too deep") from None
    except (TypeError, ValueError) as error:
        place, why = next(_misfits(value, path, ()), (path, str(error)))
        where = f" at `{place}`" if place else ""
        raise TypeError(f"{what} cannot be written as JSON{where}: {why}") from None


def _members(value: Any) -> Any:
    if is_dataclass(value) and not isinstance(value, type):
        return asdict(value)
    raise TypeError(f"{type(value).__name__} is no JSON")


def _misfits(value: Any, path: str, around: tuple[int, ...]) -> Iterator[tuple[str, str]]:
    """Yields the places that JSON cannot express, and why. `around` has the ids of the values that contain this one."""
    if value is None or isinstance(value, str | int) or _is_finite(value):
        return
    if id(value) in around:
        yield path, "the value contains itself"
        return
    around = (*around, id(value))
    if isinstance(value, dict):
        for key, member in value.items():
            if key is not None and not isinstance(key, str | int) and not _is_finite(key):
                yield path, f"the key `{key!r:.80}` is of the type `{_name(key)}`; write a text"
            yield from _misfits(member, f"{path}/{escaped(key)}", around)
    elif isinstance(value, list | tuple):
        for at, item in enumerate(value):
            yield from _misfits(item, f"{path}/{at}", around)
    elif is_dataclass(value) and not isinstance(value, type) and type(value).__name__ not in _INSTEAD:
        for field in fields(value):
            yield from _misfits(getattr(value, field.name), f"{path}/{escaped(field.name)}", around)
    else:
        shown = f"the number {value}" if isinstance(value, float) else f"of the type `{_name(value)}`"
        hints = (_INSTEAD[base.__name__] for base in type(value).__mro__ if base.__name__ in _INSTEAD)
        yield path, f"it is {shown}; {next(hints, _PLAIN)}"


def _is_finite(value: Any) -> bool:
    return isinstance(value, float) and value - value == 0


def _name(value: Any) -> str:
    return type(value).__qualname__


def escaped(key: Any) -> str:
    """Returns a key as a part of a JSON Pointer."""
    return str(key).replace("~", "~0").replace("/", "~1")[:80]
