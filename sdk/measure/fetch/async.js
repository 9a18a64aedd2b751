// Counts the bytes and lines of an answer, in an `async` function without `fetch`.
import { file, http, pack, queue } from "flowcell-sdk";

async function whole({ input }) {
  const call = http.startSend({ url: input.url });
  await queue.ended(call);
  let bytes = 0;
  let lines = 0;
  for (const piece of file.chunks(http.takeResponse(call).file)) {
    bytes += piece.length;
    for (let at = piece.indexOf(10); at !== -1; at = piece.indexOf(10, at + 1)) lines++;
  }
  return { bytes, lines };
}

export const node = pack({ "acme.whole": whole });
