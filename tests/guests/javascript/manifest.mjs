// Appends a manifest to a component, as its last custom section: node manifest.mjs FILE.wasm node.yaml
import { appendFileSync, readFileSync } from "node:fs";

const [component, manifest] = process.argv.slice(2);
const name = Buffer.from("flowcell:manifest");
const content = Buffer.concat([leb(name.length), name, readFileSync(manifest)]);
appendFileSync(component, Buffer.concat([Buffer.of(0), leb(content.length), content]));

// An unsigned LEB128.
function leb(number) {
  const bytes = [];
  for (; number > 127; number >>>= 7) bytes.push((number & 127) | 128);
  return Buffer.of(...bytes, number);
}
