// @ts-check
/**
 * Keeps a page up to date. A stream of events, or the time, says when; the page itself, asked again, says what: its parts
 * with `data-live` take the place of the old ones. So what is live and what a reload shows cannot differ.
 */

import { hearSpeech } from "./agents.js";
import { localise } from "./times.js";

/** Milliseconds between two looks at a page without a stream. */
const POLL = 4_000;
/** Minimum milliseconds between two looks after events. */
const PAUSE = 400;
/** Maximum milliseconds before another try to open a stream. */
const MAX_WAIT = 30_000;

/** The time of the last answer. */
let seen = new Date();
/** Whether the server does not answer. */
let isLost = false;

/** The newest page, while parts of it wait because a person is at work in them. @type {Document | null} */
let held = null;
const HELD = "A newer state is shown as soon as you leave the part that you have opened.";

/** Says something to all readers, or nothing. @param {string} text @param {string} [link] */
function say(text, link) {
  const news = document.getElementById("news");
  if (!news || news.textContent === text) return;
  const element = document.createElement(link ? "a" : "span");
  if (element instanceof HTMLAnchorElement && link) element.href = link;
  element.textContent = text;
  news.replaceChildren(...(text ? [element] : []));
}

/** Asks for this page again. @returns {Promise<Document>} */
function ask() {
  return new Promise((resolve, reject) => {
    const request = new XMLHttpRequest();
    request.open("GET", location.href);
    request.responseType = "document";
    request.timeout = 30_000;
    request.onload = () => {
      const found = request.responseXML;
      if (found && request.status === 200) resolve(found);
      else reject(new Error(`status ${request.status}`));
    };
    request.onerror = request.ontimeout = () => reject(new Error("no answer"));
    request.send();
  });
}

/** Returns whether a person is at work in a part of the page. @param {Element} part */
function isInUse(part) {
  if (part.contains(document.activeElement) && document.activeElement !== document.body) return true;
  if (part.querySelector("details[open]")) return true;
  return [...part.querySelectorAll("textarea, input:not([type=hidden])")].some((field) =>
    (field instanceof HTMLTextAreaElement || field instanceof HTMLInputElement) && field.value !== field.defaultValue);
}

/** Takes over the entries of a list: adds new ones, and removes those that the newer page lacks. @param {Element} list @param {Element} fresh */
function merge(list, fresh) {
  const kept = new Set([...fresh.children].map((entry) => entry.id));
  for (const entry of list.querySelectorAll(":scope > *")) {
    if (!kept.has(entry.id) && !isInUse(entry)) entry.remove();
  }
  /** @type {Element | null} */
  let last = null;
  for (const entry of fresh.children) {
    let known = document.getElementById(entry.id);
    if (!known || known.parentElement !== list) {
      known = document.importNode(/** @type {HTMLElement} */ (entry), true);
      if (last) last.after(known);
      else list.prepend(known);
    }
    last = known;
  }
}

/**
 * Takes over the states and counts of a part that a person is at work in. The elements stay, and so does the focus; their
 * contents change.
 * @param {Element} part @param {Element} fresh
 */
function freshen(part, fresh) {
  const newer = new Map([...fresh.querySelectorAll("[data-fresh]")].map((leaf) => [leaf.getAttribute("data-fresh"), leaf]));
  for (const leaf of part.querySelectorAll("[data-fresh]")) {
    const found = newer.get(leaf.getAttribute("data-fresh"));
    if (!found || found.isEqualNode(leaf)) continue;
    leaf.replaceChildren(...[...found.childNodes].map((child) => document.importNode(child, true)));
    const label = found.getAttribute("aria-label");
    if (label) leaf.setAttribute("aria-label", label);
  }
}

