// Stacks with the files and lines that the author wrote, in place of those of the bundle.

// Longer lines are texts of the program. The pattern would take long for them.
const LONGEST = 2000;
const BUNDLE = /[^\s(]*flowcell-bundle\.js:(\d+)(?::\d+)?/;

// The sources, and two numbers for each line of the bundle: the index of its source, or -1, and the line in it.
let known;

// Returns the lines of a stack.
export function sourceLines(stack) {
  return mappedStack(stack).trim().split("\n").map((line) => line.trim());
}

// Gives stacks that are read, such as `error.stack`, the places of the author.
export function mapStacks() {
  const own = Object.getOwnPropertyDescriptor(Error.prototype, "stack");
  if (own?.get === undefined) return;
  const get = function () {
    const stack = Reflect.apply(own.get, this, []);
    return typeof stack === "string" ? mappedStack(stack) : stack;
  };
  Object.defineProperty(Error.prototype, "stack", { ...own, get });
}

// Returns a stack with the places of the author. One that has them already stays as it is.
export function mappedStack(stack) {
  const map = globalThis[Symbol.for("flowcell.lines")];
  if (map === undefined) return stack;
  const place = (whole, at) => placeOf(map, at - 1) ?? whole;
  return stack.split("\n").map((line) => (line.length > LONGEST ? line : line.replace(BUNDLE, place))).join("\n");
}

function placeOf(map, index) {
  known ??= unpacked(map.lines);
  const source = map.sources[known[2 * index]];
  return source === undefined ? undefined : `${source}:${known[2 * index + 1] + 1}`;
}

// `flowcell node build` leaves one entry for each line of the bundle, separated by `;`. An entry has the steps from the last
// known place, `source,line` to the base 36. An entry without a comma has the source of the one before. An empty entry has
// no source.
function unpacked(lines) {
  let [source, line] = [0, 0];
  const entries = lines.split(";");
  const places = new Int32Array(2 * entries.length).fill(-1);
  entries.forEach((entry, index) => {
    if (entry === "") return;
    const steps = entry.split(",").map((step) => Number.parseInt(step, 36));
    if (steps.length === 2) source += steps[0];
    line += steps.at(-1);
    places.set([source, line], 2 * index);
  });
  return places;
}
