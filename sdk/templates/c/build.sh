#!/bin/sh
# Builds the pack: `flowcell node build` says into which file, and puts the manifest into it.
set -eu
PATH=$PWD/.venv/bin:$PATH

# What the border looks like from C: target/pack.h.
wit-bindgen c --world everything --rename-world pack --out-dir target wit
${CC:-python-zig cc} -target wasm32-wasi -mexec-model=reactor -Os -s -Wall -Wextra -I target \
  nodes.c target/pack.c target/pack_component_type.o -o target/module.wasm

# The linker of components that comes with Rust turns the module into one. What it would have linked first is linked already.
printf '#!/bin/sh\ncp "$1" "$3"\n' >target/linked
chmod +x target/linked
"$(rustc --print target-libdir)/../bin/wasm-component-ld" --wasm-ld-path "$PWD/target/linked" --wasi-adapter none \
  target/module.wasm -o "$1"
