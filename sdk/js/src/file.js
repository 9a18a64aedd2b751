// File values, for content that is too large for a text, such as a body above 3 MiB.
import { readFile } from "flowcell:node/context@0.1.0";
import { append, discard, finish, open } from "flowcell:host/file-writer@0.1.0";
import { called } from "./failure.js";
import { MAX_U32, bytes as checkedBytes, json, text, whole } from "./values.js";
import { TextDecoder } from "./web/text.js";

const PIECE = 1024 * 1024;

// Reads at most 1 MiB of a file value from `offset` on; empty at the end of the file.
export function readBytes(file, offset = 0, length = PIECE) {
  const place = [json(file, "file"), whole(offset, "offset"), whole(length, "length", MAX_U32)];
  return called(() => readFile(...place));
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
  const decoder = strict();
  // The parts of a line whose end has not arrived.
  let open = [];
  for (const piece of chunks(file)) {
    const text = decoder.decode(piece, { stream: true });
    let begin = 0;
    for (let end = text.indexOf("\n"); end !== -1; end = text.indexOf("\n", begin)) {
      const part = text.slice(begin, end);
      yield withoutReturn(open.length === 0 ? part : open.join("") + part);
      open = [];
      begin = end + 1;
    }
    if (begin < text.length) open.push(text.slice(begin));
  }
  open.push(decoder.decode());
  const last = open.join("");
  if (last !== "") yield withoutReturn(last);
}

function withoutReturn(line) {
  return line.endsWith("\r") ? line.slice(0, -1) : line;
}

// Writes a new file value in parts. The host receives parts of at most 1 MiB.
export class Writer {
  #number = called(() => open());

  // Adds bytes at the end. Returns the size so far.
  write(bytes) {
    const given = checkedBytes(bytes, "bytes");
    let size = 0;
    for (let at = 0; at < given.length || at === 0; at += PIECE) {
      size = Number(called(() => append(this.#number, given.subarray(at, at + PIECE))));
    }
    return size;
  }

  // Ends the file, and returns the file value.
  finish(mime = "application/octet-stream") {
    return JSON.parse(called(() => finish(this.#number, text(mime, "mime"))));
  }

  // Discards the file. Does nothing once it is finished.
  discard() {
    discard(this.#number);
  }
}

// Reads the whole text of a file value, which must be UTF-8.
export function readText(file) {
  const decoder = strict();
  const texts = [];
  for (const piece of chunks(file)) texts.push(decoder.decode(piece, { stream: true }));
  return texts.join("") + decoder.decode();
}

// Decodes bytes, which must be UTF-8.
export function decoded(bytes) {
  return strict().decode(bytes);
}

// A decoder that fails at bytes that are not UTF-8, and keeps a mark at the beginning.
function strict() {
  return new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });
}
