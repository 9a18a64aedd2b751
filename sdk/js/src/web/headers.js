// The fields of requests and answers.

const NAME = /^[!#$%&'*+\-.^_`|~0-9A-Za-z]+$/;
const WRONG_VALUE = /[\0\r\n]/;

export class Headers {
  // Values by name in lower case.
  #fields = new Map();

  constructor(init) {
    if (init == null) return;
    const pairs = typeof init[Symbol.iterator] === "function" ? init : Object.entries(init);
    for (const pair of pairs) {
      const [name, value, ...more] = pair;
      if (value === undefined || more.length > 0) throw new TypeError("a header is a pair of a name and a value");
      this.append(name, value);
    }
  }

  append(name, value) {
    const key = checkedName(name);
    this.#fields.set(key, [...(this.#fields.get(key) ?? []), checkedValue(value)]);
  }

  set(name, value) {
    this.#fields.set(checkedName(name), [checkedValue(value)]);
  }

  get(name) {
    return this.#fields.get(checkedName(name))?.join(", ") ?? null;
  }

  has(name) {
    return this.#fields.has(checkedName(name));
  }

  delete(name) {
    this.#fields.delete(checkedName(name));
  }

  getSetCookie() {
    return [...(this.#fields.get("set-cookie") ?? [])];
  }

  forEach(callback, self) {
    for (const [name, value] of this) Reflect.apply(callback, self, [value, name, this]);
  }

  *entries() {
    for (const name of [...this.#fields.keys()].sort()) {
      const values = this.#fields.get(name);
      if (name === "set-cookie") for (const value of values) yield [name, value];
      else yield [name, values.join(", ")];
    }
  }

  *keys() {
    for (const [name] of this) yield name;
  }

  *values() {
    for (const [, value] of this) yield value;
  }

  [Symbol.iterator]() {
    return this.entries();
  }

  get [Symbol.toStringTag]() {
    return "Headers";
  }
}

function checkedName(name) {
  const text = String(name);
  if (!NAME.test(text)) throw new TypeError(`${JSON.stringify(text)} is not the name of a header`);
  return text.toLowerCase();
}

function checkedValue(value) {
  const text = String(value).replace(/^[\t\n\r ]+|[\t\n\r ]+$/g, "");
  if (WRONG_VALUE.test(text)) throw new TypeError("the value of a header has a line break or a zero byte");
  return text;
}
