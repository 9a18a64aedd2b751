// Files of the tenant.
import { list as listFolder, read, remove as removeAt, stat as statAt, write } from "flowcell:host/files@0.1.0";
import { called } from "../failure.js";

export function readText(path) {
  return called(() => read(path, "text")).val;
}

export function readBytes(path) {
  return called(() => read(path, "bytes")).val;
}

export function readFile(path) {
  return JSON.parse(called(() => read(path, "file")).val);
}

export function writeText(path, text) {
  return Number(called(() => write(path, { tag: "text", val: text })));
}

export function writeBytes(path, bytes) {
  return Number(called(() => write(path, { tag: "bytes", val: bytes })));
}

export function writeFile(path, file) {
  return Number(called(() => write(path, { tag: "file", val: JSON.stringify(file) })));
}

export function list(path = "") {
  return called(() => listFolder(path)).map(entry);
}

export function stat(path) {
  const found = called(() => statAt(path));
  return found == null ? undefined : entry(found);
}

export function remove(path) {
  return called(() => removeAt(path));
}

// QuickJS gives a u64 as a number, other engines as a bigint, which JSON cannot express.
function entry({ path, kind, size, modifiedMs }) {
  return { path, kind, size: Number(size), modifiedMs: Number(modifiedMs) };
}
