// What programs expect of JavaScript outside of the language. The same checks run in Node.js and in a pack, and have to
// return the same.
import assert from "node:assert";
import { EventEmitter } from "node:events";
import path from "node:path";
import querystring from "node:querystring";
import { Readable, Transform, pipeline } from "node:stream";
import { StringDecoder } from "node:string_decoder";
import { Buffer as NodeBuffer } from "node:buffer";
import util from "node:util";

// Numbers that look random and are the same everywhere.
function numbers(seed) {
  let state = seed;
  return (limit) => {
    state = (Math.imul(state, 1103515245) + 12345) & 0x7fffffff;
    return (state >> 8) % limit;
  };
}

// The order in which functions call `log`.
async function order(body) {
  const seen = [];
  await body((name) => seen.push(name));
  return seen;
}

function attempt(body) {
  try {
    return body();
  } catch (error) {
    return `${error.name}`;
  }
}

// Node.js 20 has no `Array.fromAsync`.
const listed = (items) => Array.fromAsync?.(items) ?? Promise.all(items);
const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

// Code names globals in these ways, also under local names.
const locals = {
  constant() {
    const crypto = globalThis.crypto;
    // Node.js has no `self`.
    const fetch = (globalThis.self ?? globalThis).fetch;
    return [typeof crypto.subtle, typeof fetch];
  },
  parameter: ({ fetch = globalThis.fetch } = {}) => typeof fetch,
  fallback() {
    const URL = globalThis.URL ?? null;
    const Blob = globalThis.Blob || URL;
    return [new URL("https://a.example/b").pathname, typeof Blob];
  },
  variable() {
    var Headers = globalThis.Headers;
    var structuredClone = global.structuredClone;
    return [typeof Headers, structuredClone([1])];
  },
  taken_apart() {
    const { crypto, Request: Asked = null, ...rest } = globalThis;
    return [typeof crypto, typeof Asked, typeof rest];
  },
  key: () => [typeof globalThis["FormData"], "fetch" in globalThis, "nonsense" in globalThis, Object.hasOwn(globalThis, "URL")],
  guard() {
    const root = typeof globalThis !== "undefined" ? globalThis : Function("return this")();
    return [typeof window, typeof root.Buffer, typeof File === "function" && root.File === File, globalThis.URL === URL];
  },
  assigned() {
    const own = globalThis.Response;
    globalThis.Response = class Response { ok = "own"; };
    try {
      return [new Response().ok, globalThis.Response === Response, typeof new own().text];
    } finally {
      globalThis.Response = own;
    }
  },
  deleted() {
    const own = globalThis.URLSearchParams;
    delete globalThis.URLSearchParams;
    const kind = typeof URLSearchParams;
    globalThis.URLSearchParams = own;
    return [kind, typeof URLSearchParams];
  },
};

