// Counts the bytes and lines of an answer, with `fetch`.
import { pack } from "flowcell-sdk";

async function text({ input }) {
  const answer = await fetch(input.url);
  const text = await answer.text();
  return { bytes: text.length, lines: text.split("\n").length - 1 };
}

async function whole({ input }) {
  const answer = await fetch(input.url);
  return counted([await answer.bytes()]);
}

async function chunks({ input }) {
  const answer = await fetch(input.url, { stream: true });
  return counted(answer.body);
}

async function counted(pieces) {
  let bytes = 0;
  let lines = 0;
  for await (const piece of pieces) {
    bytes += piece.length;
    for (let at = piece.indexOf(10); at !== -1; at = piece.indexOf(10, at + 1)) lines++;
  }
  return { bytes, lines };
}

export const node = pack({ "acme.text": text, "acme.whole": whole, "acme.chunks": chunks });
