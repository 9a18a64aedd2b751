// Types of the SDK. Every function of a capability throws a `Failure`; the manifest has to ask for the capability, else it is
// `denied`.

/** What JSON can say. */
export type Json = null | boolean | number | string | Json[] | { [key: string]: Json | undefined };

/** Why a node did not work. Anything else that is thrown becomes one of the code `node_failed`, with its stack. */
export class Failure extends Error {
  /** The code is stable and in snake_case, such as `acme_quota`; the manifest lists it under `errors`. */
  constructor(code: string, message: string, options?: FailureOptions);
  readonly code: string;
  readonly retryable: boolean;
  readonly retryAfterMs?: number;
  readonly details?: Json;
  /** A failure as the host tells it, such as that of a body: `throw Failure.of(task.woken.error)`. */
  static of(told: ToldFailure): Failure;
}

export interface FailureOptions {
  /** Whether trying again may help. */
  retryable?: boolean;
  /** The earliest time at which it may help. */
  retryAfterMs?: number;
  /** For programs. */
  details?: Json;
}

/** A failure of a body or a flow. */
export interface ToldFailure extends FailureOptions {
  code: string;
  message: string;
}

/** A part of what was given. The host shares it: nothing is copied through the sandbox. */
export class Part {
  private constructor();
}

export const part: {
  /** The part of the input at a JSON Pointer; without one all of it. */
  input(path?: string): Part;
  /** The part of what woke the node at a JSON Pointer: `/value`, `/value/content`. */
  woken(path?: string): Part;
};

/** A task: what a node is given. Everything is read when it is asked for. */
export interface Task<Input = Json, Config = { [key: string]: Json }, State = Json> {
  readonly input: Input;
  readonly config: Config;
  /** What the last pause remembered; undefined on the first run. */
  readonly state: State | undefined;
  /** What ended the last pause; undefined on the first run. */
  readonly woken: Woken | undefined;
  readonly info: Info;
  /** The part of the input at a JSON Pointer; undefined: there is none. */
  inputAt(path: string): Json | undefined;
  /** The same for a text; undefined: there is none, or it is no text. */
  inputText(path: string): string | undefined;
  /** Items of a list, keys of an object, bytes of a text; undefined: there is none, or it is a scalar. */
  inputLength(path: string): number | undefined;
}

/** What ended a pause. */
export interface Woken {
  /** Which wake of the pause it was. */
  index: number;
  wake: "now" | "after" | "event" | "answer" | "body" | "each" | "flow";
  /** `{ elapsedMs }`, `{ name, payload }`, `{ content, choice? }`, the outcome of a pass, of all passes, or `{ outputs }`. */
  value?: any;
  /** Why a body or a flow gave nothing. */
  error?: ToldFailure;
}

/** What a task is about. More may come. */
export interface Info {
  runId: string;
  nodeId: string;
  /** Without its version. */
  nodeType: string;
  scope: Json;
  /** From 1. */
  attempt: number;
  /** How often this attempt paused before. */
  resumes: number;
  /** Whether the flow gives the node a body. */
  hasBody: boolean;
  /** In ms since 1970; the same again if the attempt is repeated. */
  nowMs: number;
  /** `Math.random` follows from it. */
  seed: Json;
}

/** What a node type's function gives: a value, which may have parts of what was given as members, a part, or a pause. */
export type Answer<Output = unknown> = { [Key in keyof Output]: Output[Key] | Part } | Part | Pause;

/** A node type's function. */
export type Run = (task: Task<any, any, any>) => Answer<any> | Json | void;

/** A pack: what the module exports as `node`. */
export function pack(types: { [nodeType: string]: Run }): { run(nodeType: string): unknown };

/** Gives the instance up until something happens. The first wake wins; `now`, `body`, `each` and `flow` stand alone. */
export class Pause {
  private constructor();
  /** Records what is remembered and goes on at once, in a new instance. */
  static now(): Pause;
  /** A timer, in ms. */
  static after(ms: number): Pause;
  /** A named event that is sent to the run. */
  static event(name: string): Pause;
  /** A durable question to a person. */
  static answer(question: string | Question): Pause;
  /** One pass of the node's body with these variables, an object. */
  static body(variables?: Json | Part): Pause;
  /** A pass of the node's body for each item of a list. */
  static each(items: Json[] | Part, options?: { concurrency?: number; stopOnFailure?: boolean }): Pause;
  /** Another flow, run as a child. */
  static flow(name: string, input?: Json | Part): Pause;
  /** The same pause, which something else may end, too. */
  or(other: Pause): Pause;
  /** The same pause with something to remember, at most 256 KiB: `task.state`. */
  remember(state: Json): Pause;
}

export interface Question {
  prompt: string;
  /** Answers to choose from. */
  choices?: (string | { value: string; label?: string })[];
  /** Whether a text outside the choices is an answer; without choices it is. */
  allowText?: boolean;
  /** JSON Schema of the answer's content. */
  schema?: Json;
  /** Who may answer, by name or role; without it whoever may answer for the run. */
  audience?: string[];
}

/** A copy of bytes that the host keeps. */
export interface FileValue {
  kind: "file";
  fileId: string;
  [member: string]: Json;
}

