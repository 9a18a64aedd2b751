"""What a node is given, read lazily: one field of a large input costs one field."""

from typing import Any, Generic, TypedDict, TypeVar

from wit_world.imports import context
from wit_world.imports.context import Part

from .json import parsed

Input = TypeVar("Input")


class Info(TypedDict):
    """What a task is about. More may come."""

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
    """What ended a pause: which wake it was, and what came, or the `error` of a body or a flow."""

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
        """What the last pause remembered; None on the first run."""
        return _read(Part.STATE, "")

    @property
    def woken(self) -> Woken | None:
        """What ended the last pause; None on the first run."""
        return _read(Part.WOKEN, "")

    @property
    def info(self) -> Info:
        """What the task is about."""
        return _read(Part.TASK, "")

    def input_at(self, path: str, default: Any = None) -> Any:
        """The part of the input at a JSON Pointer; the default: there is none."""
        value = context.get_json(Part.INPUT, path)
        return default if value is None else parsed(value)

    def input_text(self, path: str) -> str | None:
        """A text in the input; None: there is none, or it is no text."""
        return context.get_text(Part.INPUT, path)

    def input_length(self, path: str) -> int | None:
        """Items of a list, keys of an object, bytes of a text; None: there is none, or it is a scalar."""
        return context.len(Part.INPUT, path)


def _read(part: Part, path: str) -> Any:
    value = context.get_json(part, path)
    return None if value is None else parsed(value)
