// `timers/promises` of Node.js.
export function setTimeout(delayMs, value) {
  return new Promise((resolve) => globalThis.setTimeout(resolve, delayMs, value));
}

export function setImmediate(value) {
  return setTimeout(0, value);
}

export async function* setInterval(delayMs, value) {
  for (;;) yield await setTimeout(delayMs, value);
}