/** A call under way. `queue.next` tells when it has ended. */
export type CallId = number;

/** Text for people. */
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

/** Values that may be forgotten at any time, per tenant. */
export namespace cache {
  function get(key: string): Json | undefined;
  /** Without `ttlMs` it does not expire by time. */
  function set(key: string, value: Json, options?: { ttlMs?: number }): void;
}

/** Durable values, per tenant and flow name. Others see a write together with the task's outcome. */
export namespace state {
  function get(key: string): { value: any; version: number } | undefined;
  /** Writes, whatever is there. Gives the new version. */
  function set(key: string, value: Json): number;
  /** Writes only if the version is still the expected one; undefined: only if there is no such key. */
  function setIf(key: string, value: Json, expected: number | undefined): number | undefined;
}

/** Outbound HTTP. A status of 400 and above is an answer, not a failure. */
export namespace http {
  interface Request {
    /** `GET` without it. */
    method?: string;
    url: string;
    headers?: { [name: string]: string };
    /** One of these is the body. */
    json?: Json;
    text?: string;
    bytes?: Uint8Array;
    file?: FileValue;
    /** 30 seconds without it. */
    timeoutMs?: number;
  }
  interface Response {
    status: number;
    /** Names in lower case, and values. */
    headers: [string, string][];
    /** At most one of these is the body. */
    text?: string;
    bytes?: Uint8Array;
    file?: FileValue;
    /** The body as JSON. */
    json(): any;
  }
  function send(request: Request): Response;
  function startSend(request: Request): CallId;
  /** The answer of a call that `queue.next` has told to have ended well, once. */
  function takeResponse(call: CallId): Response;
  /** Keeps bytes as a file of this media type. */
  function keep(bytes: Uint8Array, mime: string): FileValue;
}

/** Files of the tenant. */
/** File values: what is too large for a text, such as a body above 3 MiB. Needs no grant. */
export namespace file {
  /** At most 1 MiB from `offset` on; empty where the file ends. Throws `file_not_found` and `invalid_input`. */
  function readBytes(file: FileValue, offset?: number, length?: number): Uint8Array;
  /** The whole text, which must be UTF-8. */
  function readText(file: FileValue): string;
}

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
  /** Replaces a file, or makes it. Gives its size. */
  function writeText(path: string, text: string): number;
  function writeBytes(path: string, bytes: Uint8Array): number;
  function writeFile(path: string, file: FileValue): number;
  function list(path?: string): Entry[];
  function stat(path: string): Entry | undefined;
  /** Gives whether it was there. */
  function remove(path: string): boolean;
}

/** Turns of language models; requests and replies are as `model.wit` has them. */
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
  /** All of a reply's text. */
  function textOf(reply: Reply): string;
  /** The tools that a reply wants to be called, in its order. */
  function toolUsesOf(reply: Reply): Block[];
}

/** Tools: node types, flows, and what the operator's MCP servers offer. */
export namespace tools {
  interface Tool {
    /** What a model may call it. */
    name: string;
    /** `data.map`, `flow:report`, `mcp:files/read_file`. */
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
  /** Gives the tool's output. */
  function call(tool: string, input?: Json, options?: Options): any;
  /** `queue.next` hands `{ output }` over. */
  function startCall(tool: string, input?: Json, options?: Options): CallId;
}

/** Services that the operator gives flows under a name, such as `img` and `agent`. */
export namespace services {
  /** Why a service has not done what it was asked for: `throw Failure.of(answer.error)` hands it on. */
  interface Refusal {
    /** `denied`, `service_not_found`, or the code of what has failed. */
    code: string;
    message: string;
  }
  /** What a service has answered. */
  type Answer =
    | { kind: "flow-service-response"; callId: string; ok: true; result: any; error?: undefined }
    | { kind: "flow-service-response"; callId: string; ok: false; result?: undefined; error: Refusal };
  interface Options {
    /** Comes back with the answer; the service's name without it. */
    callId?: string;
  }
  /** `queue.next` hands an `Answer` over, whatever became of the call. */
  function startCall(service: string, args?: Json[], options?: Options): CallId;
}

/** Agent runs: invocations of an agent that people can watch and write to. */
export namespace agent {
  /** Gives the id of the agent run. A member `inbox`, `{ capacity }`, opens an inbox. */
  function open(about?: Json): string;
  /** The kind is `state`, or a name with a dot such as `acme.plan`. */
  function tell(run: string, kind: string, data?: Json): void;
  /** Ends it well. */
  function close(run: string, result?: Json): void;
  /** Ends it badly. */
  function fail(run: string, failure: unknown): void;
}

/** What arrives while a task runs. */
export namespace queue {
  type Event =
    | { kind: "ended"; call: CallId; value: any; failure?: undefined }
    | { kind: "ended"; call: CallId; failure: Failure }
    | { kind: "message"; agentRun: string; id: string; value: any }
    | { kind: "closing"; agentRun: string };
  /** undefined: the time is up, or no time was given and nothing can arrive any more. */
  function next(options?: { timeoutMs?: number }): Event | undefined;
}
