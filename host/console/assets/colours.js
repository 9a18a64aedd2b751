// @ts-check
/**
 * The colours of the text in a field. The letters of the field are transparent, and a layer behind it has the visible
 * lines as text with colours. A key reads the lines from the changed one to the last visible one.
 */

import { KINDS, readScript, readYaml, START } from "./lexer.js";

/** @typedef {import("./lexer.js").State} State */
/** @typedef {{ kinds: string[], data: number[] }} Tokens */
/** @typedef {[from: number, to: number, kind: number][]} Words */
/** @typedef {{ top: number, left: number, first: number, count: number, height: number }} Window the places of the first character and of the first visible line in the layer, and the number and height of the lines */

/** The maximum number of characters of a text, and of a visible line, with colours. */
const [LONGEST, WIDEST] = [1 << 20, 2_000];

const nothing = () => {};

/** Returns the number of characters that two texts have in common at their starts. @param {string} a @param {string} b */
function common(a, b) {
  const most = Math.min(a.length, b.length);
  let at = 0;
  // Whole blocks are compared faster than characters.
  while (at + 512 <= most && a.slice(at, at + 512) === b.slice(at, at + 512)) at += 512;
  while (at < most && a.charCodeAt(at) === b.charCodeAt(at)) at += 1;
  return at;
}

/** @param {HTMLTextAreaElement} field @param {HTMLElement} layer @param {boolean} isScript */
export function coloursFor(field, layer, isScript) {
  const read = isScript ? readScript : readYaml;
  const sheet = document.createElement("div");
  let text = "";
  /** The start and the state of each line that was read. @type {number[]} */
  const starts = [0];
  /** @type {State[]} */
  const states = [START];
  /** The words of the assistance by the line that has them: those of its number come first. @type {{ line: string, words: Words }[]} */
  let told = [];
  /** @type {Map<string, Words>} */
  let byLine = new Map();
  /** The lines of the layer, by their numbers. @type {Map<number, { line: string, state: State, words: Words | undefined, shown: HTMLElement }>} */
  let rows = new Map();

  /** Takes over the text of the field. */
  function update() {
    const next = field.value;
    if (next === text) return;
    const same = common(text, next);
    text = next;
    while (starts.length > 1 && starts[starts.length - 1] > same) {
      starts.pop();
      states.pop();
    }
  }

  /** Returns a line that was read. @param {number} number */
  function lineOf(number) {
    const end = text.indexOf("\n", starts[number]);
    return text.slice(starts[number], end < 0 ? text.length : end);
  }

  /** Reads the lines up to a number. */
  function readTo(/** @type {number} */ number) {
    while (starts.length <= number) {
      const last = starts.length - 1;
      const end = text.indexOf("\n", starts[last]);
      if (end < 0) return;
      states.push(read(text.slice(starts[last], end), states[last], nothing));
      starts.push(end + 1);
    }
  }

  /** Returns a line with its colours. @param {string} line @param {State} state @param {Words | undefined} words */
  function row(line, state, words) {
    const kinds = new Uint8Array(line.length);
    read(line, state, (kind, from, to) => kinds.fill(kind, from, to));
    for (const [from, to, kind] of words ?? []) kinds.fill(kind, from, to);
    const shown = document.createElement("span");
    for (let from = 0, to = 0; from < line.length; from = to) {
      while (to < line.length && kinds[to] === kinds[from]) to += 1;
      const part = line.slice(from, to);
      if (kinds[from] === 0) {
        shown.append(part);
      } else {
        const word = document.createElement("span");
        word.className = `in-${KINDS[kinds[from]]}`;
        word.textContent = part;
        shown.append(word);
      }
    }
    return shown;
  }

  /** Removes the colours, so that the field shows its own letters. */
  function stop() {
    field.parentElement?.classList.remove("coloured");
    layer.hidden = true;
  }

  layer.append(sheet);
  return {
    /** Shows the visible lines. @param {Window} window */
    draw({ top, left, first, count, height }) {
      update();
      if (text.length > LONGEST) return stop();
      readTo(first + count);
      const next = new Map();
      for (let number = first; number < Math.min(first + count, starts.length); number += 1) {
        const line = lineOf(number);
        if (line.length > WIDEST) return stop();
        const words = told[number]?.line === line ? told[number].words : byLine.get(line);
        const [state, old] = [states[number], rows.get(number)];
        const isSame = old && old.line === line && old.words === words
          && old.state.open === state.open && old.state.column === state.column && old.state.depth === state.depth;
        next.set(number, isSame ? old : { line, state, words, shown: row(line, state, words) });
      }
      rows = next;
      const shown = [...rows.values()].map((each) => each.shown);
      if (shown.length !== sheet.childNodes.length || shown.some((each, at) => each !== sheet.childNodes[at])) sheet.replaceChildren(...shown);
      sheet.style.transform = `translate(${left}px, ${top + first * height}px)`;
      layer.hidden = false;
      field.parentElement?.classList.add("coloured");
    },
    /** Takes the words of expressions that the assistance has told of the present text. @param {Tokens} tokens */
    take({ kinds, data }) {
      update();
      const numbers = kinds.map((kind) => Math.max(0, KINDS.indexOf(kind)));
      const lines = text.split("\n");
      told = [];
      byLine = new Map();
      let [line, column] = [0, 0];
      for (let at = 0; at + 3 < data.length; at += 4) {
        column = data[at] > 0 ? data[at + 1] : column + data[at + 1];
        line += data[at];
        if (line >= lines.length) return;
        told[line] ??= { line: lines[line], words: [] };
        told[line].words.push([column, column + data[at + 2], numbers[data[at + 3]] ?? 0]);
      }
      told.forEach((each) => byLine.set(each.line, each.words));
    },
  };
}
