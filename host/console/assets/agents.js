// @ts-check
/** The text of an agent while its model writes it, until the page has the whole answer. */

import { visible } from "./texts.js";

/** Maximum characters of a text that is being written. Of a longer one, the end is shown. */
const MOST = 65_536;

/** The text so far, and the number of the event with the whole answer once there is one. */
let written = "";
/** @type {number | null} */
let answered = null;

/** Returns the place of the text, if the page shows the latest entries of an agent. */
function place() {
  const found = document.querySelector("[data-speech]");
  return found instanceof HTMLElement ? found : null;
}

/** Shows the text so far. */
function show() {
  const at = place();
  const text = at?.querySelector(".speech");
  if (!at || !text) return;
  text.textContent = visible(written);
  at.hidden = written === "";
}

/** Forgets the text. */
function forget() {
  [written, answered] = ["", null];
  show();
}

/** Handles an event. Returns whether the page may have changed. @param {string} kind @param {string} data */
function handle(kind, data) {
  const isLive = kind === "agent:text" || kind === "agent:retry";
  if (!isLive && kind !== "agent:message") return kind !== "";
  const event = JSON.parse(data);
  if (event.agentRunId !== place()?.dataset.speech) return !isLive;
  if (kind === "agent:message") {
    answered = event.seq;
  } else if (kind === "agent:retry") {
    forget();
  } else {
    if (answered !== null) forget();
    written = (written + (event.delta ?? "")).slice(-MOST);
    show();
  }
  return !isLive;
}

/**
 * Returns a function that reads the pieces of a stream of events, and says of each whether the page may have changed. Returns
 * `null` if the page shows no agent.
 * @returns {((bytes: Uint8Array) => boolean) | null}
 */
export function hearSpeech() {
  if (!place()) return null;
  // A new stream repeats no live text.
  forget();
  const decoder = new TextDecoder();
  let rest = "";
  return (bytes) => {
    const frames = (rest + decoder.decode(bytes, { stream: true })).split("\n\n");
    rest = frames.pop() ?? "";
    let changes = false;
    for (const frame of frames) {
      const lines = frame.split("\n");
      const of = (/** @type {string} */ name) => lines.filter((line) => line.startsWith(name)).map((line) => line.slice(name.length));
      if (handle(of("event: ").join(""), of("data: ").join("\n"))) changes = true;
    }
    return changes;
  };
}

/** Listens for the key that sends a message, and for answers that the page has taken over. */
export function listenForAgents() {
  document.addEventListener("flowcell:fresh", () => {
    if (answered !== null && document.getElementById(`entry-${answered}`)) forget();
  });
  document.addEventListener("keydown", (event) => {
    if (event.key !== "Enter" || !(event.ctrlKey || event.metaKey)) return;
    if (event.target instanceof HTMLTextAreaElement && event.target.form?.id === "message") event.target.form.requestSubmit();
  });
}
