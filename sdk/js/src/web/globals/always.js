// Globals that each bundle of `flowcell node build` has. The build puts this module before all others.
import { AbortController, AbortSignal, Event, EventTarget } from "../abort.js";
import { atob, btoa } from "../base64.js";
import { mapStacks } from "../../lines.js";
import { console } from "../console.js";
import { DOMException } from "../exception.js";
import { enqueue } from "../jobs.js";
import { clearTimer, setTimer } from "../loop.js";
import { Promise } from "../promise.js";
import { define } from "./define.js";
import { TextDecoder, TextEncoder } from "../text.js";

function queueMicrotask(callback) {
  if (typeof callback !== "function") throw new TypeError("a microtask needs a function");
  enqueue(() => callback());
}

async function fromAsync(items, map = (item) => item) {
  const all = [];
  for await (const item of items) all.push(await map(item, all.length));
  return all;
}

const globals = {
  AbortController,
  AbortSignal,
  DOMException,
  Event,
  EventTarget,
  Promise,
  TextDecoder,
  TextEncoder,
  atob,
  btoa,
  clearImmediate: clearTimer,
  clearInterval: clearTimer,
  clearTimeout: clearTimer,
  console,
  navigator: { userAgent: "Flowcell", language: "en", languages: ["en"], hardwareConcurrency: 1, onLine: true, platform: "" },
  queueMicrotask,
  self: globalThis,
  setImmediate: (callback, ...args) => setTimer(callback, 0, args, false),
  setInterval: (callback, delayMs, ...args) => setTimer(callback, delayMs, args, true),
  setTimeout: (callback, delayMs, ...args) => setTimer(callback, delayMs, args, false),
};

define(globals);
// The engine's own gives a promise of the engine.
Array.fromAsync = fromAsync;
mapStacks();
