#!/bin/sh
# Builds the pack: ./build.sh OUT/notes.wasm
set -eu
out=${1:?usage: build.sh OUT.wasm}
here=$(cd "$(dirname "$0")" && pwd)
if ! command -v componentize-qjs >/dev/null; then
  echo "componentize-qjs is missing: npm install --global componentize-qjs@0.4.5" >&2
  exit 1
fi

# The tool wants one directory, with the packages that the world names under deps/.
wit=$(mktemp -d)
trap 'rm -rf "$wit"' EXIT
cp -R "$here/wit/." "$here/../../../wit/deps" "$wit"

# Without --sync it builds for a host with component-model async.
componentize-qjs --sync --opt-size --minify --wit "$wit" --js "$here/notes.js" --output "$out"
node "$here/manifest.mjs" "$out" "$here/node.yaml"
