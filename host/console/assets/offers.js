// @ts-check
/** The list of suggestions at the caret of a text field. The focus stays in the field; the list is operated by its keys. */

import { visible } from "./texts.js";

/** @typedef {{ line: number, column: number, offset: number }} Place */
/** @typedef {{ start: Place, end: Place }} Range */
/** @typedef {{ label: string, kind: string, detail: string, documentation?: string, range: Range, text: string }} Offer */

/** The maximum number of suggestions in the list. */
const MOST = 50;

/** Creates an element with a text. @param {string} tag @param {string} text @param {Record<string, string>} [attributes] */
export function element(tag, text, attributes = {}) {
  const made = document.createElement(tag);
  made.textContent = visible(text);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  return made;
}

/**
 * Makes the list for a field.
 * @param {HTMLTextAreaElement} field
 * @param {{ place: (at: Place) => { left: number, top: number }, take: (offer: Offer) => void, explain: (text: string) => void }} page
 *   where a place is in the field, what takes an offer, and what shows its explanation
 */
export function offersFor(field, page) {
  const list = element("ul", "", { id: "offers", role: "listbox", "aria-label": "Suggestions", class: "offers" });
  const news = element("p", "", { role: "status", class: "hidden" });
  list.hidden = true;
  field.after(list, news);
  field.setAttribute("aria-autocomplete", "list");
  field.setAttribute("aria-controls", "offers");
  /** @type {Offer[]} */
  let offers = [];
  let chosen = -1;

  function close() {
    if (list.hidden) return;
    list.hidden = true;
    [offers, chosen] = [[], -1];
    news.textContent = "";
    field.removeAttribute("aria-activedescendant");
  }

  /** @param {number} number */
  function choose(number) {
    list.children[chosen]?.setAttribute("aria-selected", "false");
    chosen = number;
    const option = list.children[chosen];
    if (!option) return field.removeAttribute("aria-activedescendant");
    option.setAttribute("aria-selected", "true");
    option.scrollIntoView({ block: "nearest" });
    field.setAttribute("aria-activedescendant", option.id);
    page.explain(offers[chosen].documentation ?? offers[chosen].detail);
  }

  /** @param {number} number */
  function take(number) {
    const offer = offers[number];
    close();
    if (offer) page.take(offer);
  }

  field.addEventListener("blur", close);
  field.addEventListener("scroll", close);
  return {
    close,
    /** Shows suggestions. @param {Offer[]} found @param {boolean} isAsked whether a person has asked for them */
    show(found, isAsked) {
      close();
      offers = found.slice(0, MOST);
      if (offers.length === 0) {
        news.textContent = isAsked ? "No suggestions here." : "";
        return;
      }
      list.replaceChildren(...offers.map((offer, number) => {
        const option = element("li", "", { id: `offer-${number}`, role: "option", "aria-selected": "false" });
        option.append(element("code", offer.label), element("span", offer.detail || offer.kind, { class: "faint" }));
        // The field keeps the focus.
        option.addEventListener("pointerdown", (event) => { event.preventDefault(); take(number); });
        return option;
      }));
      const { left, top } = page.place(offers[0].range.start);
      list.style.left = `${left}px`;
      list.style.top = `${top}px`;
      list.hidden = false;
      news.textContent = `${offers.length} suggestions. The arrow keys choose one, Enter takes it.`;
      if (isAsked) choose(0);
    },
    /** Handles a key of the field. @param {KeyboardEvent} event @returns {boolean} whether the key was for the list */
    handle(event) {
      if (list.hidden) return false;
      if (event.key === "ArrowDown" || event.key === "ArrowUp") {
        const by = event.key === "ArrowDown" ? 1 : -1;
        choose(chosen < 0 ? (by > 0 ? 0 : offers.length - 1) : (chosen + by + offers.length) % offers.length);
      } else if (event.key === "Escape") {
        close();
      } else if ((event.key === "Enter" || event.key === "Tab") && chosen >= 0) {
        take(chosen);
      } else {
        return false;
      }
      event.preventDefault();
      return true;
    },
  };
}
