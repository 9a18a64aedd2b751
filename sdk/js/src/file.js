// File values, for content that is too large for a text, such as a body above 3 MiB.
import { readFile } from "flowcell:node/context@0.1.0";
import { called } from "./failure.js";

const PIECE = 1024 * 1024;

// Reads at most 1 MiB of a file value from `offset` on; empty at the end of the file.
export function readBytes(file, offset = 0, length = PIECE) {
  return called(() => readFile(JSON.stringify(file), offset, length));
}

// Reads the whole text of a file value, which must be UTF-8.
export function readText(file) {
  const texts = [];
  let rest = new Uint8Array();
  for (let offset = 0; ; ) {
    const piece = readBytes(file, offset);
    if (piece.length === 0) break;
    offset += piece.length;
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
    const part = bytes.subarray(at, Math.min(at + 8192, bytes.length));
    const end = at + part.length === bytes.length ? part.length : wholeCharacters(part);
    const escaped = Array.from(part.subarray(0, end), (byte) => `%${byte.toString(16).padStart(2, "0")}`);
    texts.push(decodeURIComponent(escaped.join("")));
    at += end;
  }
  return texts.join("");
}
