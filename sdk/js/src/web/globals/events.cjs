// `require("events")` is a function, and not an object with one.
module.exports = require("@jspm/core/nodelibs/events").default;
