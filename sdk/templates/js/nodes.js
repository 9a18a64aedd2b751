// The node types of this pack. `node.yaml` describes their inputs and outputs.
import { Failure, Pause, log, pack } from "flowcell-sdk";

// The time that a person has to answer.
const DAY_MS = 24 * 60 * 60 * 1000;

/** @param {import("flowcell-sdk").Task<{ name: string }>} task */
function greet({ input }) {
  if (input.name === "") throw new Failure("nobody", "the name is empty");
  return { text: `Hello ${input.name}` };
}

/**
 * The node gives up its instance while it waits, and runs again when it is woken.
 * @param {import("flowcell-sdk").Task<{ text: string }>} task
 */
function approve({ input, woken }) {
  if (woken === undefined) {
    const question = { prompt: `Is this good? ${input.text}`, choices: ["yes", "no"] };
    return Pause.answer(question).or(Pause.after(DAY_MS));
  }
  if (woken.wake === "after") log.warn("the question timed out");
  return { approved: woken.value.content === "yes" };
}

export const node = pack({ "acme.greet": greet, "acme.approve": approve });
