// The pack `conform` in JavaScript.
import {
  Failure, Pause, agent, cache, files, http, log, metrics, model, pack, part, queue, services, state, tools,
} from "./vendor/flowcell-sdk/index.js";

const DAY_MS = 86_400_000;

function parts(task) {
  const first = task.inputAt("/list/0") ?? null;
  const missing = task.inputAt("/nothing") === undefined && task.inputText("/list") === undefined;
  const [bytes, items] = [task.inputLength("/text"), task.inputLength("/list")];
  return { text: part.input("/text"), first, bytes, items, missing };
}

function described({ config, info, state, woken }) {
  const { nodeId, nodeType, attempt, hasBody } = info;
  return { config, node: nodeId, type: nodeType, attempt, hasBody, first: state === undefined && woken === undefined };
}

function fail({ input: { code, message, ...more } }) {
  throw new Failure(code, message, more);
}

function crash() {
  throw new TypeError("no such thing");
}

function noJson() {
  return { n: 1n };
}

function pause({ input: { on }, state, woken }) {
  if (woken === undefined) return waiting(on).remember({ on });
  if (woken.error) throw Failure.of(woken.error);
  const value = woken.wake === "now" ? null : part.woken("/value");
  return { wake: woken.wake, index: woken.index, value, remembered: state };
}

function waiting(on) {
  switch (on) {
    case "now": return Pause.now();
    case "after": return Pause.after(DAY_MS);
    case "event": return Pause.event("ready").or(Pause.after(1000));
    case "answer": return Pause.answer({ prompt: "Which?", choices: ["a", { value: "b", label: "The other" }] });
    case "body": return Pause.body({ number: 1 });
    case "each": return Pause.each(part.input("/list"), { concurrency: 1 });
    case "flow": return Pause.flow("double", { n: 2 });
  }
}

function counted() {
  const before = state.get("count") ?? null;
  const set = state.set("count", [1]);
  const lost = state.setIf("count", [0], undefined) ?? null;
  const won = state.setIf("count", [1, 2], set);
  return { before, set, lost, won, after: state.get("count") };
}

function cached() {
  const before = cache.get("conform") ?? null;
  cache.set("conform", { a: 1 }, { ttlMs: 60_000 });
  return { before, after: cache.get("conform") };
}

function denied({ input }) {
  try {
    return cache.get("conform");
  } catch (failure) {
    if (!input.catch || !(failure instanceof Failure)) throw failure;
    return { code: failure.code, retryable: failure.retryable };
  }
}

function tell() {
  log.debug("one");
  log.info("two");
  log.warn("three");
  log.error("four");
  metrics.measure("conform_size", 1.5, { unit: "kg" });
}

function requests() {
  const url = "https://api.example.com";
  const { status, headers, json } = http.send({ method: "POST", url: `${url}/orders`, json: { n: 1 } });
  const [a, b] = [http.startSend({ url: `${url}/a` }), http.startSend({ url: `${url}/b` })];
  const ends = new Map([next(), next()].map((event) => [event.call, event]));
  const { code, retryable } = ends.get(b).failure;
  return {
    status,
    type: headers.find(([name]) => name === "content-type")[1],
    id: json().id,
    a: http.takeResponse(a).text,
    b: { code, retryable },
    kept: http.keep(new Uint8Array([1, 2]), "application/x-conform").kind,
  };
}

function streams() {
  const open = (path) => http.open({ url: `https://api.example.com/${path}` });
  const answer = open("events");
  const events = [...answer.events()].map(({ name, data, id, retryMs }) => [name, data, id, retryMs]);
  const lines = [...open("lines").lines()];
  let size = 0;
  for (const chunk of open("chunks")) size += chunk.length;
  let left;
  for (left of open("left").lines()) break;
  let broken;
  try {
    open("broken");
  } catch ({ code, retryable }) {
    broken = { code, retryable };
  }
  const type = answer.headers.find(([name]) => name === "content-type")[1];
  return { status: answer.status, type, events, lines, chunks: size, left, broken };
}

function next() {
  const event = queue.next();
  if (event === undefined) throw new Error("nothing arrives");
  return event;
}

function notes() {
  const size = files.writeText("notes/a.txt", "one");
  const text = files.readText("notes/a.txt");
  const [first] = files.list("notes");
  return { size, text, first, absent: files.stat("notes/b.txt") === undefined, removed: files.remove("notes/a.txt") };
}

function asked() {
  const request = { messages: [{ role: "user", content: "Hello?" }] };
  const reply = model.generate(request);
  const call = model.startGenerate(request);
  const later = model.textOf(ended(call).value);
  return { text: model.textOf(reply), uses: model.toolUsesOf(reply).map(({ name }) => name), later };
}

function ended(call) {
  const event = next();
  if (event.call !== call) throw new Error("another call has ended");
  return event;
}

function called() {
  const found = tools.find("data.*").map(({ tool }) => tool);
  const output = tools.call("data.set", { object: {}, path: "a", value: 1 });
  const later = ended(tools.startCall("data.pick", { object: {}, keys: [] })).failure.code;
  return { found, called: output, later };
}

function served() {
  const calls = [services.startCall("img", [[], "A cat"], { callId: "cat" }), services.startCall("agent", ["Hello?"])];
  const ends = new Map([next(), next()].map(({ call, value }) => [call, value]));
  const [cat, hello] = calls.map((call) => ends.get(call));
  return { ids: [cat.callId, hello.callId], ok: [cat.ok, hello.ok], made: cat.result, refused: hello.error.code };
}

function listening() {
  const run = agent.open({ inbox: { capacity: 4 } });
  agent.tell(run, "conform.plan", { step: 1 });
  const heard = [];
  let event = next();
  for (; event.kind === "message"; event = next()) heard.push(event.value);
  agent.close(run, { result: "done" });
  agent.fail(agent.open(), new Failure("given_up", "this one fails"));
  return { heard, closing: event.kind === "closing" };
}

export const node = pack({
  "conform.parts": parts,
  "conform.task": described,
  "conform.fail": fail,
  "conform.crash": crash,
  "conform.no_json": noJson,
  "conform.random": () => Math.random(),
  "conform.pause": pause,
  "conform.state": counted,
  "conform.cache": cached,
  "conform.denied": denied,
  "conform.tell": tell,
  "conform.http": requests,
  "conform.stream": streams,
  "conform.files": notes,
  "conform.model": asked,
  "conform.tools": called,
  "conform.services": served,
  "conform.agent": listening,
});
