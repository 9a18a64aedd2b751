// Durable values for each tenant and flow name.
import { get as getEntry, set as setText, setIf as setTextIf } from "flowcell:host/state@0.1.0";
import { called } from "../failure.js";
import { json, text, wholeIfGiven } from "../values.js";

export function get(key) {
  const entry = called(() => getEntry(text(key, "key")));
  return entry == null ? undefined : { value: JSON.parse(entry.value), version: Number(entry.version) };
}

export function set(key, value) {
  return Number(called(() => setText(text(key, "key"), json(value, "value"))));
}

export function setIf(key, value, expected) {
  const entry = [text(key, "key"), json(value, "value"), wholeIfGiven(expected, "expected")];
  const version = called(() => setTextIf(...entry));
  return version == null ? undefined : Number(version);
}
