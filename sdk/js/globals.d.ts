// Types of the globals that a bundle of `flowcell node build` has, and of no others. `README.md` says how they differ from
// those of browsers. They take the place of the library `dom`.

/** A body that can be sent. Streams cannot. */
type BodyInit =
  | string
  | URLSearchParams
  | FormData
  | Blob
  | ArrayBuffer
  | ArrayBufferView
  | import("./index.js").FileValue;
type HeadersInit = Headers | Iterable<[string, string]> | { [name: string]: string };
type BufferSource = ArrayBuffer | ArrayBufferView;

interface Headers {
  append(name: string, value: string): void;
  delete(name: string): void;
  get(name: string): string | null;
  getSetCookie(): string[];
  has(name: string): boolean;
  set(name: string, value: string): void;
  forEach(callback: (value: string, name: string, headers: Headers) => void, self?: unknown): void;
  entries(): Generator<[string, string], void, void>;
  keys(): Generator<string, void, void>;
  values(): Generator<string, void, void>;
  [Symbol.iterator](): Generator<[string, string], void, void>;
}
declare var Headers: { new (init?: HeadersInit | null): Headers; prototype: Headers };

/** A stream of bytes that can be read. It has no `pipeTo`, `pipeThrough` and `tee`. */
interface BodyStream extends AsyncIterable<Uint8Array> {
  readonly locked: boolean;
  getReader(): BodyReader;
  cancel(): Promise<void>;
}
interface BodyReader {
  readonly closed: Promise<void>;
  read(): Promise<{ done: false; value: Uint8Array } | { done: true; value: undefined }>;
  cancel(): Promise<void>;
  releaseLock(): void;
}
/** The content of a request or of an answer. It is read once. */
interface Body {
  readonly body: BodyStream | null;
  readonly bodyUsed: boolean;
  arrayBuffer(): Promise<ArrayBuffer>;
  blob(): Promise<Blob>;
  bytes(): Promise<Uint8Array<ArrayBuffer>>;
  /** Reads a form of the type `application/x-www-form-urlencoded`. */
  formData(): Promise<FormData>;
  json(): Promise<any>;
  text(): Promise<string>;
}

interface RequestInit {
  method?: string;
  headers?: HeadersInit | null;
  body?: BodyInit | null;
  redirect?: "follow" | "manual" | "error";
  signal?: AbortSignal | null;
}
interface Request extends Body {
  readonly url: string;
  readonly method: string;
  readonly headers: Headers;
  readonly redirect: "follow" | "manual" | "error";
  readonly signal: AbortSignal;
  clone(): Request;
}
declare var Request: { new (input: string | URL | Request, init?: RequestInit): Request; prototype: Request };

interface ResponseInit {
  status?: number;
  statusText?: string;
  headers?: HeadersInit | null;
}
interface Response extends Body {
  readonly status: number;
  readonly statusText: string;
  readonly headers: Headers;
  readonly ok: boolean;
  readonly redirected: boolean;
  readonly type: "default" | "error";
  readonly url: string;
  clone(): Response;
}
declare var Response: {
  new (body?: BodyInit | null, init?: ResponseInit): Response;
  prototype: Response;
  error(): Response;
  json(value: unknown, init?: ResponseInit): Response;
  redirect(url: string | URL, status?: number): Response;
};

declare function fetch(input: string | URL | Request, init?: RequestInit): Promise<Response>;

interface Event {
  readonly type: string;
  readonly target: EventTarget | null;
  readonly cancelable: boolean;
  readonly defaultPrevented: boolean;
  preventDefault(): void;
}
declare var Event: { new (type: string, init?: { cancelable?: boolean }): Event; prototype: Event };

type EventListener = ((event: Event) => void) | { handleEvent(event: Event): void };
interface EventTarget {
  addEventListener(
    type: string,
    listener: EventListener | null,
    options?: boolean | { once?: boolean; signal?: AbortSignal },
  ): void;
  removeEventListener(type: string, listener: EventListener | null): void;
  dispatchEvent(event: Event): boolean;
}
declare var EventTarget: { new (): EventTarget; prototype: EventTarget };

interface AbortSignal extends EventTarget {
  readonly aborted: boolean;
  readonly reason: any;
  onabort: ((event: Event) => void) | null;
  throwIfAborted(): void;
}
declare var AbortSignal: {
  prototype: AbortSignal;
  abort(reason?: unknown): AbortSignal;
  any(signals: Iterable<AbortSignal>): AbortSignal;
  timeout(ms: number): AbortSignal;
};
interface AbortController {
  readonly signal: AbortSignal;
  abort(reason?: unknown): void;
}
declare var AbortController: { new (): AbortController; prototype: AbortController };

interface DOMException extends Error {
  readonly code: number;
}
declare var DOMException: { new (message?: string, name?: string): DOMException; prototype: DOMException };

interface Blob {
  readonly size: number;
  readonly type: string;
  arrayBuffer(): Promise<ArrayBuffer>;
  bytes(): Promise<Uint8Array<ArrayBuffer>>;
  slice(start?: number, end?: number, type?: string): Blob;
  text(): Promise<string>;
}
type BlobPart = string | Blob | BufferSource;
declare var Blob: { new (parts?: Iterable<BlobPart>, options?: { type?: string }): Blob; prototype: Blob };
interface File extends Blob {
  readonly name: string;
  readonly lastModified: number;
}
declare var File: {
  new (parts: Iterable<BlobPart>, name: string, options?: { type?: string; lastModified?: number }): File;
  prototype: File;
};

