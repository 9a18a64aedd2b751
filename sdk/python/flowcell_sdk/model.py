"""Turns of language models. The flow grants which: `grants: { model: ["anthropic/*"] }`.

Requests and replies are as `model.wit` has them.
"""

from typing import Any

from wit_world.imports import model

from .failure import called
from .json import parsed, text


def generate(request: dict[str, Any]) -> dict[str, Any]:
    """Makes a turn and waits for the whole reply."""
    with called():
        return parsed(model.generate(text(request)))


def start_generate(request: dict[str, Any]) -> int:
    """Makes a turn and goes on; `queue.next` hands the reply over."""
    with called():
        return model.start_generate(text(request))


def text_of(reply: dict[str, Any]) -> str:
    """All of a reply's text."""
    return "".join(block["text"] for block in reply["content"] if block["type"] == "text")


def tool_uses_of(reply: dict[str, Any]) -> list[dict[str, Any]]:
    """The tools that a reply wants to be called, in its order."""
    return [block for block in reply["content"] if block["type"] == "tool_use"]
