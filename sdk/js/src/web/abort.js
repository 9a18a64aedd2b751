// Signals that end what waits.
import { setTimer } from "./loop.js";

export class EventTarget {
  #listeners = new Map();

  addEventListener(type, listener, options = {}) {
    if (listener == null) return;
    const all = this.#listeners.get(type) ?? [];
    if (all.some((known) => known.listener === listener)) return;
    const { once = false, signal } = typeof options === "object" ? options : {};
    if (signal?.aborted) return;
    signal?.addEventListener("abort", () => this.removeEventListener(type, listener), { once: true });
    this.#listeners.set(type, [...all, { listener, once }]);
  }

  removeEventListener(type, listener) {
    const rest = (this.#listeners.get(type) ?? []).filter((known) => known.listener !== listener);
    this.#listeners.set(type, rest);
  }

  dispatchEvent(event) {
    Object.defineProperty(event, "target", { value: this, configurable: true });
    for (const { listener, once } of this.#listeners.get(event.type) ?? []) {
      if (once) this.removeEventListener(event.type, listener);
      if (typeof listener === "function") Reflect.apply(listener, this, [event]);
      else listener.handleEvent(event);
    }
    const own = this[`on${event.type}`];
    if (typeof own === "function") Reflect.apply(own, this, [event]);
    return !event.defaultPrevented;
  }
}

export class Event {
  constructor(type, { cancelable = false } = {}) {
    this.type = String(type);
    this.cancelable = cancelable;
    this.defaultPrevented = false;
  }

  preventDefault() {
    if (this.cancelable) this.defaultPrevented = true;
  }
}

export class AbortSignal extends EventTarget {
  #isAborted = false;
  #reason;
  onabort = null;

  get aborted() {
    return this.#isAborted;
  }

  get reason() {
    return this.#reason;
  }

  throwIfAborted() {
    if (this.#isAborted) throw this.#reason;
  }

  // Aborts a signal; only controllers call it.
  static end(signal, reason = new DOMException("this operation was aborted", "AbortError")) {
    if (signal.#isAborted) return;
    signal.#isAborted = true;
    signal.#reason = reason;
    signal.dispatchEvent(new Event("abort"));
  }

  static abort(reason) {
    const signal = new AbortSignal();
    AbortSignal.end(signal, reason);
    return signal;
  }

  static timeout(ms) {
    const signal = new AbortSignal();
    const end = () => AbortSignal.end(signal, new DOMException("the operation timed out", "TimeoutError"));
    setTimer(end, ms, [], false);
    return signal;
  }

  static any(signals) {
    const all = [...signals];
    const aborted = all.find((signal) => signal.aborted);
    if (aborted !== undefined) return AbortSignal.abort(aborted.reason);
    const any = new AbortSignal();
    for (const signal of all) signal.addEventListener("abort", () => AbortSignal.end(any, signal.reason), { once: true });
    return any;
  }
}

export class AbortController {
  signal = new AbortSignal();

  abort(reason) {
    AbortSignal.end(this.signal, reason);
  }
}
