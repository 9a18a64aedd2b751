// UTF-8, which QuickJS has no coders for.

const REPLACEMENT = 0xfffd;
// Bytes that are decoded together. They are arguments of a function, which need stack.
const PART = 4096;

export class TextEncoder {
  get encoding() {
    return "utf-8";
  }

  encode(text = "") {
    const given = String(text);
    const bytes = new Uint8Array(given.length * 3);
    let at = 0;
    for (const char of given) {
      const code = char.codePointAt(0);
      at = put(bytes, at, code >= 0xd800 && code <= 0xdfff ? REPLACEMENT : code);
    }
    return bytes.slice(0, at);
  }

  encodeInto(text, target) {
    let read = 0;
    let written = 0;
    for (const char of String(text)) {
      const bytes = this.encode(char);
      if (written + bytes.length > target.length) break;
      target.set(bytes, written);
      written += bytes.length;
      read += char.length;
    }
    return { read, written };
  }
}

// Writes a character at an index. Returns the index behind it.
function put(bytes, at, code) {
  if (code < 0x80) {
    bytes[at] = code;
    return at + 1;
  }
  const rest = code < 0x800 ? 1 : code < 0x10000 ? 2 : 3;
  bytes[at] = [0, 0xc0, 0xe0, 0xf0][rest] | (code >> (6 * rest));
  for (let left = rest - 1; left >= 0; left--) bytes[at + rest - left] = 0x80 | ((code >> (6 * left)) & 63);
  return at + rest + 1;
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
        const ascii = asciiPart(bytes, at);
        if (ascii !== undefined) {
          texts.push(String.fromCodePoint(...codes), ascii);
          codes = [];
          this.#isBegun = true;
          at += ascii.length;
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
      if (codes.length === PART) {
        texts.push(String.fromCodePoint(...codes));
        codes = [];
      }
    }
    if (!stream) this.#isBegun = false;
    texts.push(String.fromCodePoint(...codes));
    return texts.join("");
  }
}

// Returns the next bytes as a text if all of them are ASCII. These calls of the engine are much faster than a loop.
export function asciiPart(bytes, at) {
  const text = String.fromCharCode.apply(null, bytes.subarray(at, at + PART));
  return /[^\0-\x7f]/.test(text) ? undefined : text;
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
