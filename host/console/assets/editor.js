// @ts-check
/**
 * The editor of flows while a person writes: diagnostics, suggestions, explanations, renaming, line numbers, colours and
 * the picture. A key only sets timers and redraws the visible lines. Questions to the server wait for a pause, and only
 * the newest answer counts.
 */

import "./console.js";
import { coloursFor } from "./colours.js";
import { keepText } from "./kept.js";
import { element, offersFor } from "./offers.js";
import { renamerFor } from "./rename.js";
import { filesOf, showTabs } from "./tabs.js";
import { visible } from "./texts.js";

/** @typedef {import("./offers.js").Place} Place */
/** @typedef {import("./offers.js").Range} Range */
/** @typedef {import("./offers.js").Offer} Offer */
/** @typedef {{ title: string, range: Range, text: string }} Fix */
/** @typedef {{ code: string, severity: string, message: string, help?: string, file?: string, range?: Range, fixes: Fix[] }} Finding */
/** @typedef {import("./rename.js").Renaming} Renaming */
/** @typedef {import("./colours.js").Tokens} Tokens */
/** @typedef {{ valid?: boolean, diagnostics?: Finding[], completions?: Offer[], hover?: { text: string } | null, tokens?: Tokens, rename?: Renaming | null }} Answer */

/** Milliseconds without a key before the text is checked, before suggestions, and before the picture. */
const [CHECK, SUGGEST, DRAW] = [400, 150, 800];
/** The maximum number of diagnostics in the list. */
const MOST = 100;

/** Returns a function that does some work after a pause without further calls. @param {number} ms @param {() => void} work */
function afterPause(ms, work) {
  let timer = 0;
  return {
    plan() {
      clearTimeout(timer);
      timer = setTimeout(work, ms);
    },
    drop: () => clearTimeout(timer),
  };
}

/**
 * Returns a function that asks for assistance. The answer is null if a newer question has followed, or if the text has
 * changed.
 * @param {HTMLFormElement} form @param {HTMLTextAreaElement} field @param {string} file
 * @param {() => number} edits the number of changes so far
 */
function asker(form, field, file, edits) {
  let abort = new AbortController();
  /** @param {string[]} want @param {{ at?: number, newId?: string }} [more] @returns {Promise<Answer | null>} */
  return async (want, more = {}) => {
    abort.abort();
    abort = new AbortController();
    const [{ signal }, before] = [abort, edits()];
    const asked = { text: field.value, name: file, files: filesOf(form), at: field.selectionStart, want, ...more };
    try {
      const headers = { "content-type": "application/json" };
      const answer = await fetch("/v1/assist", { method: "POST", headers, body: JSON.stringify(asked), signal });
      const body = await answer.json();
      if (!answer.ok) throw new Error(body?.error?.message ?? `status ${answer.status}`);
      return signal.aborted || before !== edits() ? null : body;
    } catch (error) {
      if (signal.aborted) return null;
      throw error;
    }
  };
}

/** Writes a number with its noun. @param {number} number @param {string} noun */
const count = (number, noun) => `${number} ${noun}${number === 1 ? "" : "s"}`;

