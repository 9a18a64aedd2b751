// @ts-check
/** The kinds of the characters of a line, for colours: of flows in YAML and JSON with their expressions, and of scripts. */

/** The kinds, by their numbers. Those of the assistance of the API have the same names. */
export const KINDS = ["", "comment", "key", "string", "number", "keyword", "operator", "variable", "property", "function", "parameter"];
const [, COMMENT, KEY, STRING, NUMBER, KEYWORD, OPERATOR, VARIABLE, PROPERTY, FUNCTION] = KINDS.keys();

/**
 * The state at the start of a line: the kind of text that is open, the column that its lines are beyond, and the number
 * of open brackets. @typedef {{ open: "" | "block" | '"' | "'" | "comment" | "`", column: number, depth: number }} State
 */

/** The state at the start of a text. @type {State} */
export const START = { open: "", column: -1, depth: 0 };

/** The words of expressions, and of scripts. */
const WORDS = new Set("and or not in is if else for true false none null".split(" "));
const SCRIPT_WORDS = new Set(("async await break case catch class const continue default delete do else export extends false finally for "
  + "function if import in instanceof let new null of return static super switch this throw true try typeof undefined var void while yield").split(" "));

const PART = /"(?:[^"\\]|\\.)*"?|'(?:[^'\\]|\\.)*'?|\d[\w.]*|[\p{L}_$][\p{L}\p{N}_$]*|\s+|./suy;

/** Returns the parts of a text with their starts. @param {string} text @param {number} from @param {number} to */
function* parts(text, from, to) {
  PART.lastIndex = from;
  while (PART.lastIndex < to) {
    const at = PART.lastIndex;
    const part = PART.exec(text)?.[0] ?? "";
    if (!part) return;
    yield { part, at, end: Math.min(at + part.length, to) };
  }
}

/** @typedef {(kind: number, from: number, to: number) => void} Paint */

