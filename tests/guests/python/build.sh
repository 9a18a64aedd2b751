#!/bin/sh
# Builds the pack: ./build.sh OUT/figures.wasm
set -eu
out=${1:?usage: build.sh OUT.wasm}
here=$(cd "$(dirname "$0")" && pwd)
if ! command -v componentize-py >/dev/null; then
  echo "componentize-py is missing: pip install componentize-py==0.25.1" >&2
  exit 1
fi

# The tool leaves byte code beside the source that it reads.
source=$(mktemp -d)
trap 'rm -rf "$source"' EXIT
cp "$here/figures.py" "$source"

deps=$here/../../../wit/deps
componentize-py --quiet -d "$deps/flowcell-node" -d "$deps/flowcell-host" -d "$here/wit" -w figures:pack/figures-pack \
  componentize -p "$source" -o "$out" figures
python3 "$here/manifest.py" "$out" "$here/node.yaml"
