// A cache for each tenant. The host may drop a value at any time.
import { get as getText, set as setText } from "flowcell:host/cache@0.1.0";
import { called } from "../failure.js";

export function get(key) {
  const text = called(() => getText(key));
  return text == null ? undefined : JSON.parse(text);
}

export function set(key, value, { ttlMs } = {}) {
  called(() => setText(key, JSON.stringify(value), ttlMs ?? null));
}
