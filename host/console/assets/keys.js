// @ts-check
/** The keys of all pages. */

/** The pages that `g` and a letter open. @type {Record<string, string>} */
const pages = { h: "/console", r: "/console/runs", i: "/console/inbox", f: "/console/flows", o: "/console/operators" };

/** The views of a run that `v` and a letter open. @type {Record<string, string>} */
const views = { g: "", t: "/timeline", l: "/list", e: "/events", a: "/agents" };

/** Moves to the next failure or question of the page. @param {number} by 1 for the next, -1 for the one before */
function jump(by) {
  const places = [...document.querySelectorAll("main tr:has(.state.bad, .state.warn) a, main section.wait .place a, #picture a:has(.bad, .warn)")];
  const here = places.findIndex((place) => place === document.activeElement);
  const next = places[here < 0 ? (by > 0 ? 0 : places.length - 1) : (here + by + places.length) % places.length];
  if (next instanceof HTMLElement || next instanceof SVGElement) next.focus();
}

/** Opens another view of the run that the page shows. @param {string} key @returns {boolean} */
function openView(key) {
  // The tabs keep the moment that the page shows.
  const tabs = [...document.querySelectorAll("nav.tabs[data-run] a")].filter((tab) => tab instanceof HTMLAnchorElement);
  if (!tabs[0] || views[key] === undefined) return false;
  const path = tabs[0].pathname + views[key];
  const tab = tabs.find((tab) => tab.pathname === path);
  if (!tab) return false;
  location.assign(tab.href);
  return true;
}

/** Moves to an answer of the first open question. @param {number} number counted from 1 */
function choose(number) {
  const choices = document.querySelector("form.answer")?.querySelectorAll("button[name=choice]") ?? [];
  const choice = choices[number - 1];
  if (choice instanceof HTMLElement) choice.focus();
}

/** Moves to another row of the first table. @param {number} by 1 for the next row, -1 for the one before */
function move(by) {
  const rows = [...document.querySelectorAll("main table.rows tbody tr")];
  const chosen = rows.findIndex((row) => row.classList.contains("chosen"));
  const next = rows[Math.min(Math.max(chosen + by, 0), rows.length - 1)];
  if (!next) return;
  rows[chosen]?.classList.remove("chosen");
  next.classList.add("chosen");
  const link = next.querySelector("a");
  if (link) link.focus();
  next.scrollIntoView({ block: "nearest" });
}

/** Returns whether the keys belong to a field. @param {EventTarget | null} target */
function isField(target) {
  return target instanceof HTMLElement && ["INPUT", "TEXTAREA", "SELECT"].includes(target.tagName);
}

/** Listens for keys from now on. */
export function listenForKeys() {
  let after = "";
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || isField(event.target)) return;
    const before = after;
    after = before === "" && (event.key === "g" || event.key === "v") ? event.key : "";
    const keys = document.getElementById("keys");
    if (before === "g" && pages[event.key]) {
      location.assign(pages[event.key]);
    } else if (before === "v" && openView(event.key)) {
      // The page changes.
    } else if (event.key === "[" || event.key === "]") {
      jump(event.key === "]" ? 1 : -1);
    } else if (event.key >= "1" && event.key <= "9") {
      choose(Number(event.key));
    } else if (event.key === "?" && keys instanceof HTMLDialogElement) {
      if (!keys.open) keys.showModal();
    } else if (event.key === "/") {
      const field = document.querySelector("main input[type=search], main .filters input:not([type=hidden])");
      if (!(field instanceof HTMLElement)) return;
      field.focus();
    } else if (event.key === "m") {
      const field = document.querySelector("#message textarea");
      if (!(field instanceof HTMLElement)) return;
      field.focus();
    } else if (event.key === "j" || event.key === "k") {
      move(event.key === "j" ? 1 : -1);
    } else {
      return;
    }
    event.preventDefault();
  });
}
