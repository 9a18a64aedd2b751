// `fetch` over the capability `http`. The manifest requests it, and the flow grants the origins, also those of redirects.
import { open, startSend, takeResponse } from "../calls/http.js";
import { Answer } from "../calls/answer.js";
import { Failure } from "../failure.js";
import { mappedStack } from "../lines.js";
import { Body, content } from "./body.js";
import { Headers } from "./headers.js";
import { ended } from "./loop.js";
import { URL } from "./url.js";
import { Promise } from "./promise.js";

const MAX_REDIRECTS = 20;
const REDIRECTS = [301, 302, 303, 307, 308];
const NO_BODY = [101, 204, 205, 304];
const METHODS = ["DELETE", "GET", "HEAD", "OPTIONS", "POST", "PUT"];

export class Request extends Body {
  constructor(input, init = {}) {
    const from = input instanceof Request ? input : undefined;
    const given = init.body === undefined && from !== undefined ? Body.take(from) : content(init.body);
    super(given);
    const url = new URL(from?.url ?? String(input));
    if (url.username !== "" || url.password !== "") throw new TypeError("a URL must not contain a user name or a password");
    this.url = url.href;
    this.method = method(init.method ?? from?.method ?? "GET");
    this.headers = new Headers(init.headers ?? from?.headers);
    this.signal = init.signal ?? from?.signal ?? new AbortSignal();
    this.redirect = init.redirect ?? from?.redirect ?? "follow";
    // In milliseconds, from the beginning of the call to the end of the answer.
    this.timeoutMs = init.timeoutMs ?? from?.timeoutMs;
    // True: the body of the answer is read in chunks, while it arrives.
    this.stream = init.stream ?? from?.stream ?? false;
    if (["GET", "HEAD"].includes(this.method) && Object.keys(given).length > 0) {
      throw new TypeError(`a request with the method ${this.method} has no body`);
    }
    if (given.type !== undefined && !this.headers.has("content-type")) this.headers.set("content-type", given.type);
  }

  clone() {
    if (this.bodyUsed) throw new TypeError("the body was already read");
    const { url, headers, signal, redirect, timeoutMs, stream } = this;
    const copy = new Request(url, { method: this.method, headers, signal, redirect, timeoutMs, stream });
    return Body.exchange(copy, Body.contentOf(this));
  }
}

export class Response extends Body {
  #type = "default";

  constructor(body = null, { status = 200, statusText = "", headers } = {}) {
    if (!(status >= 200 && status <= 599)) throw new RangeError(`${status} is not the status of an answer`);
    const given = content(body);
    if (NO_BODY.includes(status) && body != null) throw new TypeError(`an answer with the status ${status} has no body`);
    super(given);
    this.status = status;
    this.statusText = statusText;
    this.headers = new Headers(headers);
    this.url = "";
    this.redirected = false;
    if (given.type !== undefined && !this.headers.has("content-type")) this.headers.set("content-type", given.type);
  }

  get ok() {
    return this.status >= 200 && this.status <= 299;
  }

  get type() {
    return this.#type;
  }

  clone() {
    if (this.bodyUsed) throw new TypeError("the body was already read");
    if (Body.contentOf(this).answer !== undefined) throw new TypeError("a stream is read once, so its answer has no clone");
    return of(Body.contentOf(this), this);
  }

  static error() {
    const response = of({}, { status: 0, statusText: "", headers: [], url: "", redirected: false });
    response.#type = "error";
    return response;
  }

  static json(value, init = {}) {
    const headers = new Headers(init.headers);
    if (!headers.has("content-type")) headers.set("content-type", "application/json");
    return new Response(JSON.stringify(value), { ...init, headers });
  }

  static redirect(url, status = 302) {
    if (!REDIRECTS.includes(status)) throw new RangeError(`${status} is not the status of a redirect`);
    return new Response(null, { status, headers: { location: new URL(url).href } });
  }
}

