// A pack: node types by name.
import "./locale.js";
import { Failure, toHost as failed } from "./failure.js";
import { seeded } from "./random.js";
import { begin } from "./running.js";
import { toHost as answered } from "./step.js";
import { finish } from "./web/loop.js";
import { Promise } from "./web/promise.js";

export function pack(types) {
  return {
    run(nodeType) {
      try {
        const task = begin();
        Math.random = seeded(() => task.info.seed);
        return answered(settled(find(types, nodeType)(task)));
      } catch (thrown) {
        throw failed(thrown);
      }
    },
  };
}

function find(types, nodeType) {
  if (Object.hasOwn(types, nodeType)) return types[nodeType];
  throw new Failure("unknown_node_type", `this pack has no code for \`${nodeType}\``);
}

// Waits for an answer that is a promise, and for the promises that it left behind.
function settled(answer) {
  if (globalThis.Promise === Promise) return finish(Promise.resolve(answer));
  if (typeof answer?.then !== "function") return answer;
  throw new TypeError(
    "nothing waits for promises in a pack that is not bundled: run `npm install --save-dev esbuild`, and `flowcell node build` bundles it",
  );
}
