// Measurements.
import { measure as measureNow } from "flowcell:host/metrics@0.1.0";
import { number, text } from "../values.js";

export function measure(name, value, tags = {}) {
  const named = Object.entries(tags).map(([key, tag]) => [key.toWellFormed(), String(tag).toWellFormed()]);
  measureNow(text(name, "name"), number(value, "value"), named);
}
