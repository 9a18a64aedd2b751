"""Tools: node types, flows, and what the operator's MCP servers offer.

The flow grants which: `grants: { tools: ["data.*", "flow:report", "mcp:files/*"] }`.
"""

from typing import Any

from wit_world.imports import tools

from .failure import called
from .json import parsed, text


def find(*patterns: str) -> list[dict[str, Any]]:
    """The tools that these patterns name, that are granted and not denied: `name`, `tool`, `inputSchema` and more."""
    with called():
        return parsed(tools.find(list(patterns)))


def call(tool: str, input: Any = None, *, tool_use_id: str | None = None, agent_run_id: str | None = None) -> Any:
    """Calls a tool, waits, and gives its output."""
    with called():
        return parsed(tools.call(_request(tool, input, tool_use_id, agent_run_id)))["output"]


def start_call(
    tool: str, input: Any = None, *, tool_use_id: str | None = None, agent_run_id: str | None = None
) -> int:
    """Calls a tool and goes on; `queue.next` hands `{"output": …}` over."""
    with called():
        return tools.start_call(_request(tool, input, tool_use_id, agent_run_id))


def _request(tool: str, input: Any, tool_use_id: str | None, agent_run_id: str | None) -> str:
    request = {"tool": tool, "input": {} if input is None else input}
    named = {"toolUseId": tool_use_id, "agentRunId": agent_run_id}
    return text(request | {key: value for key, value in named.items() if value is not None})
