// Durable values for each tenant and flow name.
import { get as getEntry, set as setText, setIf as setTextIf } from "flowcell:host/state@0.1.0";
import { called } from "../failure.js";

export function get(key) {
  const entry = called(() => getEntry(key));
  return entry == null ? undefined : { value: JSON.parse(entry.value), version: Number(entry.version) };
}

export function set(key, value) {
  return Number(called(() => setText(key, JSON.stringify(value))));
}

export function setIf(key, value, expected) {
  const version = called(() => setTextIf(key, JSON.stringify(value), expected ?? null));
  return version == null ? undefined : Number(version);
}
