// Turns of language models.
import { generate as generateNow, startGenerate as start } from "flowcell:host/model@0.1.0";
import { called } from "../failure.js";
import { json } from "../values.js";

export function generate(request) {
  return JSON.parse(called(() => generateNow(json(request, "request"))));
}

export function startGenerate(request) {
  return called(() => start(json(request, "request")));
}

// The whole text of a reply.
export function textOf({ content }) {
  return content.filter(({ type }) => type === "text").map(({ text }) => text).join("");
}

// The tool uses of a reply, in its order.
export function toolUsesOf({ content }) {
  return content.filter(({ type }) => type === "tool_use");
}
