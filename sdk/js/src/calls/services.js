// Services that the operator offers to flows by name, such as `img` and `agent`.
import { startCall as start } from "flowcell:host/services@0.1.0";
import { called } from "../failure.js";
import { toJson } from "../values.js";

export function startCall(service, args = [], { callId = service } = {}) {
  return called(() => start(toJson({ kind: "flow-service-call", callId, service, args })));
}
