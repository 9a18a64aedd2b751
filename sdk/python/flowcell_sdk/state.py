"""Durable values for each tenant and flow name. Other runs see a write together with the task's outcome."""

from dataclasses import dataclass
from typing import Any

from wit_world.imports import state

from .failure import called
from .json import parsed, text
from .values import text as plain, whole_if_given


@dataclass(frozen=True)
class Entry:
    """A value with its version, the number of writes of its key."""

    value: Any
    version: int


def get(key: str) -> Entry | None:
    """Returns the value that this attempt sees, or None if the key was never written."""
    with called():
        entry = state.get(plain(key, "key"))
    return None if entry is None else Entry(parsed(entry.value), entry.version)


def set(key: str, value: Any) -> int:
    """Writes a value unconditionally. Returns the new version."""
    with called():
        return state.set(plain(key, "key"), text(value, f"the value of `{key}`"))


def set_if(key: str, value: Any, expected: int | None) -> int | None:
    """Writes only if the version is still the expected one, or, for None, only if the key does not exist."""
    with called():
        given = text(value, f"the value of `{key}`")
        return state.set_if(plain(key, "key"), given, whole_if_given(expected, "expected"))
