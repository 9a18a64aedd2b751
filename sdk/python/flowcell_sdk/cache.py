"""A cache for each tenant. The host may drop a value at any time."""

from typing import Any

from wit_world.imports import cache

from .failure import called
from .json import parsed, text


def get(key: str, default: Any = None) -> Any:
    """Returns the value of a key, or the default if it is unknown, expired or dropped."""
    with called():
        value = cache.get(key)
    return default if value is None else parsed(value)


def set(key: str, value: Any, *, ttl_ms: int | None = None) -> None:
    """Stores a value for `ttl_ms` milliseconds, or without a limit."""
    with called():
        cache.set(key, text(value), ttl_ms)
