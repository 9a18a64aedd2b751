// `Buffer` of Node.js.
export { Buffer } from "@jspm/core/nodelibs/buffer";
