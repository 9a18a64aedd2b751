// Outbound HTTP.
import { keep as keepBytes, openStream, send as sendNow, startSend as start, takeResponse as take } from "flowcell:host/http@0.1.0";
import { called } from "../failure.js";
import { decoded, readText } from "../file.js";
import { Answer } from "./answer.js";

export { Answer };

export function send(request) {
  return answer(called(() => sendNow(asked(request))));
}

// Sends a request, and returns when the head of its answer has arrived. The answer is read in chunks, lines or events.
export function open(request) {
  const times = { idleMs: request.idleMs ?? null, totalMs: request.totalMs ?? null };
  return new Answer(called(() => openStream(asked(request), times)));
}

export function startSend(request) {
  return called(() => start(asked(request)));
}

export function takeResponse(call) {
  return answer(called(() => take(call)));
}

export function keep(bytes, mime) {
  return JSON.parse(called(() => keepBytes(bytes, mime)));
}

function asked({ method = "GET", url, headers = {}, json, text, bytes, file, timeoutMs }) {
  const typed = json === undefined ? {} : { "content-type": "application/json" };
  const body =
    json !== undefined ? { tag: "text", val: JSON.stringify(json) }
    : text !== undefined ? { tag: "text", val: text }
    : bytes !== undefined ? { tag: "bytes", val: bytes }
    : file !== undefined ? { tag: "file", val: JSON.stringify(file) }
    : { tag: "empty" };
  return { method, url, headers: Object.entries({ ...typed, ...headers }), body, timeoutMs: timeoutMs ?? null };
}

function answer({ status, headers, body }) {
  const content = {};
  if (body.tag === "file") content.file = JSON.parse(body.val);
  else if (body.tag !== "empty") content[body.tag] = body.val;
  return { status, headers, ...content, json: () => parsed(content) };
}

function parsed({ text, bytes, file }) {
  return JSON.parse(text ?? (file === undefined ? decoded(bytes ?? new Uint8Array()) : readText(file)));
}
