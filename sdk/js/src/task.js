// What a node is given, read lazily: one field of a large input costs one field.
import { getJson, getText, len } from "flowcell:node/context@0.1.0";

export class Task {
  get input() {
    return read("input") ?? null;
  }

  get config() {
    return read("config") ?? {};
  }

  // What the last pause remembered; undefined on the first run.
  get state() {
    return read("state");
  }

  // What ended the last pause; undefined on the first run.
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
    return getText("input", path) ?? undefined;
  }

  inputLength(path) {
    return len("input", path) ?? undefined;
  }
}

// A part of the task; undefined: there is none.
function read(part, path = "") {
  const text = getJson(part, path);
  return text == null ? undefined : JSON.parse(text);
}
