// Log lines for people.
import { log } from "flowcell:host/log@0.1.0";
import { oneOf } from "../values.js";

const LEVELS = ["trace", "debug", "info", "warn", "error"];

export function write(level, message) {
  log(oneOf(level, LEVELS, "level"), String(message).toWellFormed());
}

export const debug = (message) => write("debug", message);
export const info = (message) => write("info", message);
export const warn = (message) => write("warn", message);
export const error = (message) => write("error", message);
