// Counts the bytes and lines of an answer, with the module `http` of the SDK.
import { file, http, pack } from "flowcell-sdk";

function counted(pieces) {
  let bytes = 0;
  let lines = 0;
  for (const piece of pieces) {
    bytes += piece.length;
    for (let at = piece.indexOf(10); at !== -1; at = piece.indexOf(10, at + 1)) lines++;
  }
  return { bytes, lines };
}

// A large answer is a file value, so the node reads the file.
const whole = ({ input }) => counted(file.chunks(http.send({ url: input.url }).file));

const chunks = ({ input }) => counted(http.open({ url: input.url }).chunks());

function lines({ input }) {
  const count = { bytes: 0, lines: 0 };
  for (const line of http.open({ url: input.url }).lines()) {
    count.bytes += line.length + 1;
    count.lines++;
  }
  return count;
}

export const node = pack({ "acme.whole": whole, "acme.chunks": chunks, "acme.lines": lines });
