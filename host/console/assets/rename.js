// @ts-check
/** The renaming of a node in the text of the editor: a dialog with the number of places that change and those that stay. */

import { element } from "./offers.js";
import { visible } from "./texts.js";

/** @typedef {import("./offers.js").Range} Range */
/** @typedef {{ id: string, range: Range, refused?: string, edits?: { range: Range, text: string }[], left?: Range[] }} Renaming */

/** Milliseconds without a key before the places are counted. */
const PAUSE = 250;
/** The maximum number of lines of plain text that the dialog names. */
const MOST = 10;

/** Writes a number with its noun. @param {number} number @param {string} noun */
const count = (number, noun) => `${number} ${noun}${number === 1 ? "" : "s"}`;

/** Says what a renaming changes. @param {Renaming} renaming */
function outcome({ id, refused, edits = [], left = [] }) {
  if (refused) return visible(`Nothing can be renamed: ${refused}.`);
  const lines = [...new Set(left.map((range) => range.start.line))];
  const more = lines.length > MOST ? `, and ${lines.length - MOST} more` : "";
  const stay = lines.length === 0 ? "" : ` ${visible(id)} stays in plain text, in line ${lines.slice(0, MOST).join(", ")}${more}.`;
  return `${count(edits.length, "place")} ${edits.length === 1 ? "changes" : "change"}.${stay}`;
}

/**
 * Makes the dialog for a field.
 * @param {HTMLTextAreaElement} field
 * @param {{ edits: () => number, ask: (at: number, newId?: string) => Promise<Renaming | null | undefined>, replace: (from: number, to: number, text: string) => void, say: (text: string) => void }} page
 *   the number of changes so far, what asks for a renaming, what replaces a part of the text, and what shows a message
 */
export function renamerFor(field, page) {
  const dialog = document.createElement("dialog");
  const form = element("form", "", { method: "dialog" });
  const label = element("label", "", { for: "new-id" });
  const name = document.createElement("input");
  const news = element("p", "", { role: "status", class: "hint" });
  const [apply, cancel] = [document.createElement("button"), element("button", "Cancel", { type: "button" })];
  const buttons = element("div", "", { class: "buttons" });
  Object.assign(name, { id: "new-id", autocomplete: "off", spellcheck: false, maxLength: 256 });
  Object.assign(apply, { textContent: "Rename", className: "primary", disabled: true });
  dialog.id = "rename";
  dialog.setAttribute("aria-label", "Rename a node");
  buttons.append(apply, cancel);
  form.append(label, name, news, buttons);
  dialog.append(form);
  document.body.append(dialog);
  let [at, timer, turn] = [0, 0, 0];
  /** The renaming that the dialog shows, and the number of changes before it. @type {{ renaming: Renaming, before: number } | null} */
  let shown = null;

  async function preview() {
    const [mine, before, id] = [(turn += 1), page.edits(), name.value];
    const renaming = await page.ask(at, id).catch((/** @type {Error} */ error) => error);
    if (mine !== turn || !dialog.open) return;
    shown = renaming && "edits" in renaming ? { renaming, before } : null;
    apply.disabled = shown === null;
    news.textContent = renaming instanceof Error ? `The places were not counted: ${renaming.message}` : renaming ? outcome(renaming) : "";
  }

  name.addEventListener("input", () => {
    turn += 1;
    apply.disabled = true;
    clearTimeout(timer);
    timer = setTimeout(preview, PAUSE);
  });
  cancel.addEventListener("click", () => dialog.close());
  dialog.addEventListener("close", () => {
    clearTimeout(timer);
    field.focus();
  });
  form.addEventListener("submit", (event) => {
    if (apply.disabled || !shown || shown.before !== page.edits()) return event.preventDefault();
    const { renaming: { id, range, edits = [], left = [] } } = shown;
    const sorted = edits.toSorted((a, b) => a.range.start.offset - b.range.start.offset);
    const [first, last] = [sorted[0], sorted[sorted.length - 1]];
    dialog.close();
    if (!first) return;
    // All places change at once, so that one undo brings all of them back.
    const from = first.range.start.offset;
    let [text, end, caret] = ["", from, range.start.offset];
    for (const edit of sorted) {
      text += field.value.slice(end, edit.range.start.offset) + edit.text;
      end = edit.range.end.offset;
      if (end <= range.start.offset) caret += edit.text.length - (end - edit.range.start.offset);
    }
    const top = field.scrollTop;
    page.replace(from, last.range.end.offset, text);
    field.setSelectionRange(caret, caret);
    field.scrollTop = top;
    page.say(`${visible(id)} has another name now: ${outcome({ id, range, edits, left })} Undo brings it back.`);
  });

  /** Opens the dialog for the node at the caret. */
  return async function open() {
    const [before, asked] = [page.edits(), field.selectionStart];
    const renaming = await page.ask(asked).catch((/** @type {Error} */ error) => {
      page.say(`Nothing was renamed: ${error.message}`);
      return undefined;
    });
    if (renaming === undefined || before !== page.edits() || dialog.open) return;
    if (renaming === null) return page.say("There is no id of a node or a step at the caret: move it to one, and press F2.");
    at = asked;
    shown = null;
    label.textContent = visible(`New id of ${renaming.id}`);
    name.value = renaming.id;
    news.textContent = "The places are counted when you change the id.";
    apply.disabled = true;
    dialog.showModal();
    name.select();
  };
}
