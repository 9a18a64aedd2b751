"""The node types of this pack. `node.yaml` describes their inputs and outputs."""

from typing import TypedDict

from flowcell_sdk import Failure, Pause, Question, Task, log, pack

#: The time that a person has to answer.
DAY_MS = 24 * 60 * 60 * 1000


class Greet(TypedDict):
    name: str


def greet(task: Task[Greet]) -> dict:
    name = task.input["name"]
    if not name:
        raise Failure("nobody", "the name is empty")
    return {"text": f"Hello {name}"}


class Approve(TypedDict):
    text: str


def approve(task: Task[Approve]) -> dict | Pause:
    """The node gives up its instance while it waits, and runs again when it is woken."""
    woken = task.woken
    if woken is None:
        question = Question(f"Is this good? {task.input['text']}", choices=["yes", "no"])
        return Pause.answer(question).or_(Pause.after(DAY_MS))
    if woken["wake"] == "after":
        log.warn("the question timed out")
    return {"approved": woken["value"].get("content") == "yes"}


# The build tool finds the pack by this name.
Node = pack({"acme.greet": greet, "acme.approve": approve})
