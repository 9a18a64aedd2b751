"""Values that may be forgotten at any time, per tenant."""

from typing import Any

from wit_world.imports import cache

from .failure import called
from .json import parsed, text


def get(key: str, default: Any = None) -> Any:
    """The value; the default if there is none, it has expired, or it was forgotten."""
    with called():
        value = cache.get(key)
    return default if value is None else parsed(value)


def set(key: str, value: Any, *, ttl_ms: int | None = None) -> None:
    """Keeps a value. Without a time to live it does not expire by time."""
    with called():
        cache.set(key, text(value), ttl_ms)
