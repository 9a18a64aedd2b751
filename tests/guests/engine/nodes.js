// What differs from other engines. `cases/all.yaml` has what each check returns.
import { file, http, pack } from "flowcell-sdk";

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
