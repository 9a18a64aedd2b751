// Types of the SDK. Every function of a capability throws a `Failure`. The failure is `denied` unless the manifest
// requests the capability.

/** A JSON value. */
export type Json = null | boolean | number | string | Json[] | { [key: string]: Json | undefined };

/** The failure of a node. Any other thrown value becomes a failure with the code `node_failed` and its stack, or with the
 * code of the `Failure` that is its `cause`. */
export class Failure extends Error {
  /** The code is stable and in snake_case, such as `acme_quota`; the manifest lists it under `errors`. */
  constructor(code: string, message: string, options?: FailureOptions);
  readonly code: string;
  readonly retryable: boolean;
  readonly retryAfterMs?: number;
  readonly details?: Json;
  /** Creates a failure from the host's form, such as that of a body: `throw Failure.of(task.woken.error)`. */
  static of(told: ToldFailure): Failure;
}

export interface FailureOptions {
  /** True if a retry may help. Default: false. */
  retryable?: boolean;
  /** Milliseconds to wait before a retry, from 0 to 2,147,483,647. Other numbers become the nearest one. */
  retryAfterMs?: number;
  /** Details for programs. */
  details?: Json;
}

/** A failure of a body or a flow. */
export interface ToldFailure extends FailureOptions {
  code: string;
  message: string;
}

/** A part of the input or of the wake. The host shares it; it is not copied through the sandbox. */
export class Part {
  private constructor();
}

export const part: {
  /** Refers to the part of the input at a JSON Pointer, by default all of it. */
  input(path?: string): Part;
  /** Refers to the part of the wake at a JSON Pointer: `/value`, `/value/content`. */
  woken(path?: string): Part;
};

/** The parts of a task. Each is read on access. */
export interface Task<Input = Json, Config = { [key: string]: Json }, State = Json> {
  readonly input: Input;
  readonly config: Config;
  /** The state that the last pause kept; undefined in the first run. */
  readonly state: State | undefined;
  /** The wake that ended the last pause; undefined in the first run. */
  readonly woken: Woken | undefined;
  readonly info: Info;
  /** Returns the part of the input at a JSON Pointer, or undefined if it does not exist. */
  inputAt(path: string): Json | undefined;
  /** Returns a text of the input, or undefined if the part is absent or not a text. */
  inputText(path: string): string | undefined;
  /** Returns the number of items of a list, of keys of an object, or of bytes of a text; undefined for other values and
   * absent parts. */
  inputLength(path: string): number | undefined;
}

/** The wake that ended a pause. */
export interface Woken {
  /** The index of the wake in the pause. */
  index: number;
  wake: "now" | "after" | "event" | "answer" | "body" | "each" | "flow";
  /** `{ elapsedMs }`, `{ name, payload }`, `{ content, choice? }`, the outcome of a pass, of all passes, or `{ outputs }`. */
  value?: any;
  /** The failure of the body or the flow. */
  error?: ToldFailure;
}

/** Information about a task. Later versions may add members. */
export interface Info {
  runId: string;
  nodeId: string;
  /** The node type, without its version. */
  nodeType: string;
  scope: Json;
  /** The number of the attempt, from 1. */
  attempt: number;
  /** Number of earlier pauses of this attempt. */
  resumes: number;
  /** True if the flow gives the node a body. */
  hasBody: boolean;
  /** The time, in ms since 1970. A repetition of the attempt gets the same value. */
  nowMs: number;
  /** The seed of `Math.random`. */
  seed: Json;
}

/** The result of a node type's function: a value, which may have parts as members, a part, or a pause. */
export type Answer<Output = unknown> = { [Key in keyof Output]: Output[Key] | Part } | Part | Pause;

declare global {
  /** What `fetch` takes beside the options of browsers. With the library `dom`, a file value as the body is
   * `body: file as any`. */
  interface RequestInit {
    /** The time of the call in milliseconds. Default: 30,000. */
    timeoutMs?: number;
    /** True: the body is read in chunks while it arrives. Reading waits in the sandbox: no other promise goes on
     * meanwhile. Default: false, the answer arrives as a whole. */
    stream?: boolean;
  }
  interface Response {
    /** The file value of a large answer. */
    readonly file?: FileValue;
  }
}

