// @ts-check
/** The scripts of all pages: times in the viewer's zone, keys, changes, agents, kept texts, and the codes of links. */

import { localise } from "./times.js";
import { listenForKeys } from "./keys.js";
import { follow } from "./live.js";
import { listenForMoments, showControls } from "./graph.js";
import { listenForFiles } from "./upload.js";
import { showViews } from "./views.js";
import { listenForAgents } from "./agents.js";
import { tidyDrafts } from "./drafts.js";

/** Takes the code of a link out of the address, so that it stays in no history, and sends it. */
function sendCodeOfLink() {
  const form = document.querySelector("form[data-by-link]");
  const field = form?.querySelector("input[name=proof], input[name=code]");
  const code = location.hash.slice(1);
  // Other fragments, such as that of “Skip to the content”, are places of the page.
  const isCode = /^fc[a-z]_/.test(code);
  if (!(form instanceof HTMLFormElement) || !(field instanceof HTMLInputElement) || !isCode) return;
  history.replaceState(null, "", location.pathname + location.search);
  field.value = code;
  form.requestSubmit();
}

tidyDrafts();
localise(document);
listenForKeys();
showControls();
listenForMoments();
listenForFiles();
showViews();
listenForAgents();
sendCodeOfLink();
// A link that is opened on a page that takes a code only changes the fragment.
addEventListener("hashchange", sendCodeOfLink);
// Times such as “2 minutes ago” grow old.
setInterval(() => localise(document), 30_000);
const source = document.body.dataset.live;
if (source) follow(source);
