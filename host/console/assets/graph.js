// @ts-check
/** The picture of a flow: its size on the page, and the arrow keys along its edges. */

/** The factors of the size, and the smallest and the largest size. */
const STEP = 1.25;
const LIMITS = [0.1, 4];

/** @returns {SVGSVGElement | null} */
const picture = () => /** @type {SVGSVGElement | null} */ (document.querySelector("svg#picture"));

/** The size of the picture on the page. 0: it fits. */
let scale = 1;

/** Shows the picture in the present size. */
function resize() {
  const svg = picture();
  const box = svg?.parentElement;
  if (!svg || !box) return;
  const view = svg.viewBox.baseVal;
  const used = scale || Math.max(LIMITS[0], Math.min(1, (box.clientWidth - 2) / view.width, 640 / view.height));
  svg.setAttribute("width", String(Math.round(view.width * used)));
  svg.setAttribute("height", String(Math.round(view.height * used)));
}

/** Changes the size. @param {number} factor 0 to fit */
function zoom(factor) {
  const svg = picture();
  const now = svg ? svg.width.baseVal.value / svg.viewBox.baseVal.width : 1;
  scale = factor === 0 ? 0 : Math.min(Math.max(now * factor, LIMITS[0]), LIMITS[1]);
  resize();
}

/** The place to which the picture is scrolled. A newer picture has the same one. */
const place = { left: 0, top: 0 };

/** Scrolls to the first node: a row below it may be wider than the page. */
function scrollToFirst() {
  const first = picture()?.querySelector("g.node > rect");
  const box = picture()?.parentElement;
  if (!box || !(first instanceof SVGRectElement)) return;
  box.scrollLeft = first.x.baseVal.value + (first.width.baseVal.value - box.clientWidth) / 2;
}

/** Returns the link of a node in the picture. @param {string | null} node */
function linkOf(node) {
  const links = [...document.querySelectorAll("#picture a[data-node]")];
  const found = links.find((link) => link.getAttribute("data-node") === node);
  return found instanceof SVGElement ? found : null;
}

/** Moves the focus along an edge. @param {Element} from the link of a node @param {string} key @returns {boolean} */
function walk(from, key) {
  const [here, there] = key === "ArrowDown" ? ["data-from", "data-to"] : ["data-to", "data-from"];
  const node = from.getAttribute("data-node");
  const edges = [...document.querySelectorAll("#picture path.edge")].filter((edge) => edge.getAttribute(here) === node);
  const next = edges.map((edge) => linkOf(edge.getAttribute(there))).find((link) => link);
  if (!next) return false;
  next.focus();
  return true;
}

/** Milliseconds for which the slider rests before the page changes: each press of an arrow key moves it by one event. */
const REST = 500;
/** The note that the next page begins at its slider. */
const MOVED = "flowcell-moved";

/** Returns the storage of this tab, if the browser allows it. */
function notes() {
  try {
    return sessionStorage;
  } catch {
    return null;
  }
}

/**
 * Shows the event that the slider has reached, without a request. A page knows the time of its own event alone.
 * @param {HTMLInputElement} slider
 */
function showReached(slider) {
  const output = slider.form?.querySelector("output");
  const number = output?.querySelector(".number");
  if (!output || !number) return;
  const at = Number(slider.value);
  number.textContent = at > 0 ? `event ${at - 1} of ${slider.dataset.events}` : "before the first event";
  output.querySelector(".time")?.toggleAttribute("hidden", slider.value !== output.dataset.at);
}

/** Returns the slider over the events, if an event of the page is about it. @param {EventTarget | null} target */
const sliderOf = (target) =>
  target instanceof HTMLInputElement && target.matches("form.scrub input[type=range]") ? target : null;

/**
 * Shows the run at another event as soon as the slider rests there. The slider of that page has the focus again. The
 * page listens, because a newer state of a run replaces the slider.
 */
export function listenForMoments() {
  const slider = sliderOf(document.querySelector("form.scrub input[type=range]"));
  if (!slider) return;
  // A browser that goes back may restore another place than that of the page.
  showReached(slider);
  if (notes()?.getItem(MOVED)) slider.focus({ preventScroll: true });
  notes()?.removeItem(MOVED);
  let timer = 0;
  document.addEventListener("input", ({ target }) => {
    const moved = sliderOf(target);
    if (moved) showReached(moved);
  });
  document.addEventListener("change", ({ target }) => {
    const moved = sliderOf(target);
    if (!moved) return;
    clearTimeout(timer);
    timer = setTimeout(() => {
      notes()?.setItem(MOVED, "yes");
      moved.form?.requestSubmit();
    }, REST);
  });
}

/** Adds the controls of the picture, if the page has one, and listens for keys. */
export function showControls() {
  const box = picture()?.parentElement;
  if (!box) return;
  const bar = document.createElement("div");
  bar.className = "zoom";
  for (const [label, text, factor] of /** @type {[string, string, number][]} */ ([
    ["Smaller", "−", 1 / STEP], ["Larger", "+", STEP], ["Fit", "Fit", 0],
  ])) {
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = text;
    button.setAttribute("aria-label", `${label}: picture`);
    button.addEventListener("click", () => zoom(factor));
    bar.append(button);
  }
  // Outside of the parts that a newer page replaces.
  (box.closest("[data-live]") ?? box).before(bar);
  document.addEventListener("keydown", (event) => {
    const link = document.activeElement?.closest("#picture a[data-node]");
    if (!link || (event.key !== "ArrowDown" && event.key !== "ArrowUp")) return;
    if (walk(link, event.key)) event.preventDefault();
  });
  document.addEventListener("scroll", ({ target }) => {
    if (target instanceof Element && target.matches(".picture")) [place.left, place.top] = [target.scrollLeft, target.scrollTop];
  }, true);
  document.addEventListener("flowcell:fresh", () => {
    resize();
    picture()?.parentElement?.scrollTo(place);
  });
  scrollToFirst();
}
