// Globals that a bundle has if its code names them.
export { Blob, File, FormData } from "./blob.js";
export { Buffer } from "./buffer.js";
export { Headers, Request, Response, fetch } from "./fetch.js";
export { URL, URLSearchParams } from "./url.js";
export { crypto } from "./crypto.js";
export { process } from "./process.js";
export { structuredClone } from "./clone.js";