/** Takes over the parts of a newer page. @param {Document} next */
function take(next) {
  // Both pages say how long ago something was, seen from now.
  localise(document);
  localise(next);
  held = null;
  for (const list of document.querySelectorAll("[data-entries][id]")) {
    const fresh = next.getElementById(list.id);
    if (fresh) merge(list, fresh);
  }
  for (const part of document.querySelectorAll("[data-live][id]")) {
    const fresh = next.getElementById(part.id);
    if (fresh && !fresh.isEqualNode(part) && isInUse(part)) {
      held = next;
      freshen(part, fresh);
    }
    else if (fresh && !fresh.isEqualNode(part)) {
      fresh.classList.toggle("chosen", part.classList.contains("chosen"));
      part.replaceWith(document.importNode(fresh, true));
    }
  }
  const rows = [...next.querySelectorAll("tr[data-live][id]")];
  const known = rows.some((row) => document.getElementById(row.id));
  const added = rows.filter((row) => !document.getElementById(row.id)).length;
  const isFirst = !new URLSearchParams(location.search).has("cursor");
  if (added > 0 && isFirst && (known || rows.length === added)) {
    say(`${added} new: show`, location.href);
  }
  const news = document.getElementById("news");
  if (held) say(HELD);
  else if (news?.textContent === HELD) say("");
  document.body.dataset.live = next.body.dataset.live ?? "";
  document.dispatchEvent(new Event("flowcell:fresh"));
}

/** Looks at the page again. Says so while it cannot. @returns {Promise<boolean>} whether the page may still change */
async function look() {
  try {
    const next = await ask();
    if (isLost) say("");
    [isLost, seen] = [false, new Date()];
    take(next);
    return next.body.dataset.live !== undefined;
  } catch (error) {
    isLost = true;
    say(`The server does not answer (${error instanceof Error ? error.message : error}). Shown as of ${seen.toLocaleTimeString()}.`);
    return true;
  }
}

/** Waits. @param {number} ms */
const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

/** Waits until the page can be seen. */
function shown() {
  if (!document.hidden) return Promise.resolve();
  return new Promise((resolve) => document.addEventListener("visibilitychange", resolve, { once: true }));
}

/** Looks at the page again and again while it can be seen. */
async function poll() {
  for (;;) {
    await pause(POLL);
    await shown();
    if (!(await look())) return;
  }
}

/**
 * Reads a stream until it ends, and looks at the page after events. A burst of events is one look, and looks that take
 * long come less often.
 * @param {string} source @returns {Promise<boolean>} whether the stream was open
 */
async function read(source) {
  const abort = new AbortController();
  const hide = () => { if (document.hidden) abort.abort(); };
  document.addEventListener("visibilitychange", hide);
  let due = false;
  let working = false;
  const refresh = async () => {
    due = true;
    if (working) return;
    working = true;
    while (due && !document.hidden) {
      due = false;
      const began = performance.now();
      await look();
      await pause(Math.max(PAUSE, 4 * (performance.now() - began)));
    }
    working = false;
  };
  try {
    const answer = await fetch(source, { signal: abort.signal, headers: { accept: "text/event-stream" } });
    if (!answer.ok || !answer.body) return false;
    if (answer.status === 204) return true;
    const reader = answer.body.getReader();
    const hear = hearSpeech();
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return true;
      // Three bytes are a comment, which keeps the connection open.
      if (hear ? hear(value) : value.length > 3) refresh();
    }
  } catch {
    return abort.signal.aborted;
  } finally {
    document.removeEventListener("visibilitychange", hide);
  }
}

// What a person has left may change again, also after the last look at the page.
for (const event of ["focusout", "toggle"]) {
  document.addEventListener(event, () => setTimeout(() => { if (held) take(held); }), true);
}

/** Follows the changes of the page from now on. @param {string} source the path of a stream, or `poll` */
export async function follow(source) {
  if (source === "poll") return poll();
  let wait = PAUSE;
  for (;;) {
    await shown();
    wait = (await read(document.body.dataset.live || source)) ? PAUSE : Math.min(2 * wait, MAX_WAIT);
    await shown();
    if (!(await look())) return;
    await pause(wait);
  }
}