/** @param {HTMLFormElement} form @param {HTMLTextAreaElement} field */
function start(form, field) {
  const numbers = document.createElement("span");
  const gutter = document.getElementById("lines");
  const layer = document.getElementById("paint");
  const about = document.getElementById("about");
  const findings = document.getElementById("findings");
  const summary = element("p", "", { role: "status" });
  const list = element("ul", "", { class: "plain" });
  const news = element("p", "", { role: "status", class: "hint" });
  const age = element("p", "", { id: "age", role: "status", class: "faint" });
  let edits = 0;
  let isSaved = !("unsaved" in form.dataset);
  let isLeaving = false;
  /** The number of lines at the last pause, and the changes that the diagnostics and the picture have. */
  let [lines, checked, drawn] = [1, -1, 0];
  /** Whether the next look asks for diagnostics, too. */
  let isStale = true;
  /** The size of a line and of a character, and the inner distances of the field at its top and at its left. */
  let [height, width, padding, inset] = [20, 8, 8, 12];

  const file = form.dataset.file ?? "flow.yaml";
  const colours = layer && coloursFor(field, layer, file.endsWith(".js"));
  // It may stop the form from being sent.
  keepText(form, field, (text) => replaceBetween(0, field.value.length, text));

  /** Replaces a part of the text, so that the undo of the browser knows it. @param {Range} range @param {string} text */
  const replace = ({ start, end }, text) => replaceBetween(start.offset, end.offset, text);

  /** @param {number} from @param {number} to @param {string} text */
  function replaceBetween(from, to, text) {
    field.focus();
    field.setSelectionRange(from, to);
    // `setRangeText` would empty the history of the field.
    if (document.execCommand(text ? "insertText" : "delete", false, text)) return;
    field.setRangeText(text, from, to, "end");
    field.dispatchEvent(new Event("input"));
  }

  /** Shows an explanation. @param {string} text */
  function explain(text) {
    if (about) about.textContent = visible(text);
  }

  /** Returns the place below a character in the field. @param {Place} at */
  function place({ line, column }) {
    const left = field.offsetLeft + inset + (column - 1) * width - field.scrollLeft;
    const most = Math.max(0, (form.clientWidth || 0) - 320);
    return { left: Math.min(Math.max(0, left), most), top: padding + line * height - field.scrollTop };
  }

  /** Measures the field. */
  function measure() {
    if (!gutter) return;
    const style = getComputedStyle(field);
    [height, padding] = [parseFloat(style.lineHeight) || 20, parseFloat(style.paddingTop) || 0];
    inset = parseFloat(style.paddingLeft) || 0;
    numbers.textContent = "0".repeat(10);
    width = numbers.getBoundingClientRect().width / 10 || 8;
    if (!layer) return;
    const { font, letterSpacing, tabSize } = style;
    const [left, top] = [field.offsetLeft + field.clientLeft, field.offsetTop + field.clientTop].map((each) => `${each}px`);
    const [wide, high] = [field.clientWidth, field.clientHeight].map((each) => `${each}px`);
    Object.assign(layer.style, { font, letterSpacing, tabSize, left, top, width: wide, height: high });
  }

  /** Shows the visible lines: their numbers and colours. A text that fits into the field has as many lines as at the last pause. */
  function number() {
    const isLong = field.scrollHeight > field.clientHeight;
    const last = isLong ? Math.round((field.scrollHeight - 2 * padding) / height) : lines;
    const first = Math.floor(field.scrollTop / height);
    const shown = Math.max(0, Math.min(Math.ceil(field.clientHeight / height) + 1, last - first));
    numbers.textContent = Array.from({ length: shown }, (_, at) => first + at + 1).join("\n");
    numbers.style.transform = `translateY(${first * height - field.scrollTop}px)`;
    const [top, left, count] = [padding - field.scrollTop, inset - field.scrollLeft, Math.ceil(field.clientHeight / height) + 1];
    colours?.draw({ top, left, first, count, height });
  }
  let isDue = false;
  const renumber = () => {
    if (isDue) return;
    isDue = true;
    requestAnimationFrame(() => { isDue = false; number(); });
  };

  /** Moves the caret to a place, and shows it. @param {Range} range */
  function go({ start, end }) {
    field.focus();
    field.setSelectionRange(start.offset, end.offset);
    field.scrollTop = Math.max(0, (start.line - 5) * height);
    // More corrections are known of the diagnostics at the caret.
    isStale = true;
    look.plan();
  }

  /** Returns the entry of a diagnostic. @param {Finding} finding */
  function entry({ code, severity, message, help, file, range, fixes }) {
    const item = element("li", "");
    const where = range ? `Line ${range.start.line}, column ${range.start.column}` : (file ?? "");
    const button = element("button", where, { type: "button", class: "place" });
    if (range) button.addEventListener("click", () => go(range));
    const tone = severity === "error" ? "bad" : "warn";
    item.append(button, " ", element("span", severity, { class: tone }), " ", visible(message), help ? visible(`; ${help}`) : "", " ", element("code", code));
    for (const { title, range, text } of fixes.slice(0, 3)) {
      const apply = element("button", fixes.length === 1 ? "Apply fix" : title, { type: "button" });
      apply.setAttribute("aria-label", visible(`Apply fix in line ${range.start.line}: ${title}`));
      apply.addEventListener("click", () => {
        // The range is one of the text that was checked.
        if (checked === edits) return replace(range, text);
        summary.textContent = "The text has changed since it was checked, so nothing was corrected. The list follows.";
        look.plan();
      });
      item.append(" ", apply);
    }
    return item;
  }

  /** The diagnostics in the list. */
  let shown = "";
  /** Shows diagnostics. @param {Finding[]} found */
  function report(found) {
    const errors = found.filter((each) => each.severity === "error").length;
    const rest = found.length > MOST ? ` The first ${MOST} are listed.` : "";
    const text = found.length === 0
      ? "The text has no mistakes."
      : `${count(errors, "error")}, ${count(found.length - errors, "warning")}.${rest}`;
    if (summary.textContent !== text) summary.textContent = text;
    const next = JSON.stringify(found);
    if (next === shown) return;
    shown = next;
    const focused = [...list.querySelectorAll("button")].findIndex((button) => button === document.activeElement);
    list.replaceChildren(...found.slice(0, MOST).map(entry));
    if (focused >= 0) (list.querySelectorAll("button")[focused] ?? field).focus();
  }

  /** Says which text the picture shows, if it is not that of the field. @param {string} text */
  function date(text) {
    // Without a picture, its place says why.
    const said = document.querySelector("#drawing svg") ? text : "";
    if (age.textContent !== said) age.textContent = said;
  }

  /** Whether the picture waits until a person leaves the old one. */
  let isHeld = false;
  /** Asks the page for the picture of the text, and shows it. */
  function draw() {
    const old = document.getElementById("drawing");
    if (drawn === edits || !old) return;
    isHeld = old.contains(document.activeElement);
    if (isHeld) return date("The picture shows an earlier text. It follows as soon as you leave it.");
    const [now, request] = [edits, new XMLHttpRequest()];
    const data = new URLSearchParams({ do: "picture" });
    for (const [name, value] of new FormData(form)) {
      if (typeof value === "string") data.append(name, value);
    }
    request.open("POST", form.action);
    request.responseType = "document";
    const fail = () => {
      if (now === edits) date("The picture shows an earlier text: that of the new one did not arrive.");
    };
    request.timeout = 30_000;
    request.ontimeout = request.onerror = fail;
    request.onload = () => {
      const next = request.responseXML?.getElementById("drawing");
      if (!next) return fail();
      if (now !== edits) return;
      drawn = now;
      const isOpen = old.querySelector("details[open]") !== null;
      const taken = document.importNode(next, true);
      if (isOpen) taken.querySelector("details")?.setAttribute("open", "");
      old.replaceWith(taken);
      date("");
      document.dispatchEvent(new Event("flowcell:fresh"));
    };
    request.send(data);
  }
  const redraw = afterPause(DRAW, draw);

  const ask = asker(form, field, file, () => edits);
  const look = afterPause(CHECK, async () => {
    lines = field.value.split("\n").length;
    renumber();
    const asked = edits;
    try {
      const answer = await ask(isStale ? ["fixes", "hover", "tokens"] : ["hover"]);
      if (!answer) return;
      explain(answer.hover?.text ?? "");
      if (answer.tokens) {
        colours?.take(answer.tokens);
        renumber();
      }
      if (!answer.diagnostics) return;
      isStale = false;
      report(answer.diagnostics);
      if (!answer.valid) date("The picture shows an earlier text without errors.");
      else if (checked !== asked) redraw.plan();
      checked = asked;
    } catch (error) {
      summary.textContent = `The text was not checked: ${error instanceof Error ? error.message : error}`;
    }
  });

  const offers = offersFor(field, { place, explain, take: ({ range, text }) => replace(range, text) });
  const askForRename = asker(form, field, file, () => edits);
  const rename = renamerFor(field, {
    edits: () => edits,
    ask: async (at, newId) => (await askForRename(["rename"], { at, newId }))?.rename,
    replace: replaceBetween,
    say: (text) => { news.textContent = text; },
  });
  const askForOffers = asker(form, field, file, () => edits);
  /** Shows suggestions. @param {boolean} isAsked whether a person has asked for them */
  async function offer(isAsked) {
    const [before, at] = [edits, field.selectionStart];
    const answer = await askForOffers(["completions"]).catch(() => null);
    if (!answer || before !== edits || at !== field.selectionStart || document.activeElement !== field) return;
    const found = answer.completions ?? [];
    const [only] = found;
    // A word that is written already needs no list.
    const isDone = found.length === 1 && only.range.end.offset - only.range.start.offset === only.text.length;
    if (isAsked || !isDone) offers.show(found, isAsked);
  }
  const suggest = afterPause(SUGGEST, () => offer(false));

  field.addEventListener("input", (event) => {
    edits += 1;
    [isSaved, isStale, isHeld] = [false, true, false];
    news.textContent = "";
    offers.close();
    look.plan();
    redraw.drop();
    renumber();
    const typed = event instanceof InputEvent ? event.data : null;
    if (typed && /[\p{L}\p{N}_.$@/|{-]$/u.test(typed)) suggest.plan();
    else suggest.drop();
  });
  field.addEventListener("keydown", (event) => {
    const wasLeaving = isLeaving;
    if (!["Shift", "Control", "Alt", "Meta"].includes(event.key)) isLeaving = false;
    if (event.isComposing) return;
    if (event.key === " " && event.ctrlKey) {
      event.preventDefault();
      offer(true);
    } else if (event.key === "F2") {
      event.preventDefault();
      offers.close();
      rename();
    } else if (offers.handle(event)) {
      // The key was for the list.
    } else if (event.key === "Escape") {
      isLeaving = true;
    } else if (event.key === "Tab" && !event.shiftKey && !wasLeaving && field.selectionStart === field.selectionEnd) {
      event.preventDefault();
      document.execCommand("insertText", false, "  ");
    }
  });
  document.addEventListener("selectionchange", () => {
    if (document.activeElement === field) look.plan();
  });
  // The files beside the flow are a part of what is checked.
  document.getElementById("beside")?.addEventListener("input", () => {
    edits += 1;
    [isSaved, isStale] = [false, true];
    look.plan();
  });
  field.addEventListener("scroll", renumber);
  form.addEventListener("submit", () => { isSaved = true; });
  addEventListener("beforeunload", (event) => { if (!isSaved) event.preventDefault(); });

  showTabs(form);
  document.getElementById("text-hint")?.after(news);
  if (gutter) {
    gutter.hidden = false;
    gutter.replaceChildren(numbers);
    measure();
    new ResizeObserver(() => { measure(); renumber(); }).observe(field);
  }
  const drawing = document.getElementById("drawing");
  drawing?.before(age);
  drawing?.parentElement?.addEventListener("focusout", () => { if (isHeld) redraw.plan(); });
  const heading = findings?.querySelector("h2");
  if (findings && heading) findings.replaceChildren(heading, summary, list);
  if (drawing?.matches("[data-waits]")) {
    drawn = -1;
    draw();
  }
  look.plan();
}

const form = document.getElementById("editor");
const field = document.getElementById("text");
if (form instanceof HTMLFormElement && field instanceof HTMLTextAreaElement) {
  // A long text is seen before it is measured.
  requestAnimationFrame(() => setTimeout(() => start(form, field)));
}
