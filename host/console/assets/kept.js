// @ts-check
/** Keeps the text of the editor in this tab until it is stored, and offers texts that were kept earlier. */

import { draftsOf, drop, LONGEST, MOST, newId } from "./drafts.js";
import { element } from "./offers.js";
import { localise } from "./times.js";

/** @typedef {import("./drafts.js").Draft} Draft */

/** The longest time in milliseconds after a key until the text is kept. */
const PAUSE = 500;
/** The maximum number of bytes of a text as a form sends it. The other members of the form need the rest of 4 MiB. */
const MOST_SENT = (4 << 20) - (64 << 10);

/**
 * @param {HTMLFormElement} form @param {HTMLTextAreaElement} field
 * @param {(text: string) => void} open puts another text into the field
 */
export function keepText(form, field, open) {
  const [id, version] = ["draft", "version"].map((name) => form.elements.namedItem(name));
  if (id instanceof HTMLInputElement && version instanceof HTMLInputElement) keepWith(form, field, open, id, version);
}

/**
 * @param {HTMLFormElement} form @param {HTMLTextAreaElement} field @param {(text: string) => void} open
 * @param {HTMLInputElement} id the field with the id of the text @param {HTMLInputElement} version and with its version
 */
function keepWith(form, field, open, id, version) {
  const drafts = draftsOf(form.dataset.owner ?? "", location.pathname);
  // The text that the server has; that of a page after an action is not stored.
  const stored = "unsaved" in form.dataset ? null : field.value;
  const said = element("p", "", { role: "status", class: "hint" });
  document.getElementById("text-hint")?.after(said);
  let last = stored;
  let timer = 0;
  /** The text that was sent, whose id the answer drops. @type {string | null} */
  let sent = null;

  function keep() {
    clearTimeout(timer);
    timer = 0;
    const text = field.value;
    if (text === last) return;
    last = text;
    // The answer to a text that was sent must not drop what was written meanwhile.
    if (sent !== null && text !== sent) {
      id.value = newId();
      sent = null;
    }
    let why = "";
    if (text === stored) drop(id.value);
    else why = drafts.keep(id.value, version.value, text) || "The text is kept in this tab until you store it or log out.";
    if (said.textContent !== why) said.textContent = why;
  }

  const others = drafts.found.filter((draft) => draft.text !== field.value);
  for (const same of drafts.found.filter((draft) => !others.includes(draft))) drop(same.id);
  for (const oldest of others.splice(MOST)) drop(oldest.id);
  // A text that was written while the page of an action was on its way stays as it is.
  if (!/^[0-9a-f]{32}$/.test(id.value) || others.some((draft) => draft.id === id.value)) id.value = newId();
  if (others.length > 0) offer();
  keep();

  /** Shows the texts that were kept earlier. */
  function offer() {
    const notice = element("section", "", { id: "kept", class: "notice warn", "aria-label": "Kept texts" });
    const list = element("ul", "", { class: "plain" });
    const rest = others.length === MOST ? ` A tab keeps the last ${MOST} texts of a page.` : "";
    notice.append(element("p", `This tab has kept what was written here and not stored.${rest}`), list);
    list.append(...others.map((draft) => entry(draft, () => {
      others.splice(others.indexOf(draft), 1);
      if (others.length === 0) notice.remove();
    })));
    localise(notice);
    document.getElementById("outcome")?.after(notice);
  }

  /** Returns the entry of a kept text. @param {Draft} draft @param {() => void} leave */
  function entry(draft, leave) {
    const item = element("li", "");
    const lines = draft.text.split("\n").length;
    const time = element("time", "", { datetime: new Date(draft.at).toISOString() });
    const isOld = draft.version !== version.value;
    const base = isOld ? `; it was begun with version ${draft.version}, and version ${version.value} is the newest` : "";
    const take = element("button", "Open the text", { type: "button" });
    take.addEventListener("click", () => {
      keep();
      // A text of this page stays kept, too. Its own version lets Save find what others have stored since.
      [id.value, version.value] = [draft.id, draft.version];
      item.remove();
      leave();
      open(draft.text);
      keep();
    });
    const remove = element("button", "Remove it", { type: "button" });
    remove.addEventListener("click", () => {
      drop(draft.id);
      item.remove();
      leave();
      field.focus();
    });
    item.append("From ", time, `, ${lines} line${lines === 1 ? "" : "s"}${base}. `, take, " ", remove);
    return item;
  }

  field.addEventListener("input", () => { timer ||= setTimeout(keep, PAUSE); });
  addEventListener("pagehide", keep);
  document.addEventListener("visibilitychange", keep);
  form.addEventListener("submit", (event) => {
    keep();
    sent = field.value;
    // As a form sends it.
    const text = field.value.replaceAll("\n", "\r\n");
    if (field.value.length <= LONGEST || new URLSearchParams({ text }).toString().length <= MOST_SENT) return;
    event.preventDefault();
    event.stopImmediatePropagation();
    said.textContent = "The text is too long to be sent, so nothing was done: a form has at most 4 MiB.";
  });
}
