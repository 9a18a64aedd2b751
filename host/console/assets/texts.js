// @ts-check
/** Texts that nobody has checked. */

/** Returns a text with escapes in place of the characters that the server shows as escapes, too. @param {string} text */
export function visible(text) {
  const deceptive = /[\p{Cc}\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u2069\ufeff\u{e0000}-\u{e007f}]/gu;
  return text.replace(deceptive, (c) => (c === "\n" || c === "\t" ? c : `\\u{${c.codePointAt(0)?.toString(16)}}`));
}
