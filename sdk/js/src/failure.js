// Failures of nodes.
import { sourceLines } from "./lines.js";
import { delay, toJson } from "./values.js";

// Characters of a thrown object that its message shows.
const LONGEST_JSON = 1000;

export class Failure extends Error {
  constructor(code, message, { retryable = false, retryAfterMs, details } = {}) {
    super(message);
    this.name = "Failure";
    this.code = code;
    this.retryable = retryable || retryAfterMs != null;
    this.retryAfterMs = delay(retryAfterMs, "retryAfterMs");
    this.details = details;
  }

  // Creates a failure from the host's form, such as that of a body.
  static of({ code, message, retryable, retryAfterMs, details }) {
    const failure = new Failure(code, message, { retryAfterMs: retryAfterMs ?? undefined, details: details ?? undefined });
    failure.retryable = retryable === true;
    return failure;
  }
}

// Calls a capability. The host throws a failure as the `payload` of an error, with its details as text.
export function called(call) {
  try {
    return call();
  } catch (thrown) {
    throw thrown?.payload === undefined ? thrown : ofHost(thrown.payload);
  }
}

// Converts a host failure, whose details are JSON text.
export function ofHost(failure) {
  return Failure.of({ ...failure, details: failure.details == null ? undefined : JSON.parse(failure.details) });
}

// Converts any thrown value into a host failure. Without this, it would end the sandbox as a trap.
export function toHost(thrown) {
  try {
    return read(thrown);
  } catch {
    // A proxy or a getter of the thrown value has thrown, too.
    return { code: "node_failed", message: described(thrown), retryable: false, retryAfterMs: null, details: null };
  }
}

function read(thrown) {
  const failure = thrown instanceof Failure ? thrown : ofException(thrown);
  const { code, message, retryable, retryAfterMs, details } = failure;
  return {
    code: described(code),
    message: described(message),
    retryable: retryable === true,
    retryAfterMs: Number.isFinite(retryAfterMs) ? delay(retryAfterMs) : null,
    details: details === undefined ? null : json(details),
  };
}

// The JSON of details, or a word about details that have none, such as a cycle.
function json(details) {
  try {
    return toJson(details) ?? null;
  } catch (thrown) {
    return toJson({ unreadable: described(thrown) });
  }
}

// A thrown value as a message. An object without a text of its own is shown as JSON.
function messageOf(thrown) {
  const text = described(thrown);
  if (!text.startsWith("[object ")) return text;
  try {
    const shown = toJson(thrown);
    if (typeof shown !== "string") return text;
    return shown.length > LONGEST_JSON ? `${shown.slice(0, LONGEST_JSON).toWellFormed()}… (${shown.length} characters)` : shown;
  } catch {
    return `an object without JSON, with the members ${Object.keys(thrown).slice(0, 20).join(", ")}`;
  }
}

// A text for any value, also for one that refuses to become a text.
function described(value) {
  try {
    return String(value).toWellFormed();
  } catch {
    return "an object without a text";
  }
}

function ofException(thrown) {
  const stack = typeof thrown?.stack === "string" ? sourceLines(thrown.stack) : [];
  const cause = thrown instanceof Error ? failureBehind(thrown.cause) : undefined;
  if (cause === undefined) return new Failure("node_failed", messageOf(thrown), { details: { stack, ...reasons(thrown) } });
  // Packages wrap what `fetch` throws. The code and the advice of the host stay visible.
  const { code, retryable, retryAfterMs } = cause;
  return Failure.of({ code, message: messageOf(thrown), retryable, retryAfterMs, details: { stack, cause: cause.details ?? null } });
}

// The failures behind `Promise.any`.
function reasons(thrown) {
  return thrown instanceof AggregateError ? { reasons: thrown.errors.map(messageOf) } : {};
}

function failureBehind(cause, depth = 8) {
  if (cause instanceof Failure || cause == null || depth === 0) return cause instanceof Failure ? cause : undefined;
  return failureBehind(cause.cause, depth - 1);
}