/** Paints an expression. @param {string} line @param {number} from @param {number} to @param {Paint} paint */
function expression(line, from, to, paint) {
  let before = "";
  for (const { part, at, end } of parts(line, from, to)) {
    if (/^\s/.test(part)) continue;
    if (/^["']/.test(part)) paint(STRING, at, end);
    else if (/^\d/.test(part)) paint(NUMBER, at, end);
    else if (!/^[\p{L}_$]/u.test(part)) paint(OPERATOR, at, end);
    else if (before === ".") paint(PROPERTY, at, end);
    else if (WORDS.has(part)) paint(KEYWORD, at, end);
    else paint(before === "|" || line[end] === "(" ? FUNCTION : VARIABLE, at, end);
    before = part;
  }
}

/** Paints a text with expressions in it. @param {string} line @param {number} from @param {number} to @param {number} kind @param {Paint} paint */
function template(line, from, to, kind, paint) {
  // A search in the line would go on behind the text.
  const text = line.slice(from, to);
  let at = 0;
  while (at < text.length) {
    const start = text.indexOf("{{", at);
    const end = start < 0 ? -1 : text.indexOf("}}", start + 2);
    if (end < 0) break;
    paint(kind, from + at, from + start);
    paint(OPERATOR, from + start, from + start + 2);
    // A quote that is not closed ends with its expression.
    const inside = from + start + 2;
    const part = text.slice(start + 2, end);
    expression(part, 0, part.length, (kind, begin, stop) => paint(kind, inside + begin, inside + stop));
    paint(OPERATOR, from + end, from + end + 2);
    at = end + 2;
  }
  paint(kind, from + at, to);
}

/** Returns the end of a quoted text; -1 if it does not end in the line. @param {string} line @param {number} from @param {string} quote */
function endOfQuote(line, from, quote) {
  for (let at = from; at < line.length; at += 1) {
    if (quote === '"' && line[at] === "\\") at += 1;
    else if (line[at] === quote && quote === "'" && line[at + 1] === "'") at += 1;
    else if (line[at] === quote) return at + 1;
  }
  return -1;
}

/** Returns whether a colon at a place ends a key. @param {string} line @param {number} at @param {boolean} isInside whether brackets are open */
function endsKey(line, at, isInside) {
  const next = line[at + 1];
  return line[at] === ":" && (next === undefined || next === " " || next === "\t" || (isInside && ",[]{}".includes(next)));
}

/** Returns the end of a text without quotes. @param {string} line @param {number} from @param {boolean} isInside @param {boolean} mayBeKey */
function endOfPlain(line, from, isInside, mayBeKey) {
  for (let at = from; at < line.length; at += 1) {
    const sign = line[at];
    if (mayBeKey && endsKey(line, at, isInside)) return at;
    if (isInside && ",[]{}".includes(sign)) return at;
    if (sign === "#" && at > 0 && " \t".includes(line[at - 1])) return at;
  }
  return line.length;
}

/** Reads a line of YAML or JSON. Returns the state of the next line. @param {string} line @param {State} state @param {Paint} paint @returns {State} */
export function readYaml(line, state, paint) {
  let { open, column, depth } = state;
  let at = 0;
  // A bracket that is not closed yet does not reach beyond its member of the flow.
  if (depth > 0 && open === "" && /^[\p{L}_]/u.test(line)) depth = 0;
  if (open === "block") {
    const indent = line.search(/\S/);
    if (indent < 0 || indent > column) {
      template(line, 0, line.length, STRING, paint);
      return state;
    }
    open = "";
  } else if (open === '"' || open === "'") {
    const end = endOfQuote(line, 0, open);
    template(line, 0, end < 0 ? line.length : end, STRING, paint);
    if (end < 0) return state;
    [at, open] = [end, ""];
  }
  let parent = -1;
  let mayBeKey = at === 0 || depth > 0;
  while (at < line.length) {
    const sign = line[at];
    if (sign === " " || sign === "\t") {
      at += 1;
    } else if (sign === "#" && (at === 0 || " \t".includes(line[at - 1]))) {
      paint(COMMENT, at, line.length);
      break;
    } else if ("{[]},".includes(sign)) {
      depth = Math.max(0, depth + ("{[".includes(sign) ? 1 : "]}".includes(sign) ? -1 : 0));
      paint(OPERATOR, at, at + 1);
      [at, mayBeKey] = [at + 1, depth > 0];
    } else if ("-?".includes(sign) && mayBeKey && depth === 0 && (line[at + 1] ?? " ") === " ") {
      paint(OPERATOR, at, at + 1);
      [parent, at] = [at, at + 1];
    } else if (sign === ":" && (depth > 0 || endsKey(line, at, false))) {
      paint(OPERATOR, at, at + 1);
      [at, mayBeKey] = [at + 1, false];
    } else if (depth === 0 && "|>".includes(sign) && /^[|>][-+\d]*\s*(?:#.*)?$/.test(line.slice(at))) {
      paint(OPERATOR, at, at + 1);
      return { open: "block", column: parent, depth };
    } else if (sign === '"' || sign === "'") {
      const end = endOfQuote(line, at + 1, sign);
      let colon = end < 0 ? line.length : end;
      while (line[colon] === " ") colon += 1;
      const isKey = mayBeKey && (endsKey(line, colon, true) || (depth > 0 && line[colon] === ":"));
      if (isKey) {
        paint(KEY, at, end);
        parent = at;
      } else {
        template(line, at, end < 0 ? line.length : end, STRING, paint);
      }
      if (end < 0) return { open: sign, column: -1, depth };
      [at, mayBeKey] = [end, isKey];
    } else {
      const end = endOfPlain(line, at, depth > 0, mayBeKey);
      if (mayBeKey && endsKey(line, end, depth > 0)) {
        paint(KEY, at, end);
        parent = at;
      } else {
        const text = line.slice(at, end).trim();
        const kind = /^[-+]?\.?\d[\d_]*(?:\.\d*)?(?:[eE][-+]?\d+)?$/.test(text) ? NUMBER : /^(?:true|false|null|~)$/.test(text) ? KEYWORD : 0;
        template(line, at, end, kind, paint);
      }
      // An end at the same place would never be left.
      [at, mayBeKey] = [Math.max(end, at + 1), false];
    }
  }
  return { open, column: -1, depth };
}

/** Reads a line of a script. Returns the state of the next line. @param {string} line @param {State} state @param {Paint} paint @returns {State} */
export function readScript(line, state, paint) {
  let { open } = state;
  let at = 0;
  while (at < line.length) {
    if (open === "comment") {
      const end = line.indexOf("*/", at);
      paint(COMMENT, at, end < 0 ? line.length : end + 2);
      if (end < 0) break;
      [at, open] = [end + 2, ""];
    } else if (open === "`") {
      let end = at;
      while (end < line.length && line[end] !== "`") end += line[end] === "\\" ? 2 : 1;
      paint(STRING, at, Math.min(end + 1, line.length));
      if (end >= line.length) break;
      [at, open] = [end + 1, ""];
    } else if (line.startsWith("//", at)) {
      paint(COMMENT, at, line.length);
      break;
    } else if (line.startsWith("/*", at)) {
      paint(COMMENT, at, at + 2);
      [at, open] = [at + 2, "comment"];
    } else if (line[at] === "`") {
      paint(STRING, at, at + 1);
      [at, open] = [at + 1, "`"];
    } else {
      const [{ part, end }] = parts(line, at, line.length);
      if (/^["']/.test(part)) paint(STRING, at, end);
      else if (/^\d/.test(part)) paint(NUMBER, at, end);
      else if (SCRIPT_WORDS.has(part)) paint(KEYWORD, at, end);
      else if (/^[\p{L}_$]/u.test(part)) paint(line[end] === "(" ? FUNCTION : 0, at, end);
      else paint(OPERATOR, at, end);
      at = end;
    }
  }
  return { ...START, open };
}
