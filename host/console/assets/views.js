// @ts-check
/** Saved views of a list: its filters under a name, kept in this browser. */

const KEY = "flowcell-views";
/** The maximum number of saved views, and of characters of a name. */
const MOST = [50, 40];

/** Returns the saved views: for each name, the query of its address. @returns {Record<string, string>} */
function read() {
  try {
    const kept = JSON.parse(localStorage.getItem(KEY) ?? "{}");
    const pairs = Object.entries(kept).filter(([, query]) => typeof query === "string" && query.startsWith("?"));
    return Object.fromEntries(pairs);
  } catch {
    return {};
  }
}

/** @param {Record<string, string>} views */
function write(views) {
  localStorage.setItem(KEY, JSON.stringify(views));
}

/** Creates an element. @param {string} tag @param {string} text @param {Record<string, string>} [attributes] */
function element(tag, text, attributes = {}) {
  const made = document.createElement(tag);
  made.textContent = text;
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  return made;
}

/** Shows the saved views in their place, if the page has one. */
export function showViews() {
  const place = document.getElementById("views");
  if (!place) return;
  const views = read();
  const path = place.dataset.place ?? location.pathname;
  const links = Object.entries(views).map(([name, query]) => {
    const item = element("span", "", { class: "view" });
    const link = element("a", name, { href: path + query });
    if (query === location.search) link.setAttribute("aria-current", "true");
    const remove = element("button", "×", { type: "button", class: "quiet", "aria-label": `Remove the view ${name}` });
    remove.addEventListener("click", () => {
      const { [name]: _, ...rest } = read();
      write(rest);
      showViews();
    });
    item.append(link, remove);
    return item;
  });
  const parts = links.length > 0 ? [element("span", "Views: ", { class: "faint" }), ...links] : [];
  const query = new URLSearchParams(location.search);
  query.delete("cursor");
  const isNew = query.size > 0 && !Object.values(views).includes(`?${query}`);
  if (isNew) {
    const form = element("form", "", { class: "inline" });
    const field = element("input", "", { "aria-label": "Name of the view", placeholder: "Name of this view", maxlength: String(MOST[1]) });
    form.append(field, element("button", "Save the view"));
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      const name = field instanceof HTMLInputElement ? field.value.trim() : "";
      const known = read();
      if (!name) return;
      if (Object.keys(known).length >= MOST[0] && !(name in known)) {
        form.append(element("span", `This browser keeps ${MOST[0]} views: remove one first.`, { role: "status" }));
        return;
      }
      write({ ...known, [name]: `?${query}` });
      showViews();
    });
    parts.push(form);
  }
  place.replaceChildren(...parts);
}
