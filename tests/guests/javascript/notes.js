// The pack `notes`, written against the WIT alone.
import { getJson, getText } from "flowcell:node/context@0.1.0";
import { log } from "flowcell:host/log@0.1.0";
import { get, setIf } from "flowcell:host/state@0.1.0";

const types = { "notes.count": count, "notes.remember": remember, "notes.review": review };

export const node = {
  run(nodeType) {
    try {
      const type = types[nodeType];
      if (!type) throw failure("unknown_node_type", `this pack has no code for \`${nodeType}\``);
      return type(read("input"));
    } catch (thrown) {
      throw asFailure(thrown);
    }
  },
};

// Counts what a regular expression finds. A wrong expression throws a SyntaxError.
function count({ text, pattern = "\\S+" }) {
  const found = text.match(new RegExp(pattern, "gu")) ?? [];
  const longest = found.reduce((best, word) => (word.length > best.length ? word : best), "");
  return done({ count: json(found.length), longest: json(longest), text: { tag: "input", val: "/text" } });
}

// Keeps a note behind those that are there. `expected` is none for a key that nobody wrote.
function remember({ key, note }) {
  const entry = get(key);
  const notes = [...(entry == null ? [] : JSON.parse(entry.value)), note];
  const version = setIf(key, JSON.stringify(notes), entry?.version);
  if (version == null) throw failure("notes_changed", `somebody else wrote \`${key}\``, true);
  log("info", `${notes.length} notes under ${key}`);
  // A u64 is a number for one engine and a bigint, which JSON cannot write, for another.
  return done({ notes: json(notes), version: json(Number(version)) });
}

// Asks whether to keep a text, for as long as `patienceMs` says.
function review({ text, patienceMs }) {
  const woken = read("woken");
  if (woken === undefined) {
    const choices = [{ value: "keep", label: "Keep it" }, { value: "drop" }];
    const question = { prompt: `Keep "${text}"?`, choices, allowText: false, audience: [] };
    return {
      tag: "pause",
      val: {
        until: [{ tag: "answer", val: question }, { tag: "after", val: patienceMs }],
        state: JSON.stringify({ asked: text.length }),
      },
    };
  }
  const verdict = woken.wake === "after" ? json("drop") : { tag: "woken", val: "/value/content" };
  return done({ verdict, asked: json(read("state").asked) });
}

// A part of the task; undefined: there is none.
function read(part) {
  const text = getJson(part, "");
  return text == null ? undefined : JSON.parse(text);
}

function json(value) {
  return { tag: "json", val: JSON.stringify(value) };
}

function done(members) {
  return { tag: "done", val: { tag: "object", val: Object.entries(members) } };
}

function failure(code, message, retryable = false) {
  return { code, message, retryable };
}

// What is no failure would end the sandbox as a trap, and so would an optional-looking member that is not there. An error
// of a capability comes wrapped, as `payload`.
function asFailure(thrown) {
  const { code, message, retryable, retryAfterMs, details } = thrown?.payload ?? thrown ?? {};
  if (typeof code !== "string") return failure("exception", String(thrown));
  return { ...failure(code, String(message), retryable === true), retryAfterMs, details };
}
