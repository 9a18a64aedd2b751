// Stacks with the files and lines that the author wrote, in place of those of the bundle.

// Longer lines are texts of the program. The pattern would take long for them.
const LONGEST = 2000;
const BUNDLE = /[^\s(]*flowcell-bundle\.js:(\d+)(?::\d+)?/;

// Returns the lines of a stack. `flowcell node build` leaves a map: the sources, and one entry for each line of the bundle,
// separated by `;`. An entry has the steps from the last known place, `source,line` to the base 36. An entry without a
// comma has the source of the one before. An empty entry has no source.
export function sourceLines(stack) {
  const lines = stack.trim().split("\n").map((line) => line.trim());
  const map = globalThis[Symbol.for("flowcell.lines")];
  if (map === undefined) return lines;
  const places = unpacked(map);
  return lines.map((line) => (line.length > LONGEST ? line : line.replace(BUNDLE, (place, at) => places[at - 1] ?? place)));
}

function unpacked({ sources, lines }) {
  let [source, line] = [0, 0];
  return lines.split(";").map((entry) => {
    if (entry === "") return undefined;
    const steps = entry.split(",").map((step) => Number.parseInt(step, 36));
    if (steps.length === 2) source += steps[0];
    line += steps.at(-1);
    return `${sources[source]}:${line + 1}`;
  });
}
