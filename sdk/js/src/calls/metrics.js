// Measurements.
import { measure as measureNow } from "flowcell:host/metrics@0.1.0";

export function measure(name, value, tags = {}) {
  measureNow(name, value, Object.entries(tags).map(([key, tag]) => [key, String(tag)]));
}
