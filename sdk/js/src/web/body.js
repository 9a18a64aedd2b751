// The body of a request or of an answer.
import { readBytes } from "../file.js";
import { Blob, FormData, joined, multipart } from "./blob.js";
import { URLSearchParams } from "./url.js";
import { Promise } from "./promise.js";
import { TextDecoder, TextEncoder, bytesOf } from "./text.js";

// Converts what a caller gives as a body into the form of `http`, `{ text | bytes | file }`, and its media type.
export function content(body) {
  if (body == null) return {};
  if (typeof body === "string") return { text: body, type: "text/plain;charset=UTF-8" };
  if (body instanceof URLSearchParams) {
    return { text: String(body), type: "application/x-www-form-urlencoded;charset=UTF-8" };
  }
  if (body instanceof FormData) return multipart(body);
  if (body instanceof Blob) return { bytes: Blob.bytesOf(body), type: body.type || undefined };
  if (body instanceof ArrayBuffer || ArrayBuffer.isView(body)) return { bytes: bytesOf(body).slice() };
  if (body.kind === "file" && typeof body.fileId === "string") return { file: body };
  if (typeof body.getReader === "function" || typeof body[Symbol.asyncIterator] === "function") {
    throw new TypeError("a body is sent as a whole: give a text, bytes, a form or a file value, and not a stream");
  }
  return { text: String(body), type: "text/plain;charset=UTF-8" };
}

// What requests and answers have in common.
export class Body {
  #content;
  #isUsed = false;

  constructor(given) {
    this.#content = given;
  }

  // The content in the form of `http`, without reading it.
  static contentOf(body) {
    return body.#content;
  }

  // Takes the content, which can be read once.
  static take(body) {
    body.#use();
    return body.#content;
  }

  static exchange(body, given) {
    body.#content = given;
    return body;
  }

  get bodyUsed() {
    return this.#isUsed;
  }

  // An answer arrives as a whole, so its stream has few pieces, unless `fetch` was asked for a stream.
  get body() {
    const { text, bytes, file, answer } = this.#content;
    const isEmpty = text === undefined && bytes === undefined && file === undefined && answer === undefined;
    return isEmpty ? null : new Stream(() => this.#pieces(), () => answer?.close());
  }

  // The file value of a large answer, which no memory of the node holds; undefined for others.
  get file() {
    return this.#content.file;
  }

  text() {
    return this.#read(({ text }) => (text === undefined ? decoded(this.#all()) : text.replace(/^\ufeff/, "")));
  }

  json() {
    return this.text().then((text) => JSON.parse(text));
  }

  bytes() {
    return this.#read(() => joined([...this.#all()]));
  }

  arrayBuffer() {
    return this.bytes().then((bytes) => bytes.buffer);
  }

  blob() {
    return this.bytes().then((bytes) => new Blob([bytes], { type: this.headers.get("content-type") ?? "" }));
  }

  formData() {
    return this.text().then((text) => {
      const type = this.headers.get("content-type") ?? "";
      if (!type.startsWith("application/x-www-form-urlencoded")) throw new TypeError(`a form of type \`${type}\` is not read`);
      const form = new FormData();
      for (const [name, value] of new URLSearchParams(text)) form.append(name, value);
      return form;
    });
  }

  #read(read) {
    return new Promise((resolve) => {
      this.#use();
      resolve(read(this.#content));
    });
  }

  #use() {
    if (this.#isUsed) throw new TypeError("the body was already read");
    this.#isUsed = true;
  }

  *#pieces() {
    this.#use();
    yield* this.#all();
  }

  *#all() {
    const { text, bytes, file, answer } = this.#content;
    if (answer !== undefined) yield* answer.chunks();
    else if (text !== undefined) yield new TextEncoder().encode(text);
    else if (bytes !== undefined) yield Uint8Array.from(bytes);
    else if (file !== undefined) {
      for (let offset = 0; ; ) {
        const piece = readBytes(file, offset);
        if (piece.length === 0) return;
        offset += piece.length;
        yield piece;
      }
    }
  }
}

// A stream of bytes that can only be read.
class Stream {
  #pieces;
  #begin;
  #close;
  locked = false;

  constructor(begin, close) {
    this.#begin = begin;
    this.#close = close;
  }

  getReader() {
    if (this.locked) throw new TypeError("the stream has a reader");
    this.locked = true;
    this.#pieces ??= this.#begin();
    const pieces = this.#pieces;
    return {
      read: () => new Promise((resolve) => resolve(next(pieces))),
      cancel: () => this.cancel(),
      releaseLock: () => {
        this.locked = false;
      },
      closed: Promise.resolve(undefined),
    };
  }

  cancel() {
    this.#pieces?.return();
    // Pieces that have not begun close nothing.
    this.#close();
    return Promise.resolve(undefined);
  }

  [Symbol.asyncIterator]() {
    const reader = this.getReader();
    return { next: reader.read, return: () => reader.cancel().then(() => ({ done: true, value: undefined })) };
  }
}

function next(pieces) {
  const { done, value } = pieces.next();
  return { done, value };
}

function decoded(pieces) {
  const decoder = new TextDecoder();
  const texts = [];
  for (const piece of pieces) texts.push(decoder.decode(piece, { stream: true }));
  return texts.join("") + decoder.decode();
}
