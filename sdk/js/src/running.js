// The task that runs. While a pack is built there is none, and its code can call nothing.
import { Task } from "./task.js";

let task;

export function begin() {
  task = new Task();
  return task;
}

// Returns the task; `what` needs one.
export function running(what) {
  if (task === undefined) throw new Error(`${what} cannot be used while the pack is built: use it in a function of a node type`);
  return task;
}
