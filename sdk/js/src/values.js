// Checks of the values that the host gets. The engine ends the sandbox at a value of another type, with a trap that names
// no line of the author. An error of the SDK names the value and the line.

// The largest number that the engine passes where the host takes 32 bits.
export const MAX_U32 = 2 ** 31 - 1;
const MAX_SHOWN = 40;

// Returns a whole number from 0 to `most`.
export function whole(value, name, most = Number.MAX_SAFE_INTEGER) {
  if (typeof value !== "number") throw wrong(value, name, "a whole number");
  if (!Number.isInteger(value) || value < 0 || value > most) {
    throw new RangeError(`\`${name}\` must be a whole number from 0 to ${most}, not ${value}`);
  }
  // Without the sign of -0.
  return value + 0;
}

// The same, or null for a value that is absent.
export function wholeIfGiven(value, name, most) {
  return value == null ? null : whole(value, name, most);
}

// Returns a whole number of milliseconds from 0 to `MAX_U32` that is near to a number. Undefined for an absent value.
export function delay(value, name) {
  if (value == null) return undefined;
  if (typeof value !== "number" || Number.isNaN(value)) throw wrong(value, name, "a number");
  return Math.ceil(Math.min(Math.max(value, 0), MAX_U32));
}

// Returns a number, also one that is not finite.
export function number(value, name) {
  if (typeof value !== "number") throw wrong(value, name, "a number");
  return value;
}

// Returns a text. Halves of characters become U+FFFD, as in a `TextEncoder`.
export function text(value, name) {
  if (typeof value !== "string") throw wrong(value, name, "a text");
  return value.toWellFormed();
}

export function texts(value, name) {
  if (!Array.isArray(value)) throw wrong(value, name, "a list");
  return value.map((item) => text(item, name));
}

// Returns one of these texts.
export function oneOf(value, names, name) {
  if (!names.includes(value)) throw wrong(value, name, `one of ${names.join(", ")}`);
  return value;
}

export function flag(value, name) {
  if (typeof value !== "boolean") throw wrong(value, name, "true or false");
  return value;
}

// Returns bytes as a `Uint8Array`.
export function bytes(value, name) {
  if (value instanceof Uint8Array) return value;
  if (ArrayBuffer.isView(value)) return new Uint8Array(value.buffer, value.byteOffset, value.byteLength);
  if (value instanceof ArrayBuffer) return new Uint8Array(value);
  throw wrong(value, name, "a Uint8Array");
}

// Returns the JSON of a value, or undefined for one without JSON. Halves of characters become U+FFFD: `JSON.stringify`
// writes them as escapes, which no reader of UTF-8 takes.
export function toJson(value) {
  const text = JSON.stringify(value);
  if (!text?.includes("\\ud")) return text;
  return text.replace(/\\(?:u(d[89a-f][0-9a-f]{2})|.)/g, (escape, half) => (half ? "\ufffd" : escape));
}

// Returns the JSON of a value that has one.
export function json(value, name) {
  const text = toJson(value);
  if (text === undefined) throw wrong(value, name, "a value that JSON expresses");
  return text;
}

function wrong(value, name, expected) {
  return new TypeError(`\`${name}\` must be ${expected}, not ${shown(value)}`);
}

function shown(value) {
  if (value === null || ["undefined", "number", "boolean"].includes(typeof value)) return String(value);
  if (typeof value === "bigint") return `${value}n`;
  if (typeof value === "string") return JSON.stringify(value.length > MAX_SHOWN ? `${value.slice(0, MAX_SHOWN)}…` : value);
  return Array.isArray(value) ? "a list" : { function: "a function", symbol: "a symbol" }[typeof value] ?? "an object";
}