/** A node type's function. It may be `async` in a project that `flowcell node build` bundles. */
export type Run = (task: Task<any, any, any>) => Answer<any> | Json | void | PromiseLike<Answer<any> | Json | void>;

/** Creates a pack. The module exports it as `node`. */
export function pack(types: { [nodeType: string]: Run }): { run(nodeType: string): unknown };

/** Gives up the instance until an event wakes the node. The first wake wins. `now`, `body`, `each` and `flow` cannot be
 * combined. */
export class Pause {
  private constructor();
  /** Records the state and goes on at once, in a new instance. */
  static now(): Pause;
  /** Waits for `ms` milliseconds, a whole number. */
  static after(ms: number): Pause;
  /** Waits for a named event that is sent to the run. */
  static event(name: string): Pause;
  /** Asks a person, durably. */
  static answer(question: string | Question): Pause;
  /** Runs the node's body once, with these variables (an object). */
  static body(variables?: Json | Part): Pause;
  /** Runs the node's body for each item of a list. */
  static each(items: Json[] | Part, options?: { concurrency?: number; stopOnFailure?: boolean }): Pause;
  /** Runs another flow as a child. */
  static flow(name: string, input?: Json | Part): Pause;
  /** Adds other events that may end the pause. */
  or(other: Pause): Pause;
  /** Keeps a state of at most 256 KiB as JSON; `task.state` returns it. */
  remember(state: Json): Pause;
}

export interface Question {
  prompt: string;
  /** The answers to choose from. */
  choices?: (string | { value: string; label?: string })[];
  /** True if a text other than the choices is an answer. Default: true only without choices. */
  allowText?: boolean;
  /** JSON Schema of the answer's content. */
  schema?: Json;
  /** Names or roles of the people who may answer. Default: all people who may answer for the run. */
  audience?: string[];
}

/** A copy of bytes that the host keeps. */
export interface FileValue {
  kind: "file";
  fileId: string;
  [member: string]: Json;
}

/** A call in progress. `queue.next` reports its end. */
export type CallId = number;

/** Log lines for people. */
export namespace log {
  function write(level: "trace" | "debug" | "info" | "warn" | "error", message: unknown): void;
  function debug(message: unknown): void;
  function info(message: unknown): void;
  function warn(message: unknown): void;
  function error(message: unknown): void;
}

/** Measurements. */
export namespace metrics {
  /** A value that is not finite is dropped. */
  function measure(name: string, value: number, tags?: { [tag: string]: unknown }): void;
}

/** A cache for each tenant. The host may drop a value at any time. */
export namespace cache {
  function get(key: string): Json | undefined;
  /** Stores a value for `ttlMs` milliseconds, or without a limit. */
  function set(key: string, value: Json, options?: { ttlMs?: number }): void;
}

/** Durable values for each tenant and flow name. Other runs see a write together with the task's outcome. */
export namespace state {
  function get(key: string): { value: any; version: number } | undefined;
  /** Writes a value unconditionally. Returns the new version. */
  function set(key: string, value: Json): number;
  /** Writes only if the version is still the expected one, or, for undefined, only if the key does not exist. Returns
   * the new version, or undefined if it is another one. */
  function setIf(key: string, value: Json, expected: number | undefined): number | undefined;
}

