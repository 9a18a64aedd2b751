"""JSON, as the host reads and writes it."""

import json
from dataclasses import asdict, is_dataclass
from typing import Any


def parsed(value: str) -> Any:
    """Parses a text."""
    return json.loads(value)


def text(value: Any) -> str:
    """Writes a value as JSON, dataclasses as objects. Raises if JSON cannot express the value, such as NaN."""
    return json.dumps(value, ensure_ascii=False, allow_nan=False, default=_members)


def _members(value: Any) -> Any:
    if is_dataclass(value) and not isinstance(value, type):
        return asdict(value)
    raise TypeError(f"{type(value).__name__} is no JSON")