type FormDataEntryValue = string | File;
interface FormData {
  append(name: string, value: string | Blob, fileName?: string): void;
  delete(name: string): void;
  get(name: string): FormDataEntryValue | null;
  getAll(name: string): FormDataEntryValue[];
  has(name: string): boolean;
  set(name: string, value: string | Blob, fileName?: string): void;
  forEach(callback: (value: FormDataEntryValue, name: string, form: FormData) => void, self?: unknown): void;
  entries(): Generator<[string, FormDataEntryValue], void, void>;
  keys(): Generator<string, void, void>;
  values(): Generator<FormDataEntryValue, void, void>;
  [Symbol.iterator](): Generator<[string, FormDataEntryValue], void, void>;
}
declare var FormData: { new (): FormData; prototype: FormData };

interface URLSearchParams {
  readonly size: number;
  append(name: string, value: string): void;
  delete(name: string, value?: string): void;
  get(name: string): string | null;
  getAll(name: string): string[];
  has(name: string, value?: string): boolean;
  set(name: string, value: string): void;
  sort(): void;
  forEach(callback: (value: string, name: string, params: URLSearchParams) => void, self?: unknown): void;
  entries(): IterableIterator<[string, string]>;
  keys(): IterableIterator<string>;
  values(): IterableIterator<string>;
  [Symbol.iterator](): IterableIterator<[string, string]>;
  toString(): string;
}
declare var URLSearchParams: {
  new (init?: string | URLSearchParams | Iterable<[string, string]> | { [name: string]: string }): URLSearchParams;
  prototype: URLSearchParams;
};
interface URL {
  href: string;
  readonly origin: string;
  protocol: string;
  username: string;
  password: string;
  host: string;
  hostname: string;
  port: string;
  pathname: string;
  search: string;
  readonly searchParams: URLSearchParams;
  hash: string;
  toJSON(): string;
  toString(): string;
}
declare var URL: {
  new (url: string | URL, base?: string | URL): URL;
  prototype: URL;
  canParse(url: string | URL, base?: string | URL): boolean;
  parse(url: string | URL, base?: string | URL): URL | null;
};

interface TextEncoder {
  readonly encoding: string;
  encode(text?: string): Uint8Array<ArrayBuffer>;
  encodeInto(text: string, target: Uint8Array): { read: number; written: number };
}
declare var TextEncoder: { new (): TextEncoder; prototype: TextEncoder };
interface TextDecoder {
  readonly encoding: string;
  readonly fatal: boolean;
  readonly ignoreBOM: boolean;
  decode(input?: BufferSource, options?: { stream?: boolean }): string;
}
/** It decodes UTF-8 only. */
declare var TextDecoder: {
  new (label?: string, options?: { fatal?: boolean; ignoreBOM?: boolean }): TextDecoder;
  prototype: TextDecoder;
};

type HashName = "SHA-1" | "SHA-256" | "SHA-384" | "SHA-512";
/** A key of HMAC. Its class is not a global. */
interface HmacKey {
  readonly type: "secret";
  readonly extractable: boolean;
  readonly usages: ("sign" | "verify")[];
}
/** Random values follow from the seed of the task, so they are no secrets. */
declare var crypto: {
  getRandomValues<T extends ArrayBufferView>(view: T): T;
  randomUUID(): `${string}-${string}-${string}-${string}-${string}`;
  readonly subtle: {
    digest(algorithm: HashName | { name: HashName }, data: BufferSource): Promise<ArrayBuffer>;
    importKey(
      format: "raw",
      data: BufferSource,
      algorithm: { name: "HMAC"; hash: HashName | { name: HashName } },
      extractable: boolean,
      usages: Iterable<"sign" | "verify">,
    ): Promise<HmacKey>;
    sign(algorithm: "HMAC" | { name: "HMAC" }, key: HmacKey, data: BufferSource): Promise<ArrayBuffer>;
    verify(
      algorithm: "HMAC" | { name: "HMAC" },
      key: HmacKey,
      signature: BufferSource,
      data: BufferSource,
    ): Promise<boolean>;
  };
};

/** Writes log lines, if the manifest requests `log`. */
declare var console: {
  assert(isTrue?: unknown, ...values: unknown[]): void;
  count(label?: string): void;
  debug(...values: unknown[]): void;
  dir(value?: unknown): void;
  error(...values: unknown[]): void;
  group(...values: unknown[]): void;
  groupCollapsed(...values: unknown[]): void;
  groupEnd(): void;
  info(...values: unknown[]): void;
  log(...values: unknown[]): void;
  table(value?: unknown): void;
  time(label?: string): void;
  timeEnd(label?: string): void;
  timeLog(label?: string): void;
  trace(...values: unknown[]): void;
  warn(...values: unknown[]): void;
};

declare function atob(encoded: string): string;
declare function btoa(text: string): string;
declare function clearImmediate(id?: number): void;
declare function clearInterval(id?: number): void;
declare function clearTimeout(id?: number): void;
declare function queueMicrotask(callback: () => void): void;
declare function setImmediate<T extends unknown[]>(callback: (...args: T) => void, ...args: T): number;
declare function setInterval<T extends unknown[]>(callback: (...args: T) => void, delayMs?: number, ...args: T): number;
declare function setTimeout<T extends unknown[]>(callback: (...args: T) => void, delayMs?: number, ...args: T): number;
declare function structuredClone<T>(value: T): T;

declare var navigator: {
  readonly hardwareConcurrency: number;
  readonly language: string;
  readonly languages: string[];
  readonly onLine: boolean;
  readonly platform: string;
  readonly userAgent: string;
};
declare var performance: { now(): number };
declare var self: typeof globalThis;
