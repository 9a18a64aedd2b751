// Agent runs: invocations of an agent that people can watch and write to.
import { close as closeRun, open as openRun, tell as tellRun } from "flowcell:host/agent@0.1.0";
import { called, toHost } from "../failure.js";

export function open(about = {}) {
  return called(() => openRun(JSON.stringify(about)));
}

export function tell(run, kind, data = {}) {
  called(() => tellRun(run, kind, JSON.stringify(data)));
}

export function close(run, result = {}) {
  called(() => closeRun(run, { tag: "ok", val: JSON.stringify(result) }));
}

export function fail(run, failure) {
  called(() => closeRun(run, { tag: "err", val: toHost(failure) }));
}
