// What differs from other engines. `cases/all.yaml` has what each check returns.
import { Failure, Pause, cache, file, files, http, log, metrics, pack, part, queue, state, tools } from "flowcell-sdk";

const day = new Date(0);
const refused = (body) => {
  try {
    return body();
  } catch (error) {
    return `${error.name}: ${error.message.split(":")[0]}`;
  }
};
// The function and the file of the first lines of a stack.
const places = (stack, count) => stack.trim().split("\n").slice(0, count).map((line) => line.trim().replace(/:\d+\)$/, ")"));

async function inner() {
  await null;
  throw new Error("no");
}

async function outer() {
  await null;
  await inner();
}

async function asks() {
  await null;
  await fetch("https://api.example.com/");
}

const checks = {
  locales_that_are_not_given: () => [
    (1234.5).toLocaleString(), (1234.5).toLocaleString(undefined, {}), 5n.toLocaleString([]), [1.5, 2].toLocaleString(),
    day.toLocaleString(), day.toLocaleDateString(), day.toLocaleTimeString(undefined),
    ["b", "a", "B"].sort((a, b) => a.localeCompare(b)), "e\u0301".localeCompare("é", undefined),
    "i".toLocaleUpperCase("en-US"), "I".toLocaleLowerCase(["de", "sv"]), "".localeCompare.length,
  ],
  locales_that_are_given: () => [
    () => (1234.5).toLocaleString("en-US"), () => 5n.toLocaleString("de"), () => [1.5].toLocaleString("de"),
    () => new Uint8Array(1).toLocaleString("de"), () => (1.5).toLocaleString(undefined, { minimumFractionDigits: 2 }),
    () => day.toLocaleString("sv"), () => day.toLocaleDateString("en-US"), () => day.toLocaleTimeString([], { timeZone: "UTC" }),
    () => "a".localeCompare("b", "sv"), () => "a".localeCompare("b", undefined, { numeric: true }),
    () => "i".toLocaleUpperCase("tr"), () => "I".toLocaleLowerCase(["en", "az-AZ"]),
  ].map(refused),
  thrown_object: () => { throw { code: 7, why: "é" }; },
  thrown_large_object: () => { throw { text: "x".repeat(5000) }; },
  thrown_cycle: () => { const cycle = {}; cycle.self = cycle; throw cycle; },
  thrown_text: () => { throw "no"; },
  caught_stack: () => outer().catch((error) => places(error.stack, 1)),
  stack_that_was_set() {
    const error = new Error("no");
    error.stack = "mine";
    return [error.stack, typeof Error.prototype.stack];
  },
  stack_of_fetch: () => asks().catch((error) => [places(error.stack, 1), error.cause.code]),
  // A value that the host takes in another type would end the sandbox without a line of the code.
  wrong_values() {
    const kept = http.keep(new Uint8Array(10), "text/plain");
    const url = "https://api.example.com/";
    return [
      () => file.readBytes(kept, -1), () => file.readBytes(kept, 0.5), () => file.readBytes(kept, NaN),
      () => file.readBytes(kept, 2 ** 53), () => file.readBytes(kept, "1"), () => file.readBytes(kept, 0, -1),
      () => file.readBytes(kept, 0, 2 ** 32), () => file.readBytes(undefined), () => [...file.chunks(kept, -1)],
      () => new file.Writer().write("abc"), () => new file.Writer().finish(5),
      () => http.send({}), () => http.send({ url, timeoutMs: -1 }), () => http.send({ url, headers: { a: 1 } }),
      () => http.send({ url, method: null }), () => http.send({ url, bytes: "abc" }), () => http.open({ url, idleMs: 1.5 }),
      () => http.startSend({ url, timeoutMs: Infinity }), () => http.takeResponse(-1), () => http.keep("abc", "text/plain"),
      () => queue.next({ timeoutMs: -1 }), () => log.write("loud", "x"), () => metrics.measure("x", "1"),
      () => cache.set("k", undefined), () => cache.set("k", 1, { ttlMs: -1 }), () => state.get(5), () => state.setIf("k", 1, 0.5),
      () => files.readText(undefined), () => tools.find(5), () => Pause.after(-1), () => Pause.after(0.5),
      () => Pause.each([], { concurrency: -1 }), () => Pause.each([], { stopOnFailure: 1 }), () => Pause.event(), () => part.input(null),
      () => new Failure("a", "b", { retryAfterMs: NaN }),
    ].map(refused);
  },
  right_values() {
    const kept = http.keep(Uint8Array.of(1, 2, 3), "text/plain");
    const failure = new Failure("a", "b", { retryAfterMs: -0.5 });
    return [
      file.readBytes(kept, 2 ** 33).length, file.readBytes(kept, -0, 2 ** 31 - 1).length, [...file.readBytes(kept, 1, 1)],
      [...file.readBytes(http.keep(new Uint16Array([1]), "text/plain"))], failure.retryAfterMs,
    ];
  },
  halves_of_characters: () => ({ "a\ud800": part.input("/name") }),
  halves_in_json: () => ({ "b\ud800": "x\ud83d", deep: ["\udc00", "\\ud83d", "😀\\"] }),
  thrown_proxy: () => { throw new Proxy(new Error("a"), { get() { throw new Error("b"); } }); },
  thrown_halves: () => { throw new Failure("no", "b\udc00", { retryAfterMs: 1.5 }); },
  lines() {
    const kept = (text) => http.keep(typeof text === "string" ? new TextEncoder().encode(text) : text, "text/plain");
    const lines = (text) => [...file.lines(kept(text))];
    // A character, and the end of a line, that two reads share.
    const large = `${"é".repeat(524_287)}a漢\r\nb\n${"x".repeat(2_000_000)}\nend`;
    const [first, second, third, last] = lines(large);
    return [
      lines(""), lines("\n"), lines("a"), lines("a\n"), lines("a\r\nb\r\n\r\n"), lines("\r"), lines("\ufeffa\n\ufeff"),
      [first.length, first.endsWith("éa漢"), second, third.length, last],
      refused(() => lines(Uint8Array.of(97, 10, 0xff, 10))), refused(() => lines(Uint8Array.of(97, 0xc3))),
    ];
  },
};

export const node = pack({ "engine.check": ({ input }) => checks[input.name]() });
