// Why a node did not work.

export class Failure extends Error {
  constructor(code, message, { retryable = false, retryAfterMs, details } = {}) {
    super(message);
    this.name = "Failure";
    this.code = code;
    this.retryable = retryable || retryAfterMs !== undefined;
    this.retryAfterMs = retryAfterMs;
    this.details = details;
  }

  // A failure as the host tells it, such as that of a body.
  static of({ code, message, retryable, retryAfterMs, details }) {
    const failure = new Failure(code, message, { retryAfterMs: retryAfterMs ?? undefined, details: details ?? undefined });
    failure.retryable = retryable === true;
    return failure;
  }
}

// What a capability answers. It throws its failure as the `payload` of an error, with its details as text.
export function called(call) {
  try {
    return call();
  } catch (thrown) {
    throw thrown?.payload === undefined ? thrown : ofHost(thrown.payload);
  }
}

// A failure whose details are JSON text.
export function ofHost(failure) {
  return Failure.of({ ...failure, details: failure.details == null ? undefined : JSON.parse(failure.details) });
}

// Whatever was thrown, as the border takes it. What is no failure would end the sandbox as a trap.
export function toHost(thrown) {
  const failure = thrown instanceof Failure ? thrown : ofException(thrown);
  const { code, message, retryable, retryAfterMs, details } = failure;
  return {
    code: String(code),
    message: String(message),
    retryable: retryable === true,
    retryAfterMs: retryAfterMs ?? null,
    details: details === undefined ? null : JSON.stringify(details),
  };
}

function ofException(thrown) {
  const stack = typeof thrown?.stack === "string" ? thrown.stack.trim().split("\n").map((line) => line.trim()) : [];
  return new Failure("node_failed", String(thrown), { details: { stack } });
}
