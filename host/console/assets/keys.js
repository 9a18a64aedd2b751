// @ts-check
/** The keys of all pages. */

/** The pages that `g` and a letter open. @type {Record<string, string>} */
const pages = { h: "/console", r: "/console/runs", i: "/console/inbox", f: "/console/flows" };

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
    after = event.key === "g" ? "g" : "";
    const keys = document.getElementById("keys");
    if (before === "g" && pages[event.key]) {
      location.assign(pages[event.key]);
    } else if (event.key === "?" && keys instanceof HTMLDialogElement) {
      if (!keys.open) keys.showModal();
    } else if (event.key === "/") {
      const field = document.querySelector("main input[type=search], main .filters input:not([type=hidden])");
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
