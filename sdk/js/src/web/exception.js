// The errors of the web's interfaces.

const CODES = { QuotaExceededError: 22, InvalidCharacterError: 5, NotSupportedError: 9, InvalidAccessError: 15, TimeoutError: 23, AbortError: 20, DataCloneError: 25 };

export class DOMException extends Error {
  #name;

  constructor(message = "", name = "Error") {
    super(message);
    this.#name = String(name);
  }

  get name() {
    return this.#name;
  }

  get code() {
    return CODES[this.#name] ?? 0;
  }
}
