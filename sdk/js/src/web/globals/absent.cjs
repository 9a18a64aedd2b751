// Modules of Node.js that need an operating system. They can be imported, and fail when they are used.
// The message names no global, because a bundle has those that its code names.
const absent = new Proxy(Object.create(null), {
  get(_, name) {
    if (typeof name === "symbol" || name === "__esModule" || name === "then" || name === "default") return undefined;
    const unavailable = () => {
      throw new Error(`\`${name}\` of Node.js does not exist in the sandbox: the SDK has \`http\` and \`files\``);
    };
    // `fs.promises.readFile` is one, too.
    const get = (target, member) => (member in target || typeof member === "symbol" || member === "then" ? target[member] : unavailable);
    return new Proxy(function () {}, { apply: unavailable, construct: unavailable, get });
  },
});
module.exports = Object.create(absent);
