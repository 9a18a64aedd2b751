// @ts-check
/** The scripts of all pages: times in the viewer's zone, keys, changes, agents, kept texts, and the login by a link. */

import { localise } from "./times.js";
import { listenForKeys } from "./keys.js";
import { follow } from "./live.js";
import { listenForMoments, showControls } from "./graph.js";
import { listenForFiles } from "./upload.js";
import { showViews } from "./views.js";
import { listenForAgents } from "./agents.js";
import { tidyDrafts } from "./drafts.js";

/** Takes the code out of the address, so that it stays in no history, and sends it. */
function logInByLink() {
  const form = document.getElementById("login");
  const proof = document.getElementById("proof");
  const code = location.hash.slice(1);
  if (!(form instanceof HTMLFormElement) || !(proof instanceof HTMLInputElement) || !code) return;
  history.replaceState(null, "", location.pathname + location.search);
  proof.value = code;
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
logInByLink();
// A link that is opened on the page of the login only changes the fragment.
addEventListener("hashchange", logInByLink);
// Times such as “2 minutes ago” grow old.
setInterval(() => localise(document), 30_000);
const source = document.body.dataset.live;
if (source) follow(source);
