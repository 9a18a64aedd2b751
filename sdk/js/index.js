// Write Flowcell node types in JavaScript. `index.d.ts` describes all exports.
export { Failure } from "./src/failure.js";
export { pack } from "./src/pack.js";
export { Part, Pause, part } from "./src/step.js";
export * as agent from "./src/calls/agent.js";
export * as cache from "./src/calls/cache.js";
export * as file from "./src/file.js";
export * as files from "./src/calls/files.js";
export * as http from "./src/calls/http.js";
export * as log from "./src/calls/log.js";
export * as metrics from "./src/calls/metrics.js";
export * as model from "./src/calls/model.js";
export * as queue from "./src/calls/queue.js";
export * as services from "./src/calls/services.js";
export * as state from "./src/calls/state.js";
export * as tools from "./src/calls/tools.js";