export const checks = {
  globals_under_local_names: () => Object.entries(locals).map(([name, use]) => [name, use()]),

  async streams_of_node() {
    const upper = new Transform({ transform: (chunk, _, done) => done(null, String(chunk).toUpperCase()) });
    const seen = [];
    for await (const chunk of Readable.from(["a", "b"]).pipe(upper)) seen.push(String(chunk));
    await new Promise((resolve, reject) => {
      pipeline(Readable.from(["c"]), async (chunks) => { for await (const chunk of chunks) seen.push(chunk); }, (error) => (error ? reject(error) : resolve()));
    });
    return seen;
  },

  async async_functions() {
    const value = await (async () => 1)();
    const caught = await (async () => { throw new Error("no"); })().catch((error) => error.message);
    const all = await Promise.all([1, Promise.resolve(2), pause(5).then(() => 3)]);
    return { value, caught, all };
  },

  jobs_run_in_order: () =>
    order(async (log) => {
      setTimeout(() => log("timeout"), 0);
      queueMicrotask(() => log("microtask"));
      Promise.resolve().then(() => log("then 1")).then(() => log("then 2"));
      (async () => {
        log("begin");
        await null;
        log("behind await");
      })();
      log("sync");
      await pause(10);
    }),

  timers_run_in_order: () =>
    order(async (log) => {
      setTimeout(log, 30, "30");
      setTimeout(log, 10, "10 a");
      setTimeout(log, 10, "10 b");
      const never = setTimeout(log, 5, "never");
      clearTimeout(never);
      let times = 0;
      await new Promise((resolve) => {
        const interval = setInterval(() => {
          log(`interval ${++times}`);
          if (times === 3) resolve(clearInterval(interval));
        }, 12);
      });
    }),

  async generators() {
    async function* count(n) {
      for (let i = 0; i < n; i++) {
        await null;
        yield i;
      }
    }
    const seen = [];
    for await (const n of count(3)) seen.push(n);
    for await (const n of [Promise.resolve("a"), "b"]) seen.push(n);
    return seen;
  },

  async generators_that_clean_up() {
    const seen = [];
    async function* pages() {
      try {
        yield 1;
        yield 2;
      } finally {
        await pause(1);
        seen.push("released");
      }
    }
    async function* delegating() {
      yield* pages();
    }
    for await (const page of pages()) {
      seen.push(page);
      break;
    }
    for await (const page of delegating()) {
      seen.push(page);
      break;
    }
    return [seen, await pages().return(7), await listed([1, Promise.resolve(2)])];
  },

  async many_timers() {
    let sum = 0;
    await Promise.all(Array.from({ length: 500 }, (_, index) => pause(index % 50).then(() => (sum += index))));
    return sum;
  },

  async bytes_in_megabytes() {
    const text = "é".repeat(700_000);
    const bytes = new TextEncoder().encode(text);
    return [bytes.length, new TextDecoder().decode(bytes) === text, await new Response("\ufeff{}").json()];
  },

  // Most of these bytes are ASCII, which is decoded in parts.
  long_texts() {
    const sizes = [];
    for (const before of [0, 1, 4094, 4095, 4096, 4097, 8191, 8192]) {
      for (const middle of ["", "é", "漢", "😀", "\ufeff"]) {
        const text = `${"a".repeat(before)}${middle}${"b".repeat(5000)}`;
        const bytes = new TextEncoder().encode(text);
        const decoder = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });
        let parts = "";
        for (let at = 0; at < bytes.length; at += 4097) parts += decoder.decode(bytes.subarray(at, at + 4097), { stream: true });
        parts += decoder.decode();
        const broken = Uint8Array.from([...bytes, 0xc3, ...bytes]);
        sizes.push(parts === text, new TextDecoder().decode(bytes).length, new TextDecoder().decode(broken).length);
        sizes.push(attempt(() => new TextDecoder("utf-8", { fatal: true }).decode(broken)));
      }
    }
    return sizes;
  },

  async combinators() {
    const failed = Promise.reject(new Error("no"));
    const slow = pause(20).then(() => "slow");
    return {
      race: await Promise.race([slow, "now"]),
      any: await Promise.any([failed, slow]),
      settled: await Promise.allSettled([failed, 1]).then((all) => all.map(({ status, value }) => [status, value ?? null])),
      none: await Promise.any([failed]).catch((error) => [error.name, error.errors.length]),
      finally: await Promise.resolve(1).finally(() => 2),
      thenable: await { then: (resolve) => resolve("from a thenable") },
    };
  },

  async subclasses() {
    class Own extends Promise {}
    const own = Own.resolve(1);
    return [own instanceof Own, own.then(() => 1) instanceof Own, own instanceof Promise, await own, String(own)];
  },

  async this_and_arguments() {
    const object = { n: 2, async times(...given) { return [this.n, arguments.length, ...given]; } };
    class Counter { #n = 0; async up() { return ++this.#n; } static async make() { return new Counter().up(); } }
    return [await object.times(1, 2), await Counter.make()];
  },

  utf8() {
    const next = numbers(7);
    const leads = [0x00, 0x41, 0x7f, 0x80, 0xbf, 0xc0, 0xc2, 0xdf, 0xe0, 0xed, 0xef, 0xf0, 0xf4, 0xf5, 0xff, 0x9f, 0xa0, 0xbb];
    const texts = [];
    for (let round = 0; round < 2000; round++) {
      const bytes = Uint8Array.from({ length: 1 + next(8) }, () => (next(2) ? leads[next(leads.length)] : next(256)));
      const decoder = new TextDecoder();
      const cut = next(bytes.length);
      const parts = decoder.decode(bytes.subarray(0, cut), { stream: true }) + decoder.decode(bytes.subarray(cut));
      const whole = new TextDecoder().decode(bytes);
      texts.push(whole, parts === whole, attempt(() => new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(bytes)));
    }
    const wide = "aé漢😀\ud800x";
    return [texts, [...new TextEncoder().encode(wide)], new TextEncoder().encodeInto("é漢", new Uint8Array(4))];
  },

  base64() {
    const next = numbers(3);
    const bytes = Array.from({ length: 40 }, (_, size) => String.fromCharCode(...Array.from({ length: size }, () => next(256))));
    return [bytes.map(btoa), bytes.map((text) => atob(btoa(text)) === text), attempt(() => btoa("漢")), attempt(() => atob("a")), attempt(() => atob(" YQ= ")), atob(" YQ== ")];
  },

  urls() {
    const texts = ["https://user@example.com:443/a/../b?x=1&x=2#f", "HTTP://EXAMPLE.com:80/%7e/é", "https://bücher.example/ä?ö", "//x/y", "../c?d", "mailto:a@b.c", "https://[::1]:8080/", "https://256.1.1.1/", "https://a b/", "data:text/plain,hi"];
    const parsed = texts.map((text) => attempt(() => new URL(text, "https://base.example/p/q").href));
    const params = new URLSearchParams("a=1&b=2&a=3+4");
    params.append("c", "ä&=");
    params.delete("b");
    params.sort();
    const url = new URL("https://example.com/a");
    url.searchParams.set("q", "x y");
    url.hash = "top";
    return [parsed, [...params], String(params), params.getAll("a"), url.href, url.origin, URL.canParse("nope")];
  },

  headers() {
    const headers = new Headers({ "X-B": "2", "x-a": " 1 " });
    headers.append("X-A", "3");
    headers.append("set-cookie", "a=1");
    headers.append("set-cookie", "b=2");
    const wrong = [["a b", "1"], ["a", "x\ny"]].map(([name, value]) => attempt(() => headers.append(name, value)));
    return [[...headers], headers.get("x-a"), headers.has("X-C"), headers.getSetCookie(), wrong];
  },

  async bodies() {
    const json = await Response.json({ a: 1 }, { status: 201 }).json();
    const form = new FormData();
    form.append("a", "1");
    form.append("f", new Blob(["x"], { type: "text/plain" }), "f.txt");
    const request = new Request("https://example.com/", { method: "post", body: new URLSearchParams({ a: "ä" }) });
    const used = new Response("x");
    await used.text();
    const chunks = [];
    for await (const chunk of new Response("abc").body) chunks.push(...chunk);
    return {
      json,
      form: [form.get("a"), form.get("f").name, form.get("f").size, [...form.keys()]],
      request: [request.method, request.headers.get("content-type"), await request.text()],
      used: [used.bodyUsed, await used.text().catch((error) => error.name)],
      copy: [await new Response("x").clone().text(), new Response(null, { status: 204 }).ok],
      bytes: [...new Uint8Array(await new Response(Uint8Array.of(1, 2)).arrayBuffer())],
      blob: [await new Blob(["a", Uint8Array.of(98)]).text(), new Blob(["abc"]).slice(1).size],
      chunks,
      wrong: [attempt(() => new Request("https://example.com", { body: "x" })), attempt(() => new Response("", { status: 99 })), attempt(() => new Request("https://a:b@example.com"))],
    };
  },

  async aborts() {
    const controller = new AbortController();
    const seen = [];
    controller.signal.addEventListener("abort", () => seen.push("heard"));
    controller.abort();
    controller.abort("again");
    const any = AbortSignal.any([new AbortController().signal, AbortSignal.abort("early")]);
    const timed = AbortSignal.timeout(5);
    await new Promise((resolve) => timed.addEventListener("abort", resolve, { once: true }));
    return [seen, controller.signal.reason.name, any.reason, timed.reason.name, attempt(() => controller.signal.throwIfAborted())];
  },

  copies() {
    const shared = { n: 1 };
    const value = { a: [shared, shared], date: new Date(0), map: new Map([["k", new Set([1])]]), bytes: Uint8Array.of(1, 2) };
    value.self = value;
    const copy = structuredClone(value);
    return [copy.self === copy, copy.a[0] === copy.a[1], copy.a[0] !== shared, copy.date.getTime(), [...copy.map.get("k")], [...copy.bytes], attempt(() => structuredClone(() => 1))];
  },

  async digests() {
    const bytes = new TextEncoder().encode("Flowcell");
    const hex = (buffer) => NodeBuffer.from(buffer).toString("hex");
    const digests = [];
    for (const name of ["SHA-1", "SHA-256", "SHA-384", "SHA-512"]) digests.push(hex(await crypto.subtle.digest(name, bytes)));
    const key = await crypto.subtle.importKey("raw", bytes, { name: "HMAC", hash: "SHA-256" }, false, ["sign", "verify"]);
    const mac = await crypto.subtle.sign("HMAC", key, bytes);
    const right = await crypto.subtle.verify("HMAC", key, mac, bytes);
    const wrong = await crypto.subtle.verify("HMAC", key, new Uint8Array(32), bytes);
    return [digests, hex(mac), right, wrong, await crypto.subtle.digest("MD4", bytes).catch((error) => error.name)];
  },

  random_values() {
    const ids = Array.from({ length: 20 }, () => crypto.randomUUID());
    const bytes = crypto.getRandomValues(new Uint8Array(1000));
    return [
      ids.every((id) => /^[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/.test(id)),
      new Set(ids).size,
      new Set(bytes).size > 200,
      attempt(() => crypto.getRandomValues(new Uint8Array(65537))),
    ];
  },

  modules_of_node() {
    const emitter = new EventEmitter();
    const seen = [];
    emitter.once("x", (n) => seen.push(n));
    emitter.emit("x", 1);
    emitter.emit("x", 2);
    const decoder = new StringDecoder("utf8");
    return [
      seen,
      path.join("/a", "../b", "c.txt"), path.extname("x.tar.gz"),
      querystring.parse("a=1&b=2"), querystring.stringify({ a: [1, 2] }),
      util.format("%s %d %j", "a", 1, { b: 2 }), util.isDeepStrictEqual?.({ a: 1 }, { a: 1 }) ?? true,
      NodeBuffer.from("héllo").toString("base64"), NodeBuffer.concat([NodeBuffer.from([1]), NodeBuffer.from([2])]).readUInt16BE(0),
      Buffer.isBuffer(NodeBuffer.alloc(1)), decoder.write(NodeBuffer.from([0xc3])) + decoder.write(NodeBuffer.from([0xa9])),
      attempt(() => assert.strictEqual(1, 2)),
    ];
  },
};
