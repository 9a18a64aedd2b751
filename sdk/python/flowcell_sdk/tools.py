"""Tools: node types, flows, and the tools of the operator's MCP servers.

The flow grants patterns: `grants: { tools: ["data.*", "flow:report", "mcp:files/*"] }`.
"""

from typing import Any

from wit_world.imports import tools

from .failure import called
from .json import parsed, text
from .queue import ended
from .values import text as plain


def find(*patterns: str) -> list[dict[str, Any]]:
    """Finds the tools that match these patterns, are granted and are not denied: `name`, `tool`, `inputSchema` and more."""
    with called():
        return parsed(tools.find([plain(pattern, "patterns") for pattern in patterns]))


def call(tool: str, input: Any = None, *, tool_use_id: str | None = None, agent_run_id: str | None = None) -> Any:
    """Calls a tool, waits, and returns its output."""
    with called():
        return parsed(tools.call(_request(tool, input, tool_use_id, agent_run_id)))["output"]


def start_call(
    tool: str, input: Any = None, *, tool_use_id: str | None = None, agent_run_id: str | None = None
) -> int:
    """Calls a tool without waiting; `queue.next` returns `{"output": …}`."""
    with called():
        return tools.start_call(_request(tool, input, tool_use_id, agent_run_id))


async def call_async(
    tool: str, input: Any = None, *, tool_use_id: str | None = None, agent_run_id: str | None = None
) -> Any:
    """Calls a tool and awaits its output."""
    return (await ended(start_call(tool, input, tool_use_id=tool_use_id, agent_run_id=agent_run_id)))["output"]


def _request(tool: str, input: Any, tool_use_id: str | None, agent_run_id: str | None) -> str:
    request = {"tool": tool, "input": {} if input is None else input}
    named = {"toolUseId": tool_use_id, "agentRunId": agent_run_id}
    return text(request | {key: value for key, value in named.items() if value is not None})
