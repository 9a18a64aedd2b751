// Promises as the language has them, with a job queue that the SDK can empty. `flowcell node build` lets `async`
// functions use them.
import { enqueue, handled, unhandled } from "./jobs.js";

const PENDING = 0;
const FULFILLED = 1;
const REJECTED = 2;

class FlowcellPromise {
  #state = PENDING;
  #value;
  #reactions = [];
  #isHandled = false;

  constructor(executor) {
    if (typeof executor !== "function") throw new TypeError("a promise needs a function");
    const { resolve, reject } = this.#settlers();
    try {
      executor(resolve, reject);
    } catch (thrown) {
      reject(thrown);
    }
  }

  // The two functions that settle this promise; the first call of either one counts.
  #settlers() {
    let called = false;
    const once = (settle) => (value) => {
      if (called) return;
      called = true;
      settle(value);
    };
    return { resolve: once((value) => this.#resolve(value)), reject: once((reason) => this.#settle(REJECTED, reason)) };
  }

  #resolve(value) {
    if (value === this) return this.#settle(REJECTED, new TypeError("a promise cannot wait for itself"));
    if ((typeof value !== "object" || value === null) && typeof value !== "function") return this.#settle(FULFILLED, value);
    let then;
    try {
      then = value.then;
    } catch (thrown) {
      return this.#settle(REJECTED, thrown);
    }
    if (typeof then !== "function") return this.#settle(FULFILLED, value);
    const { resolve, reject } = this.#settlers();
    enqueue(() => {
      try {
        Reflect.apply(then, value, [resolve, reject]);
      } catch (thrown) {
        reject(thrown);
      }
    });
  }

  #settle(state, value) {
    this.#state = state;
    this.#value = value;
    const reactions = this.#reactions;
    this.#reactions = undefined;
    for (const reaction of reactions) enqueue(() => reaction(state, value));
    if (state === REJECTED && !this.#isHandled) unhandled(this);
  }

  then(onFulfilled, onRejected) {
    const Species = this.constructor?.[Symbol.species] ?? FlowcellPromise;
    const { promise, resolve, reject } = capability(Species);
    const reaction = (state, value) => {
      const handler = state === FULFILLED ? onFulfilled : onRejected;
      if (typeof handler !== "function") return state === FULFILLED ? resolve(value) : reject(value);
      let result;
      try {
        result = handler(value);
      } catch (thrown) {
        return reject(thrown);
      }
      resolve(result);
    };
    if (this.#state === PENDING) {
      this.#reactions.push(reaction);
    } else {
      const [state, value] = [this.#state, this.#value];
      if (state === REJECTED && !this.#isHandled) handled(this);
      enqueue(() => reaction(state, value));
    }
    this.#isHandled = true;
    return promise;
  }

  catch(onRejected) {
    return this.then(undefined, onRejected);
  }

  finally(onSettled) {
    if (typeof onSettled !== "function") return this.then(onSettled, onSettled);
    const Species = this.constructor?.[Symbol.species] ?? FlowcellPromise;
    return this.then(
      (value) => Species.resolve(onSettled()).then(() => value),
      (reason) =>
        Species.resolve(onSettled()).then(() => {
          throw reason;
        }),
    );
  }

  get [Symbol.toStringTag]() {
    return "Promise";
  }

  static get [Symbol.species]() {
    return this;
  }

  // Returns the state for the event loop, which waits for a promise without reacting to it.
  static stateOf(promise) {
    const name = ["pending", "fulfilled", "rejected"][promise.#state];
    promise.#isHandled = true;
    handled(promise);
    return { state: name, value: promise.#value };
  }

  // Returns why this promise was rejected.
  static reasonOf(promise) {
    return promise.#value;
  }

  static isPromise(value) {
    return typeof value === "object" && value !== null && #state in value;
  }

  static resolve(value) {
    if (FlowcellPromise.isPromise(value) && value.constructor === this) return value;
    const { promise, resolve } = capability(this);
    resolve(value);
    return promise;
  }

  static reject(reason) {
    const { promise, reject } = capability(this);
    reject(reason);
    return promise;
  }

  static withResolvers() {
    return capability(this);
  }

  static try(callback, ...args) {
    return new this((resolve) => resolve(callback(...args)));
  }

  static all(promises) {
    return combined(this, promises, (resolve, reject) => ({
      fulfilled: (value, settle) => settle(value),
      rejected: (reason) => reject(reason),
      finish: (values) => resolve(values),
    }));
  }

  static allSettled(promises) {
    return combined(this, promises, (resolve) => ({
      fulfilled: (value, settle) => settle({ status: "fulfilled", value }),
      rejected: (reason, settle) => settle({ status: "rejected", reason }),
      finish: (values) => resolve(values),
    }));
  }

  static any(promises) {
    return combined(this, promises, (resolve, reject) => ({
      fulfilled: (value) => resolve(value),
      rejected: (reason, settle) => settle(reason),
      finish: (reasons) => reject(new AggregateError(reasons, "all promises were rejected")),
    }));
  }

  static race(promises) {
    return new this((resolve, reject) => {
      for (const promise of promises) this.resolve(promise).then(resolve, reject);
    });
  }
}

// Creates a promise of a class, and the functions that settle it.
function capability(Class) {
  let resolve;
  let reject;
  const promise = new Class((onResolve, onReject) => {
    resolve = onResolve;
    reject = onReject;
  });
  return { promise, resolve, reject };
}

// Waits for several promises. `reactions` says what each outcome does, and what all together do.
function combined(Class, promises, reactions) {
  return new Class((resolve, reject) => {
    const { fulfilled, rejected, finish } = reactions(resolve, reject);
    const values = [];
    let open = 1;
    const close = () => {
      open -= 1;
      if (open === 0) finish(values);
    };
    let index = 0;
    for (const promise of promises) {
      const at = index++;
      values.push(undefined);
      open += 1;
      let called = false;
      const settle = (value) => {
        if (called) return;
        called = true;
        values[at] = value;
        close();
      };
      Class.resolve(promise).then((value) => fulfilled(value, settle), (reason) => rejected(reason, settle));
    }
    close();
  });
}

Object.defineProperty(FlowcellPromise, "name", { value: "Promise" });

export { FlowcellPromise as Promise };
