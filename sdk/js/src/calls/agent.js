// Agent runs: invocations of an agent that people can watch and write to.
import { close as closeRun, open as openRun, tell as tellRun } from "flowcell:host/agent@0.1.0";
import { called, toHost } from "../failure.js";
import { json, text } from "../values.js";

export function open(about = {}) {
  return called(() => openRun(json(about, "about")));
}

export function tell(run, kind, data = {}) {
  called(() => tellRun(text(run, "run"), text(kind, "kind"), json(data, "data")));
}

export function close(run, result = {}) {
  called(() => closeRun(text(run, "run"), { tag: "ok", val: json(result, "result") }));
}

export function fail(run, failure) {
  called(() => closeRun(text(run, "run"), { tag: "err", val: toHost(failure) }));
}
