// `process` of Node.js, without an operating system behind it.

function nothing() {
  return process;
}

export const process = {
  argv: [],
  browser: true,
  cwd: () => "/",
  env: {},
  exitCode: undefined,
  nextTick: (callback, ...args) => queueMicrotask(() => callback(...args)),
  platform: "flowcell",
  version: "",
  versions: {},
  emitWarning: (warning) => console.warn(String(warning)),
  addListener: nothing,
  emit: () => false,
  off: nothing,
  on: nothing,
  once: nothing,
  removeListener: nothing,
};

export default process;
