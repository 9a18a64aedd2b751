// The event loop: timers, and the ends of calls that promises wait for. The host records the order of the events, so an
// attempt that is repeated gets them in the same order.
import { nextEvent } from "flowcell:host/queue@0.1.0";
import { Failure, ofHost } from "../failure.js";
import { running } from "../running.js";
import { drain, unhandledRejections } from "./jobs.js";
import { Promise } from "./promise.js";

// A delay above it means no delay, as in browsers.
const MAX_DELAY_MS = 2 ** 31 - 1;

// The promises of calls, by call.
const calls = new Map();
// The ends of calls and the messages that no promise waits for, for `queue.next`.
const events = [];
// Functions that wait for the next such event.
const receivers = [];
// Timers by id.
const timers = new Map();
// The timers by their time, the first one last. Of several with one time, the one that was set first is behind the others.
const dues = [];
let lastTimer = 0;
// The time that timers see. A wait moves it on, also if the clock of the attempt stands still.
let waitedUntil = 0;

// Returns a promise for the end of a call that was started, also if the end has arrived already.
export function ended(call) {
  const known = calls.get(call);
  if (known !== undefined) return known.promise;
  const waiting = Promise.withResolvers();
  calls.set(call, waiting);
  const at = events.findIndex(({ tag, val }) => tag === "call-result" && val.id === call);
  if (at >= 0) settle(events.splice(at, 1)[0]);
  return waiting.promise;
}

// Returns a promise for the next event that is not the end of an awaited call.
export function received() {
  if (events.length > 0) return Promise.resolve(events.shift());
  return new Promise((resolve) => receivers.push(resolve));
}

// Waits for the next event that is not the end of an awaited call, without running promises. Returns undefined if the
// time is up, or if no event can arrive.
export function take(timeoutMs) {
  if (events.length > 0) return events.shift();
  const end = timeoutMs === undefined ? undefined : now() + timeoutMs;
  for (;;) {
    const event = nextEvent(end === undefined ? null : Math.max(0, end - now()));
    if (event == null) {
      if (end !== undefined) waitedUntil = Math.max(waitedUntil, end);
      return undefined;
    }
    if (!settle(event)) return event;
  }
}

// Runs promises, timers and calls until this promise is settled. Returns its value.
export function finish(promise) {
  for (;;) {
    drain();
    const { state, value } = Promise.stateOf(promise);
    if (state === "rejected") throw value;
    const [forgotten] = unhandledRejections();
    if (forgotten !== undefined) throw Promise.reasonOf(forgotten);
    if (state === "fulfilled") return value;
    wait();
  }
}

export function setTimer(callback, delayMs, args, every) {
  if (typeof callback !== "function") throw new TypeError("a timer needs a function");
  running("a timer");
  const delay = delayMs >= 0 && delayMs <= MAX_DELAY_MS ? Math.trunc(Number(delayMs)) : 0;
  const id = ++lastTimer;
  plan({ id, due: now() + delay, every: every ? Math.max(1, delay) : undefined, run: () => callback(...args) });
  return id;
}

export function clearTimer(id) {
  timers.delete(id);
}

function now() {
  return Math.max(Date.now(), waitedUntil);
}

// Waits for the next timer or event.
function wait() {
  const timer = nextTimer();
  const isAwaited = calls.size > 0 || receivers.length > 0;
  if (timer === undefined || timer.due > now() || isAwaited) {
    // A timer that is due waits 1 ms for calls. Else timers without a delay would keep calls from ending.
    const event = nextEvent(timer === undefined ? null : Math.min(Math.max(1, timer.due - now()), MAX_DELAY_MS));
    if (event != null) return void (settle(event) || hear(event));
    if (timer === undefined) throw stuck();
    waitedUntil = Math.max(waitedUntil, timer.due);
  }
  dues.pop();
  if (timer.every === undefined) timers.delete(timer.id);
  else plan({ ...timer, due: timer.due + timer.every });
  timer.run();
}

// The timer that is due first. Timers that were cleared are dropped.
function nextTimer() {
  while (dues.length > 0 && timers.get(dues.at(-1).id) !== dues.at(-1)) dues.pop();
  return dues.at(-1);
}

function plan(timer) {
  timers.set(timer.id, timer);
  let [low, high] = [0, dues.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (dues[middle].due > timer.due) low = middle + 1;
    else high = middle;
  }
  dues.splice(low, 0, timer);
}

// Settles the promise of a call, if there is one.
function settle(event) {
  const waiting = event.tag === "call-result" ? calls.get(event.val.id) : undefined;
  if (waiting === undefined) return false;
  calls.delete(event.val.id);
  const { tag, val } = event.val.outcome;
  if (tag === "ok") waiting.resolve(JSON.parse(val));
  else waiting.reject(ofHost(val));
  return true;
}

function hear(event) {
  const receiver = receivers.shift();
  if (receiver === undefined) events.push(event);
  else receiver(event);
}

function stuck() {
  return new Failure(
    "node_failed",
    "the function waits for a promise that nothing can settle: no call is in progress, and no timer is set; promises of " +
      "the engine, such as those of code from `eval` or of `import()` with a computed name, never settle",
  );
}