export function fetch(input, init) {
  const caller = {};
  Error.captureStackTrace(caller, fetch);
  return new Promise((resolve, reject) => {
    const request = new Request(input, init);
    const { signal } = request;
    signal.throwIfAborted();
    // A call that has begun ends at the server, and nobody hears of it.
    signal.addEventListener("abort", () => reject(signal.reason), { once: true });
    follow(request, Body.take(request), 0).then(resolve, (thrown) => reject(calledAt(caller.stack, thrown)));
  });
}

// Gives an error the stack of the call of `fetch`, because the answer arrives in the event loop, far from the author's code.
function calledAt(stack, thrown) {
  if (thrown instanceof Error) Object.defineProperty(thrown, "stack", { value: mappedStack(stack), writable: true, configurable: true });
  return thrown;
}

function follow(request, given, redirects) {
  const { method, url, headers, timeoutMs, stream } = request;
  const { type: _, ...body } = given;
  return started({ method, url, headers: Object.fromEntries(headers), ...body, timeoutMs, stream }).then((answer) => {
    const location = REDIRECTS.includes(answer.status) ? field(answer, "location") : undefined;
    if (location === undefined || request.redirect === "manual") return response(answer, url, redirects);
    if (request.redirect === "error") throw new TypeError(`fetch failed: ${url} redirects`);
    if (redirects === MAX_REDIRECTS) throw new TypeError(`fetch failed: more than ${MAX_REDIRECTS} redirects`);
    answer.close?.();
    const next = redirected(request, new URL(location, url), answer.status);
    return follow(next, next.method === request.method ? given : {}, redirects + 1);
  });
}

// Sends a request. Failures of the host are the causes of the error that `fetch` is expected to have.
function started(request) {
  return new Promise((resolve, reject) => {
    const failed = (thrown) => reject(thrown instanceof Failure ? asTypeError(thrown) : thrown);
    let call;
    try {
      if (request.stream) return resolve(open(request));
      call = startSend(request);
    } catch (thrown) {
      return failed(thrown);
    }
    ended(call)
      .then(() => takeResponse(call))
      .then(resolve, failed);
  });
}

function asTypeError(failure) {
  return new TypeError(`fetch failed: ${failure.message}`, { cause: failure });
}

// The request that follows a redirect, as browsers make it.
function redirected(request, url, status) {
  if (!["http:", "https:"].includes(url.protocol)) throw new TypeError(`fetch failed: ${url.protocol} is not followed`);
  const toGet = status === 303 ? !["GET", "HEAD"].includes(request.method) : status < 303 && request.method === "POST";
  const headers = new Headers(request.headers);
  if (toGet) for (const name of ["content-type", "content-length", "content-encoding", "content-language"]) headers.delete(name);
  if (url.origin !== new URL(request.url).origin) for (const name of ["authorization", "cookie"]) headers.delete(name);
  const { signal, redirect, timeoutMs, stream } = request;
  return new Request(url.href, { method: toGet ? "GET" : request.method, headers, signal, redirect, timeoutMs, stream });
}

function response(answer, url, redirects) {
  const { status, headers, text, bytes, file } = answer;
  const isStream = answer instanceof Answer;
  const given =
    isStream ? { answer } : text !== undefined ? { text } : bytes !== undefined ? { bytes } : file !== undefined ? { file } : {};
  return of(given, { status, statusText: "", headers, url, redirected: redirects > 0 });
}

// An answer with this content, also one that programs cannot create.
function of(given, { status, statusText, headers, url, redirected }) {
  const response = Body.exchange(new Response(), given);
  return Object.assign(response, { status, statusText, headers: new Headers(headers), url, redirected });
}

function field({ headers }, name) {
  return headers.find(([key]) => key === name)?.[1];
}

function method(name) {
  const upper = String(name).toUpperCase();
  return METHODS.includes(upper) ? upper : String(name);
}
