"""JSON as the border has it."""

import json
from dataclasses import asdict, is_dataclass
from typing import Any


def parsed(value: str) -> Any:
    """The value of a text."""
    return json.loads(value)


def text(value: Any) -> str:
    """The text of a value, dataclasses in it as objects. What JSON cannot say, such as NaN, raises."""
    return json.dumps(value, ensure_ascii=False, allow_nan=False, default=_members)


def _members(value: Any) -> Any:
    if is_dataclass(value) and not isinstance(value, type):
        return asdict(value)
    raise TypeError(f"{type(value).__name__} is no JSON")
