"""The result of a node: an output, or a pause."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from wit_world.imports import types

from .json import escaped, text
from .values import MAX_U32, text as plain, well_formed, whole, whole_if_given


class Part:
    """A part of the input or of the wake. The host shares it; it is not copied through the sandbox.

    A part may be an output or a direct member of one.
    """

    def __init__(self, source: types.Source) -> None:
        self.source = source


def input_part(path: str = "") -> Part:
    """Refers to the part of the input at a JSON Pointer, by default all of it."""
    return Part(types.Source_Input(plain(path, "path")))


def woken_part(path: str = "") -> Part:
    """Refers to the part of the wake at a JSON Pointer: `/value`, `/value/content`."""
    return Part(types.Source_Woken(plain(path, "path")))


@dataclass(frozen=True)
class Choice:
    """A choice of a question, and its label for people."""

    value: str
    label: str | None = None


@dataclass(frozen=True)
class Question:
    """A durable question to a person. Without choices any text is an answer."""

    prompt: str
    choices: Sequence[str | Choice] = ()
    #: True if a text other than the choices is an answer. Default: true only without choices.
    allow_text: bool | None = None
    #: JSON Schema of the answer's content.
    schema: Any = None
    #: Names or roles of the people who may answer. Empty: all people who may answer for the run.
    audience: Sequence[str] = ()

    def to_host(self) -> types.Question:
        """Converts the question into the host's form."""
        choices = [Choice(choice) if isinstance(choice, str) else choice for choice in self.choices]
        return types.Question(
            plain(self.prompt, "prompt"),
            [types.Choice(plain(choice.value, "value"), _label(choice)) for choice in choices],
            not choices if self.allow_text is None else bool(self.allow_text),
            None if self.schema is None else text(self.schema),
            [plain(name, "audience") for name in self.audience],
        )


@dataclass(frozen=True)
class Pause:
    """Gives up the instance until an event wakes the node. The first wake wins; `now`, `body`, `each` and `flow` stand alone."""

    until: Sequence[types.Wake]
    #: The value that `Task.state` returns afterwards, at most 256 KiB as JSON.
    state: Any = None

    @staticmethod
    def now() -> "Pause":
        """Records the state and goes on at once, in a new instance."""
        return Pause([types.Wake_Now()])

    @staticmethod
    def after(ms: int) -> "Pause":
        """Waits for `ms` milliseconds."""
        return Pause([types.Wake_After(whole(ms, "ms"))])

    @staticmethod
    def event(name: str) -> "Pause":
        """Waits for a named event that is sent to the run."""
        return Pause([types.Wake_Event(plain(name, "name"))])

    @staticmethod
    def answer(question: str | Question) -> "Pause":
        """Waits for the answer of a person."""
        asked = Question(question) if isinstance(question, str) else question
        return Pause([types.Wake_Answer(asked.to_host())])

    @staticmethod
    def body(variables: Any = None) -> "Pause":
        """Runs the node's body once, with these variables (an object)."""
        return Pause([types.Wake_Body(_source({} if variables is None else variables, "the variables of the body"))])

    @staticmethod
    def each(items: Any, *, concurrency: int | None = None, stop_on_failure: bool = True) -> "Pause":
        """Runs the node's body for each item of a list."""
        at_once = whole_if_given(concurrency, "concurrency", MAX_U32)
        return Pause([types.Wake_Each(types.FanOut(_source(items, "the list of items"), at_once, bool(stop_on_failure)))])

    @staticmethod
    def flow(name: str, input: Any = None) -> "Pause":
        """Runs another flow as a child."""
        given = _source({} if input is None else input, "the input of the flow")
        return Pause([types.Wake_Flow(types.FlowCall(plain(name, "name"), given))])

    def or_(self, other: "Pause") -> "Pause":
        """Adds other events that may end the pause."""
        return replace(self, until=[*self.until, *other.until])

    def remember(self, state: Any) -> "Pause":
        """Keeps a state for the next instance."""
        return replace(self, state=state)


def to_host(answer: Any) -> types.Step:
    """Converts the result of a node type's function into the host's form."""
    if isinstance(answer, Pause):
        return types.Step_Pause(types.Pause(list(answer.until), text(answer.state, "the state of the pause")))
    if isinstance(answer, dict) and any(isinstance(member, Part) for member in answer.values()):
        return types.Step_Done(types.Output_Object([_member(*member) for member in answer.items()]))
    return types.Step_Done(types.Output_One(_source(answer, "the output")))


def _member(key: str, value: Any) -> tuple[str, types.Source]:
    return well_formed(str(key)), _source(value, "the output", f"/{escaped(key)}")


def _label(choice: Choice) -> str | None:
    return None if choice.label is None else plain(choice.label, "label")


def _source(value: Any, what: str = "the value", path: str = "") -> types.Source:
    return value.source if isinstance(value, Part) else types.Source_Json(text(value, what, path))
