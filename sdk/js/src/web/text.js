// UTF-8, which QuickJS has no coders for. Functions of the engine do the work, because they are much faster than loops.
import { binaryBytes, binaryText } from "./base64.js";

const REPLACEMENT = 0xfffd;
// Bytes or characters that are coded together.
const PART = 64 * 1024;
// Characters of wrong texts that are joined together. They are arguments of a function, which need stack.
const CODES = 4096;

export class TextEncoder {
  get encoding() {
    return "utf-8";
  }

  encode(text = "") {
    const given = String(text);
    if (given.length <= PART) return encoded(given);
    const parts = [];
    for (let at = 0; at < given.length; ) {
      const part = wholePart(given, at, at + PART);
      parts.push(encoded(part));
      at += part.length;
    }
    const bytes = new Uint8Array(parts.reduce((size, part) => size + part.length, 0));
    let at = 0;
    for (const part of parts) {
      bytes.set(part, at);
      at += part.length;
    }
    return bytes;
  }

  encodeInto(text, target) {
    // A character has at least one byte.
    const given = wholePart(String(text), 0, target.length);
    const bytes = this.encode(given);
    if (bytes.length <= target.length) {
      target.set(bytes);
      return { read: given.length, written: bytes.length };
    }
    const whole = bytes.subarray(0, wholeCharacters(bytes.subarray(0, target.length)));
    target.set(whole);
    return { read: new TextDecoder("utf-8", { ignoreBOM: true }).decode(whole).length, written: whole.length };
  }
}

// Returns the characters between two indexes, without half of a pair at the end.
function wholePart(text, from, to) {
  const last = to < text.length ? text.charCodeAt(to - 1) : 0;
  return text.slice(from, last >= 0xd800 && last <= 0xdbff ? to - 1 : to);
}

function encoded(text) {
  return binaryBytes(/[^\0-\x7f]/.test(text) ? unescape(encodeURIComponent(text.toWellFormed())) : text);
}

export class TextDecoder {
  #fatal;
  #ignoreBOM;
  // Bytes of a character whose end has not arrived.
  #rest = [];
  #isBegun = false;

  constructor(label = "utf-8", { fatal = false, ignoreBOM = false } = {}) {
    const name = String(label).trim().toLowerCase();
    if (!["utf-8", "utf8", "unicode-1-1-utf-8"].includes(name)) {
      throw new RangeError(`\`${label}\` is not supported: this engine decodes UTF-8 only`);
    }
    this.#fatal = Boolean(fatal);
    this.#ignoreBOM = Boolean(ignoreBOM);
  }

  get encoding() {
    return "utf-8";
  }

  get fatal() {
    return this.#fatal;
  }

  get ignoreBOM() {
    return this.#ignoreBOM;
  }

  decode(input, { stream = false } = {}) {
    const given = input === undefined ? new Uint8Array() : bytesOf(input);
    const bytes = this.#rest.length === 0 ? given : Uint8Array.from([...this.#rest, ...given]);
    this.#rest = [];
    const texts = [];
    let codes = [];
    let slowUntil = 0;
    for (let at = 0; at < bytes.length; ) {
      if (at >= slowUntil) {
        const part = decodedPart(bytes, at);
        if (part !== undefined) {
          const isMark = !this.#isBegun && !this.#ignoreBOM && part.text.startsWith("\ufeff");
          texts.push(String.fromCodePoint(...codes), isMark ? part.text.slice(1) : part.text);
          codes = [];
          this.#isBegun = true;
          at += part.length;
          continue;
        }
        slowUntil = at + PART;
      }
      const { code, length, isOpen } = decodeOne(bytes, at);
      if (isOpen && stream) {
        this.#rest = Array.from(bytes.subarray(at));
        break;
      }
      if (code === undefined && this.#fatal) {
        this.#isBegun = false;
        throw new TypeError("the bytes are not UTF-8");
      }
      const isMark = !this.#isBegun && code === 0xfeff && !this.#ignoreBOM;
      this.#isBegun = true;
      if (!isMark) codes.push(code ?? REPLACEMENT);
      at += length;
      if (codes.length === CODES) {
        texts.push(String.fromCodePoint(...codes));
        codes = [];
      }
    }
    if (!stream) this.#isBegun = false;
    texts.push(String.fromCodePoint(...codes));
    return texts.join("");
  }
}

// Returns the text of the next bytes, and their number. Undefined if they are not UTF-8, or are not a whole character.
function decodedPart(bytes, at) {
  const part = bytes.subarray(at, at + PART);
  const length = wholeCharacters(part);
  if (length === 0) return undefined;
  const text = binaryText(part.subarray(0, length));
  if (!/[^\0-\x7f]/.test(text)) return { text, length };
  try {
    return { text: decodeURIComponent(escape(text)), length };
  } catch {
    return undefined;
  }
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

// Decodes a character. Of wrong bytes, `length` are the longest part that begins a character, and `code` is absent;
// `isOpen` says that further bytes could complete it.
function decodeOne(bytes, at) {
  const lead = bytes[at];
  if (lead < 0x80) return { code: lead, length: 1 };
  const size = lead >= 0xf0 && lead <= 0xf4 ? 4 : lead >= 0xe0 && lead < 0xf0 ? 3 : lead >= 0xc2 && lead < 0xe0 ? 2 : 0;
  if (size === 0) return { length: 1 };
  // The second byte excludes long forms, surrogates and codes that are too large.
  let low = lead === 0xe0 ? 0xa0 : lead === 0xf0 ? 0x90 : 0x80;
  let high = lead === 0xed ? 0x9f : lead === 0xf4 ? 0x8f : 0xbf;
  let code = lead & (0xff >> (size + 1));
  for (let length = 1; length < size; length++) {
    const byte = bytes[at + length];
    if (byte === undefined) return { length, isOpen: true };
    if (byte < low || byte > high) return { length };
    code = (code << 6) | (byte & 63);
    low = 0x80;
    high = 0xbf;
  }
  return { code, length: size };
}

// The bytes of a buffer or of a view.
export function bytesOf(value) {
  if (value instanceof Uint8Array) return value;
  if (ArrayBuffer.isView(value)) return new Uint8Array(value.buffer, value.byteOffset, value.byteLength);
  if (value instanceof ArrayBuffer) return new Uint8Array(value);
  throw new TypeError("bytes are an ArrayBuffer or a view of one");
}
