// A pack: node types by name.
import { Failure, toHost as failed } from "./failure.js";
import { seeded } from "./random.js";
import { toHost as answered } from "./step.js";
import { Task } from "./task.js";

export function pack(types) {
  return {
    run(nodeType) {
      try {
        const task = new Task();
        Math.random = seeded(() => task.info.seed);
        return answered(find(types, nodeType)(task));
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
