// Turns of language models.
import { generate as generateNow, startGenerate as start } from "flowcell:host/model@0.1.0";
import { called } from "../failure.js";

export function generate(request) {
  return JSON.parse(called(() => generateNow(JSON.stringify(request))));
}

export function startGenerate(request) {
  return called(() => start(JSON.stringify(request)));
}

// All of a reply's text.
export function textOf({ content }) {
  return content.filter(({ type }) => type === "text").map(({ text }) => text).join("");
}

// The tools that a reply wants to be called, in its order.
export function toolUsesOf({ content }) {
  return content.filter(({ type }) => type === "tool_use");
}
