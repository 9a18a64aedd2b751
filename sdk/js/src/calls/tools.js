// Tools: node types, flows, and the tools of the operator's MCP servers.
import { call as callNow, find as findThem, startCall as start } from "flowcell:host/tools@0.1.0";
import { called } from "../failure.js";
import { texts, toJson } from "../values.js";

export function find(...patterns) {
  return JSON.parse(called(() => findThem(texts(patterns, "patterns"))));
}

export function call(tool, input = {}, { toolUseId, agentRunId } = {}) {
  return JSON.parse(called(() => callNow(toJson({ tool, input, toolUseId, agentRunId })))).output;
}

export function startCall(tool, input = {}, { toolUseId, agentRunId } = {}) {
  return called(() => start(toJson({ tool, input, toolUseId, agentRunId })));
}
