// The parts of a task. They are read lazily: one field of a large input costs only that field.
import { getJson, getText, len } from "flowcell:node/context@0.1.0";
import { text as checkedText } from "./values.js";

export class Task {
  get input() {
    return read("input") ?? null;
  }

  get config() {
    return read("config") ?? {};
  }

  // The state that the last pause kept; undefined in the first run.
  get state() {
    return read("state");
  }

  // The wake that ended the last pause; undefined in the first run.
  get woken() {
    return read("woken");
  }

  get info() {
    return read("task") ?? {};
  }

  inputAt(path) {
    return read("input", path);
  }

  inputText(path) {
    return getText("input", checkedText(path, "path")) ?? undefined;
  }

  inputLength(path) {
    return len("input", checkedText(path, "path")) ?? undefined;
  }
}

// Reads a part of the task. Returns undefined if it does not exist.
function read(part, path = "") {
  const text = getJson(part, checkedText(path, "path"));
  return text == null ? undefined : JSON.parse(text);
}
