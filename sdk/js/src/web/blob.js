// Bytes with a media type, and forms.
import { Promise } from "./promise.js";
import { TextDecoder, TextEncoder, bytesOf } from "./text.js";

export class Blob {
  #bytes;
  #type;

  constructor(parts = [], { type = "" } = {}) {
    this.#bytes = joined(Array.from(parts, partBytes));
    this.#type = String(type).toLowerCase();
  }

  get size() {
    return this.#bytes.length;
  }

  get type() {
    return this.#type;
  }

  slice(start = 0, end = this.size, type = "") {
    return new Blob([this.#bytes.slice(start, end)], { type });
  }

  bytes() {
    return Promise.resolve(this.#bytes.slice());
  }

  arrayBuffer() {
    return Promise.resolve(this.#bytes.slice().buffer);
  }

  text() {
    return Promise.resolve(new TextDecoder().decode(this.#bytes));
  }

  static bytesOf(blob) {
    return blob.#bytes;
  }
}

export class File extends Blob {
  constructor(parts, name, options = {}) {
    super(parts, options);
    this.name = String(name);
    this.lastModified = options.lastModified ?? Date.now();
  }
}

export class FormData {
  #entries = [];

  append(name, value, fileName) {
    this.#entries.push([String(name), entryValue(value, fileName)]);
  }

  set(name, value, fileName) {
    this.delete(name);
    this.append(name, value, fileName);
  }

  delete(name) {
    this.#entries = this.#entries.filter(([key]) => key !== String(name));
  }

  get(name) {
    return this.#entries.find(([key]) => key === String(name))?.[1] ?? null;
  }

  getAll(name) {
    return this.#entries.filter(([key]) => key === String(name)).map(([, value]) => value);
  }

  has(name) {
    return this.#entries.some(([key]) => key === String(name));
  }

  forEach(callback, self) {
    for (const [name, value] of this) Reflect.apply(callback, self, [value, name, this]);
  }

  *entries() {
    yield* this.#entries.map(([name, value]) => [name, value]);
  }

  *keys() {
    for (const [name] of this) yield name;
  }

  *values() {
    for (const [, value] of this) yield value;
  }

  [Symbol.iterator]() {
    return this.entries();
  }

  get [Symbol.toStringTag]() {
    return "FormData";
  }
}

// The body of a request with a form, and its media type.
export function multipart(form) {
  const boundary = `flowcell-${Array.from({ length: 4 }, () => Math.random().toString(36).slice(2, 10)).join("")}`;
  const parts = [];
  for (const [name, value] of form) {
    const isFile = value instanceof Blob;
    const file = isFile ? `; filename="${escaped(value.name)}"\r\nContent-Type: ${value.type || "application/octet-stream"}` : "";
    parts.push(`--${boundary}\r\nContent-Disposition: form-data; name="${escaped(name)}"${file}\r\n\r\n`);
    parts.push(isFile ? value : value.replace(/\r?\n|\r/g, "\r\n"), "\r\n");
  }
  parts.push(`--${boundary}--\r\n`);
  return { bytes: joined(parts.map(partBytes)), type: `multipart/form-data; boundary=${boundary}` };
}

export function joined(pieces) {
  const bytes = new Uint8Array(pieces.reduce((size, piece) => size + piece.length, 0));
  let at = 0;
  for (const piece of pieces) {
    bytes.set(piece, at);
    at += piece.length;
  }
  return bytes;
}

function partBytes(part) {
  if (part instanceof Blob) return Blob.bytesOf(part);
  if (typeof part === "object" && part !== null && (part instanceof ArrayBuffer || ArrayBuffer.isView(part))) {
    return bytesOf(part).slice();
  }
  return new TextEncoder().encode(String(part));
}

function entryValue(value, fileName) {
  if (!(value instanceof Blob)) return String(value);
  const name = fileName ?? value.name ?? "blob";
  return value instanceof File && name === value.name ? value : new File([value], name, { type: value.type });
}

function escaped(name) {
  return name.replace(/\r\n?|\n/g, "%0D%0A").replace(/"/g, "%22");
}
