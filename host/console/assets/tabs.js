// @ts-check
/** The files beside a flow in the editor, as tabs: one file is shown at a time. Without this script all are shown. */

import { element } from "./offers.js";

/** The files of a form: their paths and texts. @param {HTMLFormElement} form @returns {Record<string, string>} */
export function filesOf(form) {
  /** @type {Record<string, string>} */
  const files = {};
  for (const panel of form.querySelectorAll("#beside .file")) {
    const [path, text, drop] = ["[name=path]", "[name=file]", "[name=drop]"].map((name) => panel.querySelector(name));
    if (!(path instanceof HTMLInputElement) || !(text instanceof HTMLTextAreaElement)) continue;
    const isDropped = drop instanceof HTMLInputElement && drop.checked;
    if (path.value.trim() && !isDropped) files[path.value] = text.value;
  }
  return files;
}

/** Shows the files as tabs. @param {HTMLFormElement} form */
export function showTabs(form) {
  const section = document.getElementById("beside");
  const open = form.elements.namedItem("tab");
  const panels = [...(section?.querySelectorAll(".file") ?? [])].filter((panel) => panel instanceof HTMLElement);
  if (!section || !(open instanceof HTMLInputElement) || panels.length < 2) return;
  const bar = element("div", "", { role: "tablist", "aria-label": "Files beside the flow", class: "tabs" });
  const tabs = panels.map((panel, at) => {
    const name = panel.dataset.tab || "New file";
    const [id, tab] = [`panel-${at}`, element("button", name, { type: "button", role: "tab", id: `tab-${at}` })];
    panel.id = id;
    panel.setAttribute("role", "tabpanel");
    panel.setAttribute("aria-labelledby", tab.id);
    tab.setAttribute("aria-controls", id);
    tab.addEventListener("click", () => choose(at));
    bar.append(tab);
    return tab;
  });

  /** Shows a file. @param {number} chosen */
  function choose(chosen) {
    tabs.forEach((tab, at) => {
      tab.setAttribute("aria-selected", String(at === chosen));
      tab.tabIndex = at === chosen ? 0 : -1;
      panels[at].hidden = at !== chosen;
    });
    if (open instanceof HTMLInputElement) open.value = panels[chosen].dataset.tab ?? "";
  }

  bar.addEventListener("keydown", (event) => {
    const [here, last] = [tabs.findIndex((tab) => tab === document.activeElement), tabs.length - 1];
    const places = { ArrowRight: here === last ? 0 : here + 1, ArrowLeft: here === 0 ? last : here - 1, Home: 0, End: last };
    const next = Object.entries(places).find(([key]) => key === event.key)?.[1];
    if (here < 0 || next === undefined) return;
    event.preventDefault();
    choose(next);
    tabs[next].focus();
  });
  panels[0].before(bar);
  const named = panels.findIndex((panel) => panel.dataset.tab === open.value);
  // A field that must be filled may not be hidden: a file without a path is shown first.
  const nameless = panels.findIndex((panel) => panel.dataset.tab === "");
  choose(Math.max(0, nameless < 0 ? named : nameless));
  // A file that will be removed says so in its tab.
  section.addEventListener("change", ({ target }) => {
    if (!(target instanceof HTMLInputElement) || target.name !== "drop") return;
    const tab = tabs[panels.findIndex((panel) => panel.contains(target))];
    tab?.classList.toggle("dropped", target.checked);
  });
}
