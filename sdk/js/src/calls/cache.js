// A cache for each tenant. The host may drop a value at any time.
import { get as getText, set as setText } from "flowcell:host/cache@0.1.0";
import { called } from "../failure.js";
import { json, text as checkedText, wholeIfGiven } from "../values.js";

export function get(key) {
  const text = called(() => getText(checkedText(key, "key")));
  return text == null ? undefined : JSON.parse(text);
}

export function set(key, value, { ttlMs } = {}) {
  const entry = [checkedText(key, "key"), json(value, "value"), wholeIfGiven(ttlMs, "ttlMs")];
  called(() => setText(...entry));
}
