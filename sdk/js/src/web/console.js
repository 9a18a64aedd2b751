// `console`, whose lines are log lines of the run. Without the capability `log` in the manifest they are dropped: a
// package that warns must not end the node.
import { write } from "../calls/log.js";
import { Failure } from "../failure.js";
import { sourceLines } from "../lines.js";

function line(level) {
  return (...values) => {
    try {
      write(level, format(values));
    } catch (thrown) {
      if (!(thrown instanceof Failure && thrown.code === "denied")) throw thrown;
    }
  };
}

const counts = new Map();

export const console = {
  debug: line("debug"),
  trace: line("debug"),
  log: line("info"),
  info: line("info"),
  dir: (value) => line("info")(value),
  table: (value) => line("info")(value),
  warn: line("warn"),
  error: line("error"),
  assert: (isTrue, ...values) => void (isTrue || line("error")("assertion failed:", ...values)),
  count(label = "default") {
    counts.set(label, (counts.get(label) ?? 0) + 1);
    line("info")(`${label}: ${counts.get(label)}`);
  },
  groupCollapsed: (...values) => void (values.length > 0 && line("info")(...values)),
  group: (...values) => void (values.length > 0 && line("info")(...values)),
  groupEnd() {},
  time() {},
  timeEnd() {},
  timeLog() {},
};

// The texts of values, with `%s`, `%d`, `%i`, `%f`, `%j`, `%o` and `%O` replaced as elsewhere.
function format([first, ...rest]) {
  const values = typeof first === "string" ? [placed(first, rest), ...rest.map(shown)] : [first, ...rest].map(shown);
  return values.join(" ");
}

// Takes the values that the text has places for out of `rest`.
function placed(text, rest) {
  return text.replace(/%[sdifjoO%]/g, (place) => {
    if (place === "%%") return "%";
    if (rest.length === 0) return place;
    const value = rest.shift();
    if (place === "%d" || place === "%f") return String(Number(value));
    if (place === "%i") return String(Math.trunc(Number(value)));
    return place === "%s" ? String(value) : shown(value);
  });
}

function shown(value) {
  if (typeof value === "string") return value;
  if (value instanceof Error) return value.stack ? [String(value), ...sourceLines(value.stack)].join("\n") : String(value);
  try {
    return JSON.stringify(value, (_, member) => (typeof member === "bigint" ? `${member}n` : member)) ?? String(value);
  } catch {
    return String(value);
  }
}
