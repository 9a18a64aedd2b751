// Answers that are read in chunks, lines or events.
import { closeStream, readStream } from "flowcell:host/http@0.1.0";
import { Failure, called } from "../failure.js";
import { TextDecoder } from "../web/text.js";

// The longest line and the longest data of an event, in characters.
const LONGEST = 8 * 1024 * 1024;

export class Answer {
  #stream;

  constructor({ stream, status, headers }) {
    this.#stream = stream;
    this.status = status;
    this.headers = headers;
  }

  // Waits for the next chunk. Undefined at the end, and after a failure.
  read() {
    if (this.#stream === undefined) return undefined;
    const stream = this.#stream;
    this.#stream = undefined;
    const chunk = called(() => readStream(stream)) ?? undefined;
    if (chunk !== undefined) this.#stream = stream;
    return chunk;
  }

  close() {
    const stream = this.#stream;
    this.#stream = undefined;
    if (stream !== undefined) closeStream(stream);
  }

  *chunks() {
    try {
      for (let chunk = this.read(); chunk !== undefined; chunk = this.read()) yield chunk;
    } finally {
      this.close();
    }
  }

  [Symbol.iterator]() {
    return this.chunks();
  }

  *lines() {
    const decoder = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });
    let rest = "";
    for (const chunk of this.chunks()) {
      const lines = decoded(decoder, chunk).split("\n");
      lines[0] = rest + lines[0];
      rest = bounded(lines.pop());
      for (const line of lines) yield withoutReturn(line);
    }
    rest += decoded(decoder);
    if (rest !== "") yield withoutReturn(rest);
  }

  // Parses server-sent events as the HTML standard says.
  *events() {
    const decoder = new TextDecoder();
    const parser = new Parser();
    let rest = "";
    let isAfterReturn = false;
    for (const chunk of this.chunks()) {
      let text = decoder.decode(chunk, { stream: true });
      if (text === "") continue;
      // The two characters of one line end.
      if (isAfterReturn && text[0] === "\n") text = text.slice(1);
      isAfterReturn = text.endsWith("\r");
      const lines = text.split(/\r\n|\n|\r/);
      lines[0] = rest + lines[0];
      rest = bounded(lines.pop());
      for (const line of lines) {
        const event = parser.take(line);
        if (event !== undefined) yield event;
      }
    }
  }
}

class Parser {
  #id = "";
  #retryMs;
  #name = "";
  #data;

  // Takes in a line. Returns the event that an empty line ends.
  take(line) {
    if (line === "") {
      const [name, data] = [this.#name, this.#data];
      [this.#name, this.#data] = ["", undefined];
      return data === undefined ? undefined : { name: name || "message", data, id: this.#id, retryMs: this.#retryMs };
    }
    const colon = line.indexOf(":");
    const field = colon === -1 ? line : line.slice(0, colon);
    const value = colon === -1 ? "" : line.slice(line[colon + 1] === " " ? colon + 2 : colon + 1);
    if (field === "event") this.#name = value;
    else if (field === "data") this.#data = bounded(this.#data === undefined ? value : `${this.#data}\n${value}`);
    else if (field === "id" && !value.includes("\0")) this.#id = value;
    else if (field === "retry" && /^[0-9]+$/.test(value)) this.#retryMs = Number(value);
    return undefined;
  }
}

function decoded(decoder, chunk) {
  try {
    return decoder.decode(chunk, { stream: chunk !== undefined });
  } catch {
    throw new Failure("not_text", "the answer is not UTF-8");
  }
}

// A pattern would search the whole line.
function withoutReturn(line) {
  return line.endsWith("\r") ? line.slice(0, -1) : line;
}

function bounded(text) {
  if (text.length > LONGEST) throw new Failure("limit_exceeded", `a line or an event has more than ${LONGEST} characters`);
  return text;
}
