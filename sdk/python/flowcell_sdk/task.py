"""The parts of a task. They are read lazily: one field of a large input costs only that field."""

from typing import Any, Generic, TypedDict, TypeVar

from wit_world.imports import context
from wit_world.imports.context import Part

from .json import parsed
from .values import text

Input = TypeVar("Input")


class Info(TypedDict):
    """Information about a task. Later versions may add members."""

    runId: str
    nodeId: str
    nodeType: str
    scope: Any
    attempt: int
    resumes: int
    hasBody: bool
    nowMs: int
    seed: Any


class Woken(TypedDict, total=False):
    """The wake that ended a pause: its index and name, and its value or the `error` of a body or a flow."""

    index: int
    wake: str
    value: Any
    error: dict[str, Any]


class Task(Generic[Input]):
    """One task. The host has checked its input and config against the manifest's schemas."""

    @property
    def input(self) -> Input:
        """The whole input."""
        return _read(Part.INPUT, "")

    @property
    def config(self) -> dict[str, Any]:
        """The config."""
        return _read(Part.CONFIG, "") or {}

    @property
    def state(self) -> Any:
        """The state that the last pause kept; None in the first run."""
        return _read(Part.STATE, "")

    @property
    def woken(self) -> Woken | None:
        """The wake that ended the last pause; None in the first run."""
        return _read(Part.WOKEN, "")

    @property
    def info(self) -> Info:
        """Information about the task."""
        return _read(Part.TASK, "")

    def input_at(self, path: str, default: Any = None) -> Any:
        """Returns the part of the input at a JSON Pointer, or the default if it does not exist."""
        value = context.get_json(Part.INPUT, text(path, "path"))
        return default if value is None else parsed(value)

    def input_text(self, path: str) -> str | None:
        """Returns a text of the input, or None if the part is absent or not a text."""
        return context.get_text(Part.INPUT, text(path, "path"))

    def input_length(self, path: str) -> int | None:
        """Returns the number of list items, object keys or text bytes; None for other values and absent parts."""
        return context.len(Part.INPUT, text(path, "path"))


def _read(part: Part, path: str) -> Any:
    value = context.get_json(part, path)
    return None if value is None else parsed(value)
