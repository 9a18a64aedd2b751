// @ts-check
/** Times in the viewer's zone: how long ago, or the time of the day of an event, with the exact time in the title. */

const exact = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "medium" });
const moment = new Intl.DateTimeFormat("en-GB", {
  hour: "2-digit", minute: "2-digit", second: "2-digit", fractionalSecondDigits: 3,
});
const relative = new Intl.RelativeTimeFormat("en", { numeric: "auto" });

/** The units of relative times, with their lengths in seconds. @type {[Intl.RelativeTimeFormatUnit, number][]} */
const units = [["day", 86_400], ["hour", 3_600], ["minute", 60], ["second", 1]];

/**
 * Returns a time in words. Times that are more than a week away are dates.
 * @param {number} seconds the seconds from now; negative for the past
 * @param {Date} at
 */
function words(seconds, at) {
  if (Math.abs(seconds) > 604_800) return exact.format(at);
  const [unit, length] = units.find(([, length]) => Math.abs(seconds) >= length) ?? ["second", 1];
  return relative.format(Math.trunc(seconds / length), unit);
}

/**
 * Shows all times below a node in the viewer's zone.
 * @param {ParentNode} root
 */
export function localise(root) {
  for (const time of root.querySelectorAll("time[datetime]")) {
    const at = new Date(time.getAttribute("datetime") ?? "");
    if (Number.isNaN(at.getTime())) continue;
    const isMoment = time.hasAttribute("data-moment");
    time.textContent = isMoment ? moment.format(at) : words((at.getTime() - Date.now()) / 1_000, at);
    time.setAttribute("title", `${exact.format(at)} (${at.toISOString()})`);
  }
}
