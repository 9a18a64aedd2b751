// File values, for content that is too large for a text, such as a body above 3 MiB.
import { readFile } from "flowcell:node/context@0.1.0";
import { append, discard, finish, open } from "flowcell:host/file-writer@0.1.0";
import { called } from "./failure.js";
import { asciiPart } from "./web/text.js";

const PIECE = 1024 * 1024;

// Reads at most 1 MiB of a file value from `offset` on; empty at the end of the file.
export function readBytes(file, offset = 0, length = PIECE) {
  return called(() => readFile(JSON.stringify(file), offset, length));
}

// Reads a file value from `offset` on, in pieces of at most 1 MiB.
export function* chunks(file, offset = 0) {
  for (let at = offset; ; ) {
    const piece = readBytes(file, at);
    if (piece.length === 0) return;
    at += piece.length;
    yield piece;
  }
}

// Reads the lines of a file value, which must be UTF-8, without their ends.
export function* lines(file) {
  let parts = [];
  for (const piece of chunks(file)) {
    let begin = 0;
    for (let end = piece.indexOf(10); end !== -1; end = piece.indexOf(10, begin)) {
      parts.push(piece.subarray(begin, end));
      yield line(parts);
      parts = [];
      begin = end + 1;
    }
    if (begin < piece.length) parts.push(piece.slice(begin));
  }
  if (parts.length > 0) yield line(parts);
}

function line(parts) {
  const bytes = parts.length === 1 ? parts[0] : joined(parts);
  const end = bytes.length > 0 && bytes[bytes.length - 1] === 13 ? bytes.length - 1 : bytes.length;
  return decoded(bytes.subarray(0, end));
}

function joined(parts) {
  const bytes = new Uint8Array(parts.reduce((size, part) => size + part.length, 0));
  let at = 0;
  for (const part of parts) {
    bytes.set(part, at);
    at += part.length;
  }
  return bytes;
}

// Writes a new file value in parts. The host receives parts of at most 1 MiB.
export class Writer {
  #number = called(() => open());

  // Adds bytes at the end. Returns the size so far.
  write(bytes) {
    let size = 0;
    for (let at = 0; at < bytes.length || at === 0; at += PIECE) {
      size = Number(called(() => append(this.#number, bytes.subarray(at, at + PIECE))));
    }
    return size;
  }

  // Ends the file, and returns the file value.
  finish(mime = "application/octet-stream") {
    return JSON.parse(called(() => finish(this.#number, mime)));
  }

  // Discards the file. Does nothing once it is finished.
  discard() {
    discard(this.#number);
  }
}

// Reads the whole text of a file value, which must be UTF-8.
export function readText(file) {
  const texts = [];
  let rest = new Uint8Array();
  for (const piece of chunks(file)) {
    const bytes = new Uint8Array(rest.length + piece.length);
    bytes.set(rest);
    bytes.set(piece, rest.length);
    const end = wholeCharacters(bytes);
    texts.push(decoded(bytes.subarray(0, end)));
    rest = bytes.slice(end);
  }
  return texts.join("") + decoded(rest);
}

// Returns the end of the last complete character.
function wholeCharacters(bytes) {
  let start = bytes.length;
  while (start > 0 && bytes.length - start < 3 && (bytes[start - 1] & 0xc0) === 0x80) start--;
  if (start === 0) return bytes.length;
  const lead = bytes[start - 1];
  const size = lead >= 0xf0 ? 4 : lead >= 0xe0 ? 3 : lead >= 0xc0 ? 2 : 1;
  return start - 1 + size > bytes.length ? start - 1 : bytes.length;
}

// Decodes UTF-8, in parts that use little stack. QuickJS has no TextDecoder.
export function decoded(bytes) {
  const texts = [];
  for (let at = 0; at < bytes.length; ) {
    const ascii = asciiPart(bytes, at);
    if (ascii !== undefined) {
      texts.push(ascii);
      at += ascii.length;
      continue;
    }
    const part = bytes.subarray(at, Math.min(at + 8192, bytes.length));
    const end = at + part.length === bytes.length ? part.length : wholeCharacters(part);
    const escaped = Array.from(part.subarray(0, end), (byte) => `%${byte.toString(16).padStart(2, "0")}`);
    texts.push(decodeURIComponent(escaped.join("")));
    at += end;
  }
  return texts.join("");
}
