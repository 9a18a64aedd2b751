"""A cache for each tenant. The host may drop a value at any time."""

from typing import Any

from wit_world.imports import cache

from .failure import called
from .json import parsed, text
from .values import text as plain, whole_if_given


def get(key: str, default: Any = None) -> Any:
    """Returns the value of a key, or the default if it is unknown, expired or dropped."""
    with called():
        value = cache.get(plain(key, "key"))
    return default if value is None else parsed(value)


def set(key: str, value: Any, *, ttl_ms: int | None = None) -> None:
    """Stores a value for `ttl_ms` milliseconds, or without a limit."""
    with called():
        cache.set(plain(key, "key"), text(value), whole_if_given(ttl_ms, "ttl_ms"))
