// Random numbers of the attempt, digests and HMAC. The numbers follow from the seed of the task, so an attempt that is
// repeated gets the same ones.
import { hmac } from "@noble/hashes/hmac.js";
import { sha1 } from "@noble/hashes/legacy.js";
import { sha256, sha384, sha512 } from "@noble/hashes/sha2.js";
import { running } from "../running.js";
import { Promise } from "./promise.js";
import { TextEncoder, bytesOf } from "./text.js";

const HASHES = { "SHA-1": sha1, "SHA-256": sha256, "SHA-384": sha384, "SHA-512": sha512 };
const MAX_RANDOM_BYTES = 65_536;

let blocks = 0;

class CryptoKey {
  constructor(hash, secret, extractable, usages) {
    this.type = "secret";
    this.extractable = extractable;
    this.algorithm = { name: "HMAC", hash: { name: hash }, length: secret.length * 8 };
    this.usages = usages;
    CryptoKey.#secrets.set(this, secret);
  }

  static #secrets = new WeakMap();

  static secretOf(key, usage) {
    const secret = CryptoKey.#secrets.get(key);
    if (secret === undefined) throw new TypeError("this is not a key of HMAC");
    if (!key.usages.includes(usage)) throw new DOMException(`the key is not for \`${usage}\``, "InvalidAccessError");
    return secret;
  }
}

export const crypto = {
  getRandomValues(view) {
    if (!ArrayBuffer.isView(view)) throw new TypeError("random values go into a view of a buffer");
    const bytes = bytesOf(view);
    if (bytes.length > MAX_RANDOM_BYTES) throw new DOMException(`more than ${MAX_RANDOM_BYTES} bytes`, "QuotaExceededError");
    const seed = JSON.stringify(running("`crypto.getRandomValues`").info.seed);
    for (let at = 0; at < bytes.length; at += 32) {
      const block = sha256(new TextEncoder().encode(`crypto ${blocks++} ${seed}`));
      bytes.set(block.subarray(0, bytes.length - at), at);
    }
    return view;
  },

  randomUUID() {
    const bytes = crypto.getRandomValues(new Uint8Array(16));
    bytes[6] = (bytes[6] & 0x0f) | 0x40;
    bytes[8] = (bytes[8] & 0x3f) | 0x80;
    const hex = Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
    return [hex.slice(0, 8), hex.slice(8, 12), hex.slice(12, 16), hex.slice(16, 20), hex.slice(20)].join("-");
  },

  subtle: {
    digest: (algorithm, data) => Promise.try(() => buffer(hashOf(algorithm).hash(bytesOf(data)))),

    importKey(format, data, algorithm, extractable, usages) {
      return Promise.try(() => {
        if (format !== "raw") throw unsupported(`keys in the form \`${format}\``);
        if (nameOf(algorithm) !== "HMAC") throw unsupported(`keys of \`${nameOf(algorithm)}\``);
        return new CryptoKey(hashOf(algorithm.hash).name, bytesOf(data).slice(), extractable, [...usages]);
      });
    },

    sign: (algorithm, key, data) => Promise.try(() => buffer(signed(algorithm, key, "sign", data))),

    verify(algorithm, key, signature, data) {
      return Promise.try(() => {
        const right = signed(algorithm, key, "verify", data);
        const given = bytesOf(signature);
        let difference = right.length ^ given.length;
        for (let at = 0; at < right.length; at++) difference |= right[at] ^ (given[at] ?? 0);
        return difference === 0;
      });
    },
  },
};

function signed(algorithm, key, usage, data) {
  if (nameOf(algorithm) !== "HMAC") throw unsupported(`signatures of \`${nameOf(algorithm)}\``);
  const secret = CryptoKey.secretOf(key, usage);
  return hmac(HASHES[key.algorithm.hash.name], secret, bytesOf(data));
}

function hashOf(algorithm) {
  const name = nameOf(algorithm);
  if (!Object.hasOwn(HASHES, name)) throw unsupported(`the digest \`${name}\``);
  return { name, hash: HASHES[name] };
}

function nameOf(algorithm) {
  return String(algorithm?.name ?? algorithm).toUpperCase();
}

function unsupported(what) {
  return new DOMException(`${what} are not supported; digests are ${Object.keys(HASHES).join(", ")}, and keys are those of HMAC`, "NotSupportedError");
}

function buffer(bytes) {
  return Uint8Array.from(bytes).buffer;
}
