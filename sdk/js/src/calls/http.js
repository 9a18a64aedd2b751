// Outbound HTTP.
import { keep as keepBytes, openStream, send as sendNow, startSend as start, takeResponse as take } from "flowcell:host/http@0.1.0";
import { called } from "../failure.js";
import { decoded, readText } from "../file.js";
import { MAX_U32, bytes as checkedBytes, json as checkedJson, text as checkedText, whole, wholeIfGiven } from "../values.js";
import { Answer } from "./answer.js";

export { Answer };

export function send(request) {
  return answer(called(() => sendNow(asked(request))));
}

// Sends a request, and returns when the head of its answer has arrived. The answer is read in chunks, lines or events.
export function open(request) {
  const times = { idleMs: time(request, "idleMs"), totalMs: time(request, "totalMs") };
  return new Answer(called(() => openStream(asked(request), times)));
}

export function startSend(request) {
  return called(() => start(asked(request)));
}

export function takeResponse(call) {
  return answer(called(() => take(whole(call, "call", MAX_U32))));
}

export function keep(bytes, mime) {
  return JSON.parse(called(() => keepBytes(checkedBytes(bytes, "bytes"), checkedText(mime, "mime"))));
}

function asked(request) {
  const { method = "GET", url, headers = {}, json, text, bytes, file } = request;
  const typed = json === undefined ? {} : { "content-type": "application/json" };
  const body =
    json !== undefined ? { tag: "text", val: checkedJson(json, "json") }
    : text !== undefined ? { tag: "text", val: checkedText(text, "text") }
    : bytes !== undefined ? { tag: "bytes", val: checkedBytes(bytes, "bytes") }
    : file !== undefined ? { tag: "file", val: checkedJson(file, "file") }
    : { tag: "empty" };
  return {
    method: checkedText(method, "method"),
    url: checkedText(url, "url"),
    headers: Object.entries({ ...typed, ...headers }).map(([name, value]) => [name.toWellFormed(), checkedText(value, `headers.${name}`)]),
    body,
    timeoutMs: time(request, "timeoutMs"),
  };
}

function time(request, name) {
  return wholeIfGiven(request[name], name, MAX_U32);
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
