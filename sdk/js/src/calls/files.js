// Files of the tenant.
import { list as listFolder, read, remove as removeAt, stat as statAt, write } from "flowcell:host/files@0.1.0";
import { called } from "../failure.js";
import { bytes as checkedBytes, json, text as checkedText } from "../values.js";

export function readText(path) {
  return called(() => read(at(path), "text")).val;
}

export function readBytes(path) {
  return called(() => read(at(path), "bytes")).val;
}

export function readFile(path) {
  return JSON.parse(called(() => read(at(path), "file")).val);
}

export function writeText(path, text) {
  return Number(called(() => write(at(path), { tag: "text", val: checkedText(text, "text") })));
}

export function writeBytes(path, bytes) {
  return Number(called(() => write(at(path), { tag: "bytes", val: checkedBytes(bytes, "bytes") })));
}

export function writeFile(path, file) {
  return Number(called(() => write(at(path), { tag: "file", val: json(file, "file") })));
}

export function list(path = "") {
  return called(() => listFolder(at(path))).map(entry);
}

export function stat(path) {
  const found = called(() => statAt(at(path)));
  return found == null ? undefined : entry(found);
}

export function remove(path) {
  return called(() => removeAt(at(path)));
}

function at(path) {
  return checkedText(path, "path");
}

// QuickJS gives a u64 as a number, other engines as a bigint, which JSON cannot express.
function entry({ path, kind, size, modifiedMs }) {
  return { path, kind, size: Number(size), modifiedMs: Number(modifiedMs) };
}
