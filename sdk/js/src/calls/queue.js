// Events that arrive while a task runs: the ends of its calls, and messages to its agent runs.
import { ofHost } from "../failure.js";
import { MAX_U32, whole } from "../values.js";
import { ended as endOf, received as nextReceived, take } from "../web/loop.js";

export function next({ timeoutMs } = {}) {
  return shown(take(timeoutMs === undefined ? undefined : whole(timeoutMs, "timeoutMs", MAX_U32)));
}

// Like `next`, but `await` waits for it.
export function received() {
  return nextReceived().then(shown);
}

// Waits for the end of a call. `next` does not return this end.
export function ended(call) {
  return endOf(call);
}

function shown(event) {
  switch (event?.tag) {
    case "call-result":
      return callEnded(event.val);
    case "message":
      return { kind: "message", agentRun: event.val.agentRun, id: event.val.id, value: JSON.parse(event.val.value) };
    case "closing":
      return { kind: "closing", agentRun: event.val };
    default:
      return undefined;
  }
}

function callEnded({ id, outcome: { tag, val } }) {
  return tag === "ok" ? { kind: "ended", call: id, value: JSON.parse(val) } : { kind: "ended", call: id, failure: ofHost(val) };
}
