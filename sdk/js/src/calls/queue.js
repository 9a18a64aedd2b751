// Events that arrive while a task runs: the ends of its calls, and messages to its agent runs.
import { nextEvent } from "flowcell:host/queue@0.1.0";
import { ofHost } from "../failure.js";

export function next({ timeoutMs } = {}) {
  const event = nextEvent(timeoutMs ?? null);
  switch (event?.tag) {
    case "call-result":
      return ended(event.val);
    case "message":
      return { kind: "message", agentRun: event.val.agentRun, id: event.val.id, value: JSON.parse(event.val.value) };
    case "closing":
      return { kind: "closing", agentRun: event.val };
    default:
      return undefined;
  }
}

function ended({ id, outcome: { tag, val } }) {
  return tag === "ok" ? { kind: "ended", call: id, value: JSON.parse(val) } : { kind: "ended", call: id, failure: ofHost(val) };
}