/** Outbound HTTP. A status of 400 and above is an answer, not a failure. */
export namespace http {
  interface Request {
    /** Default: `GET`. */
    method?: string;
    url: string;
    headers?: { [name: string]: string };
    /** At most one of these four is the body. */
    json?: Json;
    text?: string;
    bytes?: Uint8Array;
    file?: FileValue;
    /** Default: 30,000. */
    timeoutMs?: number;
  }
  interface Response {
    status: number;
    /** Names in lower case, with their values. */
    headers: [string, string][];
    /** At most one of these three is the body. */
    text?: string;
    bytes?: Uint8Array;
    file?: FileValue;
    /** Parses the body as JSON. */
    json(): any;
  }
  interface StreamRequest extends Request {
    /** The time until the head of the answer. Default: 30,000. */
    timeoutMs?: number;
    /** The longest time without a byte while the node waits for a chunk. Default: 60,000. */
    idleMs?: number;
    /** The longest time from the head of the answer to its end. Default: 600,000. */
    totalMs?: number;
  }
  /** A server-sent event. */
  interface Event {
    /** The type of the event, `message` if it names none. */
    name: string;
    /** The data. Several lines are joined by `\n`. */
    data: string;
    /** The last id that the stream has named so far; empty without one. A new request sends it as `Last-Event-ID`. */
    id: string;
    /** The last time that the stream has named so far: how long to wait before a new request. */
    retryMs?: number;
  }
  /** An answer that is read in chunks. Each is recorded: if the attempt is repeated, the node gets the same chunks again.
   * If the connection is gone then, the next one throws `stream_interrupted`. Leaving a loop over one of the iterators
   * closes the connection. */
  class Answer implements Iterable<Uint8Array> {
    private constructor();
    status: number;
    /** Names in lower case, with their values. */
    headers: [string, string][];
    /** Waits for the next chunk, at most 64 KiB. Undefined at the end, and after a failure. */
    read(): Uint8Array | undefined;
    /** Chunks, each as soon as its first byte has arrived. */
    chunks(): Generator<Uint8Array, void, void>;
    /** Lines of a text in UTF-8, without their ends. Throws `not_text`, and `limit_exceeded` above 8 Mi characters. */
    lines(): Generator<string, void, void>;
    /** Server-sent events (`text/event-stream`), as the HTML standard parses them. */
    events(): Generator<Event, void, void>;
    /** Closes the connection. Does nothing after the end. */
    close(): void;
    [Symbol.iterator](): Generator<Uint8Array, void, void>;
  }
  function send(request: Request): Response;
  /** Sends a request, and returns when the head of its answer has arrived: `for (const event of http.open({ url }).events())`. */
  function open(request: StreamRequest): Answer;
  function startSend(request: Request): CallId;
  /** Takes the answer of a call after `queue.next` has reported its success. Works once for each call. */
  function takeResponse(call: CallId): Response;
  /** Stores bytes as a file of this media type. */
  function keep(bytes: Uint8Array, mime: string): FileValue;
}

/** File values, for content that is too large for a text, such as a body above 3 MiB. Needs no grant. */
export namespace file {
  /** Reads at most 1 MiB from `offset` on; empty at the end of the file. Throws `file_not_found` and `invalid_input`. */
  function readBytes(file: FileValue, offset?: number, length?: number): Uint8Array;
  /** Reads the whole text, which must be UTF-8. */
  function readText(file: FileValue): string;
  /** Reads from `offset` on in pieces of at most 1 MiB, so that the file may be larger than the memory of the node. */
  function chunks(file: FileValue, offset?: number): Generator<Uint8Array, void, void>;
  /** Reads the lines of a text in UTF-8, without their ends. */
  function lines(file: FileValue): Generator<string, void, void>;
  /** Writes a new file value in parts. A file that is not finished goes away with the attempt. */
  class Writer {
    /** Adds bytes at the end. Returns the size so far. */
    write(bytes: Uint8Array): number;
    /** Ends the file, and returns the file value. The default media type is `application/octet-stream`. */
    finish(mime?: string): FileValue;
    /** Discards the file. Does nothing once it is finished. */
    discard(): void;
  }
}

