// @ts-check
/** Fields that store a file of this machine, and put it into a form or a list. */

/**
 * Stores a file, and returns its file value.
 * @param {File} file @returns {Promise<{ kind: string, fileId: string, name: string, size: number, mime: string }>}
 */
async function store(file) {
  const query = new URLSearchParams({ name: file.name });
  if (file.type) query.set("mime", file.type);
  const headers = { "content-type": "application/octet-stream" };
  const answer = await fetch(`/v1/files?${query}`, { method: "POST", headers, body: file });
  const body = await answer.json();
  if (!answer.ok) throw new Error(body?.error?.message ?? `status ${answer.status}`);
  return body;
}

/** Says how a field is doing. @param {HTMLInputElement} field @param {string} text */
function say(field, text) {
  let note = field.nextElementSibling;
  if (!note || note.getAttribute("role") !== "status") {
    note = document.createElement("p");
    note.className = "hint";
    note.setAttribute("role", "status");
    field.after(note);
  }
  note.textContent = text;
}

/** @param {HTMLInputElement} field */
async function upload(field) {
  const file = field.files?.[0];
  if (!file) return;
  say(field, `Storing ${file.name}…`);
  try {
    const { fileId, name, size, mime } = await store(file);
    if (field.dataset.upload === "reload") return location.reload();
    const list = document.getElementById(field.dataset.upload ?? "");
    if (list instanceof HTMLSelectElement) {
      const value = JSON.stringify({ kind: "file", fileId, size, mime, name });
      list.add(new Option(name, value, true, true));
    }
    say(field, `${name} is stored.`);
  } catch (error) {
    say(field, `The file was not stored: ${error instanceof Error ? error.message : error}`);
  }
}

/** Listens at the fields for files, and shows what needs a script. */
export function listenForFiles() {
  for (const part of document.querySelectorAll("[data-needs-script]")) part.removeAttribute("hidden");
  for (const field of document.querySelectorAll("input[type=file][data-upload]")) {
    if (field instanceof HTMLInputElement) field.addEventListener("change", () => upload(field));
  }
}
