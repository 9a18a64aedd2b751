// `require("stream")` is a function, and not an object with one.
module.exports = require("@jspm/core/nodelibs/stream").default;
