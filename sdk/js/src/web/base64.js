// Base64 of texts whose characters are bytes.

const ALPHABET = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

export function btoa(text) {
  const bytes = Array.from(String(text), (char) => char.codePointAt(0));
  if (bytes.some((byte) => byte > 255)) throw wrong("the text has characters that are no bytes");
  let encoded = "";
  for (let at = 0; at < bytes.length; at += 3) {
    const [a, b, c] = bytes.slice(at, at + 3);
    const bits = (a << 16) | ((b ?? 0) << 8) | (c ?? 0);
    encoded += ALPHABET[bits >> 18] + ALPHABET[(bits >> 12) & 63];
    encoded += (b === undefined ? "=" : ALPHABET[(bits >> 6) & 63]) + (c === undefined ? "=" : ALPHABET[bits & 63]);
  }
  return encoded;
}

export function atob(encoded) {
  let digits = String(encoded).replace(/[\t\n\f\r ]/g, "");
  if (digits.length % 4 === 0) digits = digits.replace(/==?$/, "");
  if (digits.length % 4 === 1 || /[^A-Za-z0-9+/]/.test(digits)) throw wrong("the text is not Base64");
  const bytes = [];
  let bits = 0;
  let count = 0;
  for (const digit of digits) {
    bits = ((bits << 6) | ALPHABET.indexOf(digit)) & 0xffff;
    count += 6;
    if (count >= 8) {
      count -= 8;
      bytes.push(String.fromCharCode((bits >> count) & 255));
    }
  }
  return bytes.join("");
}

function wrong(message) {
  return new DOMException(message, "InvalidCharacterError");
}
