// Base64, and texts whose characters are bytes. The engine's own functions are much faster than loops.

const engine = { atob: globalThis.atob, btoa: globalThis.btoa };

export function btoa(text) {
  try {
    return engine.btoa(String(text));
  } catch {
    throw wrong("the text has characters that are no bytes");
  }
}

export function atob(encoded) {
  try {
    return engine.atob(String(encoded));
  } catch {
    throw wrong("the text is not Base64");
  }
}

// Returns a text with one character for each byte.
export function binaryText(bytes) {
  return engine.atob(bytes.toBase64());
}

// Returns the bytes of a text that has one character for each.
export function binaryBytes(text) {
  return Uint8Array.fromBase64(engine.btoa(text));
}

function wrong(message) {
  return new DOMException(message, "InvalidCharacterError");
}
