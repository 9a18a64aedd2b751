// @ts-check
/**
 * Texts of the editor that are not stored, kept in this tab. Each belongs to the page, the tenant and the scopes that it
 * was written with. A sign-out in any tab of the browser removes those of all tabs.
 */

const PREFIX = "flowcell-draft:";
/** The entry of the browser that changes with each sign-out. */
const SIGN_OUT = "flowcell-sign-out";
/** The maximum number of texts that a tab keeps of one page, and of characters of a text. */
export const [MOST, LONGEST] = [3, 1 << 20];

/** @typedef {{ id: string, path: string, owner: string, signOut: string, at: number, version: string, text: string }} Draft */

/** Whether the tab is leaving by a sign-out, so that nothing is kept any more. */
let isSignedOut = false;

/** Returns a new id. */
export function newId() {
  return Array.from(crypto.getRandomValues(new Uint8Array(16)), (byte) => byte.toString(16).padStart(2, "0")).join("");
}

/** Returns the mark of the last sign-out. It is empty if the browser keeps nothing for this site. */
function lastSignOut() {
  try {
    return localStorage.getItem(SIGN_OUT) ?? "";
  } catch {
    return "";
  }
}

/** Returns the names of all kept texts. */
function names() {
  try {
    const all = Array.from({ length: sessionStorage.length }, (_, at) => sessionStorage.key(at) ?? "");
    return all.filter((name) => name.startsWith(PREFIX));
  } catch {
    return [];
  }
}

/** Reads a kept text. Removes an entry that is not one. @param {string} name @returns {Draft[]} */
function read(name) {
  try {
    const draft = JSON.parse(sessionStorage.getItem(name) ?? "");
    const isDraft = ["id", "path", "owner", "signOut", "version", "text"].every((each) => typeof draft[each] === "string");
    if (isDraft && typeof draft.at === "number" && name === PREFIX + draft.id) return [draft];
  } catch {
    // It is removed below.
  }
  sessionStorage.removeItem(name);
  return [];
}

/** Removes a kept text. @param {string} id */
export function drop(id) {
  try {
    sessionStorage.removeItem(PREFIX + id);
  } catch {
    // Nothing is kept.
  }
}

/** Removes all kept texts, also those of other tabs. */
function forget() {
  for (const name of names()) sessionStorage.removeItem(name);
  try {
    localStorage.setItem(SIGN_OUT, newId());
  } catch {
    // The texts of this tab are removed.
  }
}

/** Removes the text whose form has led to this page by storing it, and all texts after a sign-out. */
export function tidyDrafts() {
  const stored = /^#stored=([0-9a-f]{32})$/.exec(location.hash);
  if (stored) {
    drop(stored[1]);
    history.replaceState(null, "", location.pathname + location.search);
  }
  document.addEventListener("submit", ({ target }) => {
    isSignedOut = target instanceof HTMLFormElement && target.classList.contains("logout");
  });
  // A person may stay on a page that asks before it is left.
  for (const kind of ["input", "click", "keydown"]) {
    document.addEventListener(kind, () => { isSignedOut = false; }, { capture: true });
  }
  addEventListener("pagehide", () => { if (isSignedOut) forget(); });
}

/**
 * Returns the texts of a page that its caller may see. Removes those of other tenants, of other scopes, and of the time
 * before a sign-out.
 * @param {string} owner @param {string} path
 */
export function draftsOf(owner, path) {
  const signOut = lastSignOut();
  /** @type {Draft[]} */
  const found = [];
  for (const draft of names().flatMap(read)) {
    if (draft.owner !== owner || draft.signOut !== signOut) drop(draft.id);
    else if (draft.path === path) found.push(draft);
  }
  return {
    /** The texts, the newest first. */
    found: found.sort((a, b) => b.at - a.at),
    /**
     * Keeps a text. Returns the reason why it is not kept.
     * @param {string} id @param {string} version @param {string} text
     */
    keep(id, version, text) {
      if (isSignedOut) return "";
      if (text.length > LONGEST) return "The text is too long to be kept in this tab: store it before you leave the page.";
      /** @type {Draft} */
      const draft = { id, path, owner, signOut, at: Date.now(), version, text };
      try {
        sessionStorage.setItem(PREFIX + id, JSON.stringify(draft));
        return "";
      } catch {
        return "The browser has no room to keep the text in this tab: store it before you leave the page.";
      }
    },
  };
}
