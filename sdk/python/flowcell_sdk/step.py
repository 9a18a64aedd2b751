"""What a node answers with: an output, or a pause."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from wit_world.imports import types

from .json import text


class Part:
    """A part of what was given. The host shares it: nothing is copied through the sandbox.

    It is an output, or a member of one, and stands nowhere deeper.
    """

    def __init__(self, source: types.Source) -> None:
        self.source = source


def input_part(path: str = "") -> Part:
    """The part of the input at a JSON Pointer; without one all of it."""
    return Part(types.Source_Input(path))


def woken_part(path: str = "") -> Part:
    """The part of what woke the node at a JSON Pointer: `/value`, `/value/content`."""
    return Part(types.Source_Woken(path))


@dataclass(frozen=True)
class Choice:
    """An answer to choose, and how it is shown."""

    value: str
    label: str | None = None


@dataclass(frozen=True)
class Question:
    """A durable question to a person. Without choices any text is an answer."""

    prompt: str
    choices: Sequence[str | Choice] = ()
    #: Whether a text outside the choices is an answer; None: without choices it is.
    allow_text: bool | None = None
    #: JSON Schema of the answer's content.
    schema: Any = None
    #: Who may answer, by name or role; empty: whoever may answer for the run.
    audience: Sequence[str] = ()

    def to_host(self) -> types.Question:
        """The question as the border takes it."""
        choices = [Choice(choice) if isinstance(choice, str) else choice for choice in self.choices]
        return types.Question(
            self.prompt,
            [types.Choice(choice.value, choice.label) for choice in choices],
            not choices if self.allow_text is None else self.allow_text,
            None if self.schema is None else text(self.schema),
            list(self.audience),
        )


@dataclass(frozen=True)
class Pause:
    """Gives the instance up until something happens. The first wake wins; `now`, `body`, `each` and `flow` stand alone."""

    until: Sequence[types.Wake]
    #: What `Task.state` gives back, at most 256 KiB.
    state: Any = None

    @staticmethod
    def now() -> "Pause":
        """Records what is remembered and goes on at once, in a new instance."""
        return Pause([types.Wake_Now()])

    @staticmethod
    def after(ms: int) -> "Pause":
        """A timer."""
        return Pause([types.Wake_After(ms)])

    @staticmethod
    def event(name: str) -> "Pause":
        """A named event that is sent to the run."""
        return Pause([types.Wake_Event(name)])

    @staticmethod
    def answer(question: str | Question) -> "Pause":
        """The answer of a person."""
        asked = Question(question) if isinstance(question, str) else question
        return Pause([types.Wake_Answer(asked.to_host())])

    @staticmethod
    def body(variables: Any = None) -> "Pause":
        """One pass of the node's body with these variables, an object."""
        return Pause([types.Wake_Body(_source({} if variables is None else variables))])

    @staticmethod
    def each(items: Any, *, concurrency: int | None = None, stop_on_failure: bool = True) -> "Pause":
        """A pass of the node's body for each item of a list."""
        return Pause([types.Wake_Each(types.FanOut(_source(items), concurrency, stop_on_failure))])

    @staticmethod
    def flow(name: str, input: Any = None) -> "Pause":
        """Another flow, run as a child."""
        return Pause([types.Wake_Flow(types.FlowCall(name, _source({} if input is None else input)))])

    def or_(self, other: "Pause") -> "Pause":
        """The same pause, which something else may end, too."""
        return replace(self, until=[*self.until, *other.until])

    def remember(self, state: Any) -> "Pause":
        """The same pause with something to remember."""
        return replace(self, state=state)


def to_host(answer: Any) -> types.Step:
    """What a node type's function gave, as the border takes it."""
    if isinstance(answer, Pause):
        return types.Step_Pause(types.Pause(list(answer.until), text(answer.state)))
    if isinstance(answer, dict) and any(isinstance(member, Part) for member in answer.values()):
        return types.Step_Done(types.Output_Object([(key, _source(member)) for key, member in answer.items()]))
    return types.Step_Done(types.Output_One(_source(answer)))


def _source(value: Any) -> types.Source:
    return value.source if isinstance(value, Part) else types.Source_Json(text(value))