/** Files of the tenant. */
export namespace files {
  interface Entry {
    path: string;
    kind: "file" | "folder";
    size: number;
    modifiedMs: number;
  }
  function readText(path: string): string;
  function readBytes(path: string): Uint8Array;
  function readFile(path: string): FileValue;
  /** Creates or replaces a file. Returns its size in bytes. */
  function writeText(path: string, text: string): number;
  function writeBytes(path: string, bytes: Uint8Array): number;
  function writeFile(path: string, file: FileValue): number;
  function list(path?: string): Entry[];
  function stat(path: string): Entry | undefined;
  /** Removes a file or an empty folder. Returns whether it existed. */
  function remove(path: string): boolean;
}

/** Turns of language models. `model.wit` describes requests and replies. */
export namespace model {
  type Block = { type: string; [member: string]: any };
  interface Request {
    messages: { role: "user" | "assistant"; content: string | Block[] }[];
    [member: string]: any;
  }
  interface Reply {
    content: Block[];
    stop: string;
    usage: { [member: string]: any };
    [member: string]: any;
  }
  function generate(request: Request): Reply;
  function startGenerate(request: Request): CallId;
  /** Returns the whole text of a reply. */
  function textOf(reply: Reply): string;
  /** Returns the tool uses of a reply, in its order. */
  function toolUsesOf(reply: Reply): Block[];
}

/** Tools: node types, flows, and the tools of the operator's MCP servers. */
export namespace tools {
  interface Tool {
    /** The tool's name for models. */
    name: string;
    /** The tool's name in Flowcell: `data.map`, `flow:report`, `mcp:files/read_file`. */
    tool: string;
    title?: string;
    description?: string;
    inputSchema: Json;
  }
  interface Options {
    toolUseId?: string;
    agentRunId?: string;
  }
  function find(...patterns: string[]): Tool[];
  /** Returns the tool's output. */
  function call(tool: string, input?: Json, options?: Options): any;
  /** Calls a tool without waiting. `queue.next` returns `{ output }`. */
  function startCall(tool: string, input?: Json, options?: Options): CallId;
}

/** Services that the operator offers to flows by name, such as `img` and `agent`. */
export namespace services {
  /** The reason why a service failed: `throw Failure.of(answer.error)` passes it on. */
  interface Refusal {
    /** `denied`, `service_not_found`, or the code of the failure. */
    code: string;
    message: string;
  }
  /** The answer of a service. */
  type Answer =
    | { kind: "flow-service-response"; callId: string; ok: true; result: any; error?: undefined }
    | { kind: "flow-service-response"; callId: string; ok: false; result?: undefined; error: Refusal };
  interface Options {
    /** The caller's id of the call, repeated in the answer. Default: the name of the service. */
    callId?: string;
  }
  /** Calls a service without waiting. `queue.next` returns an `Answer`, successful or not. */
  function startCall(service: string, args?: Json[], options?: Options): CallId;
}

/** Agent runs: invocations of an agent that people can watch and write to. */
export namespace agent {
  /** Begins an agent run and returns its id. A member `inbox`, `{ capacity }`, opens an inbox. */
  function open(about?: Json): string;
  /** Sends an event of an agent run. The kind is `state`, or a name with a dot such as `acme.plan`. */
  function tell(run: string, kind: string, data?: Json): void;
  /** Ends an agent run successfully. */
  function close(run: string, result?: Json): void;
  /** Ends an agent run with a failure. */
  function fail(run: string, failure: unknown): void;
}

/** Events that arrive while a task runs. */
export namespace queue {
  type Event =
    | { kind: "ended"; call: CallId; value: any; failure?: undefined }
    | { kind: "ended"; call: CallId; failure: Failure }
    | { kind: "message"; agentRun: string; id: string; value: any }
    | { kind: "closing"; agentRun: string };
  /** Waits for the next event. Returns undefined if the time is up, or if no event can arrive and no time was given. */
  function next(options?: { timeoutMs?: number }): Event | undefined;
  /** Like `next`, but `await` waits for it, while timers and other promises go on. */
  function received(): Promise<Event>;
  /** Waits for the end of a call: `await queue.ended(model.startGenerate(request))` is the reply. `next` and `received` do
   * not return this end. */
  function ended(call: CallId): Promise<any>;
}
