// The names of the web platform. The engine evaluates this text when a script first uses one of them. `native` has the
// functions that Rust performs.
(native) => {
  'use strict';

  const refuse = (name, message) => Object.assign(new TypeError(message), { name });

  /** Returns the bytes of an ArrayBuffer or a view of one, without copying them. */
  const bytesOf = (data, what) => {
    if (data instanceof ArrayBuffer) return new Uint8Array(data);
    if (ArrayBuffer.isView(data)) return new Uint8Array(data.buffer, data.byteOffset, data.byteLength);
    throw new TypeError(`${what} needs an ArrayBuffer, a typed array or a DataView`);
  };

  let link, reload;

  class URLSearchParams {
    #pairs = [];
    #changed;

    static {
      link = (params, changed) => (params.#changed = changed);
      reload = (params, text) => (params.#pairs = native.parseForm(text));
    }

    constructor(init = '') {
      if (init === null || typeof init !== 'object') {
        const text = String(init);
        this.#pairs = native.parseForm(text.startsWith('?') ? text.slice(1) : text);
      } else if (typeof init[Symbol.iterator] === 'function') {
        for (const pair of init) {
          const both = [...pair];
          if (both.length !== 2) throw new TypeError('URLSearchParams needs pairs of a name and a value');
          this.#pairs.push(both.map(String));
        }
      } else {
        for (const name of Object.keys(init)) this.#pairs.push([name, String(init[name])]);
      }
    }

    #update(pairs) {
      this.#pairs = pairs;
      this.#changed?.();
    }

    get size() { return this.#pairs.length; }
    append(name, value) {
      this.#pairs.push([String(name), String(value)]);
      this.#changed?.();
    }
    delete(name, value) {
      const isGone = ([key, other]) => key === String(name) && (value === undefined || other === String(value));
      this.#update(this.#pairs.filter((pair) => !isGone(pair)));
    }
    get(name) { return this.#pairs.find(([key]) => key === String(name))?.[1] ?? null; }
    getAll(name) { return this.#pairs.filter(([key]) => key === String(name)).map(([, value]) => value); }
    has(name, value) {
      return this.#pairs.some(([key, other]) => key === String(name) && (value === undefined || other === String(value)));
    }
    set(name, value) {
      const at = this.#pairs.findIndex(([key]) => key === String(name));
      if (at < 0) return this.append(name, value);
      const rest = this.#pairs.filter(([key], index) => index === at || key !== String(name));
      this.#update(rest.map((pair, index) => (index === at ? [pair[0], String(value)] : pair)));
    }
    sort() { this.#update([...this.#pairs].sort(([a], [b]) => (a < b ? -1 : a > b ? 1 : 0))); }
    forEach(call, self) { for (const [name, value] of this) call.call(self, value, name, this); }
    *entries() { for (let at = 0; at < this.#pairs.length; at++) yield [...this.#pairs[at]]; }
    *keys() { for (const [name] of this.entries()) yield name; }
    *values() { for (const [, value] of this.entries()) yield value; }
    [Symbol.iterator]() { return this.entries(); }
    toString() { return native.writeForm(this.#pairs.map(([name, value]) => [name.toWellFormed(), value.toWellFormed()])); }
    get [Symbol.toStringTag]() { return 'URLSearchParams'; }
  }

  class URL {
    #parts;
    #params;
    /** True if the parameters have changed since the search was written. */
    #isStale = false;

    constructor(url, base) {
      this.#parts = URL.#parse(url, base);
      if (!this.#parts) throw new TypeError(`Invalid URL: ${String(url).slice(0, 100)}`);
    }

    static #parse(url, base) { return native.parseUrl(String(url), base === undefined ? undefined : String(base)); }
    static canParse(url, base) { return Boolean(URL.#parse(url, base)); }
    static parse(url, base) { return URL.canParse(url, base) ? new URL(url, base) : null; }

    #read() {
      if (this.#isStale) {
        this.#isStale = false;
        this.#set('search', this.#params.toString());
      }
      return this.#parts;
    }

    #set(part, value) {
      const parts = native.setUrl(this.#parts.href, part, String(value));
      if (parts) this.#parts = parts;
      else if (part === 'href') throw new TypeError(`Invalid URL: ${String(value).slice(0, 100)}`);
    }

    static {
      for (const part of ['href', 'protocol', 'username', 'password', 'host', 'hostname', 'port', 'pathname', 'search', 'hash']) {
        Object.defineProperty(this.prototype, part, {
          get() { return this.#read()[part]; },
          set(value) {
            this.#read();
            this.#set(part, value);
            if (this.#params) reload(this.#params, this.search.slice(1));
          },
          enumerable: true,
          configurable: true,
        });
      }
    }

    get origin() { return this.#read().origin; }
    get searchParams() {
      if (!this.#params) {
        this.#params = new URLSearchParams(this.search);
        link(this.#params, () => (this.#isStale = true));
      }
      return this.#params;
    }
    toString() { return this.href; }
    toJSON() { return this.href; }
    get [Symbol.toStringTag]() { return 'URL'; }
  }

  class TextEncoder {
    get encoding() { return 'utf-8'; }
    encode(text = '') { return native.encode(String(text).toWellFormed()); }
    get [Symbol.toStringTag]() { return 'TextEncoder'; }
  }

  class TextDecoder {
    #fatal;
    #ignoreBOM;

    constructor(label = 'utf-8', { fatal = false, ignoreBOM = false } = {}) {
      if (!['utf-8', 'utf8', 'unicode-1-1-utf-8'].includes(String(label).trim().toLowerCase())) {
        throw new RangeError(`a script can decode UTF-8 only, not ${String(label).slice(0, 30)}`);
      }
      this.#fatal = Boolean(fatal);
      this.#ignoreBOM = Boolean(ignoreBOM);
    }

    get encoding() { return 'utf-8'; }
    get fatal() { return this.#fatal; }
    get ignoreBOM() { return this.#ignoreBOM; }
    decode(data, { stream = false } = {}) {
      if (stream) throw new TypeError('a script cannot decode in parts: join the bytes first');
      if (data === undefined) return '';
      const text = native.decode(bytesOf(data, 'decode'), this.#fatal);
      if (text === null) throw new TypeError('the bytes are not UTF-8');
      return !this.#ignoreBOM && text.startsWith('\ufeff') ? text.slice(1) : text;
    }
    get [Symbol.toStringTag]() { return 'TextDecoder'; }
  }

  const btoa = (data) => {
    const coded = native.toBase64(String(data));
    if (coded === null) throw refuse('InvalidCharacterError', 'btoa takes characters up to 255 only: encode the text first');
    return coded;
  };

  const atob = (data) => {
    const text = native.fromBase64(String(data));
    if (text === null) throw refuse('InvalidCharacterError', 'atob: the text is not base64');
    return text;
  };

  const errors = { EvalError, RangeError, ReferenceError, SyntaxError, TypeError, URIError };

  const clone = (value, seen) => {
    const fail = (what) => refuse('DataCloneError', `structuredClone cannot copy ${what}`);
    if (typeof value === 'function') throw fail('a function');
    if (typeof value === 'symbol') throw fail('a symbol');
    if (typeof value !== 'object' || value === null) return value;
    if (seen.has(value)) return seen.get(value);
    const keep = (copy) => (seen.set(value, copy), copy);
    const members = (copy) => {
      for (const key of Object.keys(value)) {
        const member = clone(value[key], seen);
        Object.defineProperty(copy, key, { value: member, writable: true, enumerable: true, configurable: true });
      }
      return copy;
    };
    if (Array.isArray(value)) {
      const copy = keep([]);
      copy.length = value.length;
      return members(copy);
    }
    for (const type of [Promise, WeakMap, WeakSet, WeakRef]) {
      if (value instanceof type) throw fail(`a ${type.name}`);
    }
    if (value instanceof Boolean || value instanceof Number || value instanceof String || value instanceof BigInt) {
      return keep(Object(value.valueOf()));
    }
    if (value instanceof Date) return keep(new Date(value.getTime()));
    if (value instanceof RegExp) return keep(new RegExp(value.source, value.flags));
    if (value instanceof ArrayBuffer) return keep(value.slice(0));
    if (value instanceof DataView) return keep(new DataView(clone(value.buffer, seen), value.byteOffset, value.byteLength));
    if (ArrayBuffer.isView(value)) {
      const type = globalThis[Object.prototype.toString.call(value).slice(8, -1)];
      return keep(new type(clone(value.buffer, seen), value.byteOffset, value.length));
    }
    if (value instanceof Map) {
      const copy = keep(new Map());
      for (const [key, member] of [...value]) copy.set(clone(key, seen), clone(member, seen));
      return copy;
    }
    if (value instanceof Set) {
      const copy = keep(new Set());
      for (const member of [...value]) copy.add(clone(member, seen));
      return copy;
    }
    if (value instanceof Error) {
      const copy = keep(new (errors[value.name] ?? Error)(String(value.message)));
      if ('cause' in value) {
        const cause = clone(value.cause, seen);
        Object.defineProperty(copy, 'cause', { value: cause, writable: true, configurable: true });
      }
      return copy;
    }
    return members(keep({}));
  };

  const structuredClone = (value, options) => {
    if (options?.transfer?.length) throw refuse('DataCloneError', 'structuredClone cannot transfer values in a script');
    return clone(value, new Map());
  };

  const isWhole = (view) => /^(Big)?(Int|Uint)(8|16|32|64)(Clamped)?Array$/.test(Object.prototype.toString.call(view).slice(8, -1));

  const crypto = {
    subtle: {
      async digest(algorithm, data) {
        const name = String(algorithm?.name ?? algorithm).toUpperCase();
        const digest = native.digest(name, bytesOf(data, 'digest'));
        if (digest === null) throw refuse('NotSupportedError', `digest: use SHA-256, SHA-384 or SHA-512, not ${name.slice(0, 30)}`);
        return digest.buffer;
      },
    },
    getRandomValues(view) {
      if (!ArrayBuffer.isView(view) || !isWhole(view)) throw new TypeError('getRandomValues needs a typed array of whole numbers');
      if (view.byteLength > 65536) throw refuse('QuotaExceededError', 'getRandomValues fills at most 65536 bytes at a time');
      bytesOf(view).set(native.random(view.byteLength));
      return view;
    },
    randomUUID() {
      const bytes = native.random(16);
      bytes[6] = (bytes[6] & 0x0f) | 0x40;
      bytes[8] = (bytes[8] & 0x3f) | 0x80;
      const digits = Array.from(bytes, (byte) => byte.toString(16).padStart(2, '0')).join('');
      return digits.replace(/^(.{8})(.{4})(.{4})(.{4})/, '$1-$2-$3-$4-');
    },
  };

  return { URL, URLSearchParams, TextEncoder, TextDecoder, atob, btoa, structuredClone, crypto };
};
