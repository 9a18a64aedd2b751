// The result of a node: an output, or a pause.
import { MAX_U32, flag, json, text as checkedText, texts, toJson, whole, wholeIfGiven } from "./values.js";

// A part of the input or of the wake, by JSON Pointer. The host shares it; it is not copied through the sandbox.
export class Part {
  constructor(of, path) {
    this.of = of;
    this.path = checkedText(path, "path");
  }

  toJSON() {
    throw new TypeError("a part of what was given is an output, or a member of one, and stands nowhere deeper");
  }
}

export const part = {
  input: (path = "") => new Part("input", path),
  woken: (path = "") => new Part("woken", path),
};

// Gives up the instance until an event wakes the node.
export class Pause {
  constructor(until, state = null) {
    this.until = until;
    this.state = state;
  }

  static now = () => new Pause([{ tag: "now" }]);
  static after = (ms) => new Pause([{ tag: "after", val: whole(ms, "ms") }]);
  static event = (name) => new Pause([{ tag: "event", val: checkedText(name, "name") }]);
  static answer = (question) => new Pause([{ tag: "answer", val: asked(question) }]);
  static body = (variables = {}) => new Pause([{ tag: "body", val: source(variables) }]);
  static flow = (name, input = {}) => new Pause([{ tag: "flow", val: { name: checkedText(name, "name"), input: source(input) } }]);

  static each(items, { concurrency, stopOnFailure = true } = {}) {
    const limits = {
      concurrency: wholeIfGiven(concurrency, "concurrency", MAX_U32),
      stopOnFailure: flag(stopOnFailure, "stopOnFailure"),
    };
    return new Pause([{ tag: "each", val: { items: source(items), ...limits } }]);
  }

  // Adds other events that may end the pause.
  or(other) {
    return new Pause([...this.until, ...other.until], this.state);
  }

  // Keeps a state for the next instance.
  remember(state) {
    return new Pause(this.until, state);
  }
}

function asked(question) {
  const { prompt, choices = [], allowText = choices.length === 0, schema, audience = [] } =
    typeof question === "string" ? { prompt: question } : question;
  return {
    prompt: checkedText(prompt, "prompt"),
    choices: choices.map((choice) => labelled(typeof choice === "string" ? { value: choice } : choice)),
    allowText: flag(allowText, "allowText"),
    schema: schema === undefined ? null : json(schema, "schema"),
    audience: texts(audience, "audience"),
  };
}

function labelled({ value, label }) {
  return { value: checkedText(value, "value"), label: label == null ? null : checkedText(label, "label") };
}

// Converts the result of a node type's function into the host's form.
export function toHost(answer) {
  if (answer instanceof Pause) {
    return { tag: "pause", val: { until: answer.until, state: text(answer.state) } };
  }
  return { tag: "done", val: output(answer) };
}

function output(value) {
  const members = isObject(value) ? Object.entries(value) : [];
  if (members.some(([, member]) => member instanceof Part)) {
    const present = members.filter(([, member]) => member !== undefined);
    return { tag: "object", val: present.map(([key, member]) => [key.toWellFormed(), source(member)]) };
  }
  return { tag: "one", val: source(value) };
}

function source(value) {
  return value instanceof Part ? { tag: value.of, val: value.path } : { tag: "json", val: text(value) };
}

function text(value) {
  return toJson(value) ?? "null";
}

function isObject(value) {
  return typeof value === "object" && value !== null && !Array.isArray(value) && !(value instanceof Part);
}
