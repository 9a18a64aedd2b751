"""Turns of language models. The flow grants models: `grants: { model: ["anthropic/*"] }`.

`model.wit` describes requests and replies.
"""

from typing import Any

from wit_world.imports import model

from .failure import called
from .json import parsed, text
from .queue import ended


def generate(request: dict[str, Any]) -> dict[str, Any]:
    """Makes a turn and waits for the whole reply."""
    with called():
        return parsed(model.generate(text(request)))


def start_generate(request: dict[str, Any]) -> int:
    """Makes a turn without waiting; `queue.next` returns the reply."""
    with called():
        return model.start_generate(text(request))


async def generate_async(request: dict[str, Any]) -> dict[str, Any]:
    """Makes a turn and awaits the whole reply."""
    return await ended(start_generate(request))


def text_of(reply: dict[str, Any]) -> str:
    """Returns the whole text of a reply."""
    return "".join(block["text"] for block in reply["content"] if block["type"] == "text")


def tool_uses_of(reply: dict[str, Any]) -> list[dict[str, Any]]:
    """Returns the tool uses of a reply, in its order."""
    return [block for block in reply["content"] if block["type"] == "tool_use"]
