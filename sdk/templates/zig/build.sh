#!/bin/sh
# Builds the pack into the file "$1". `flowcell node build` calls this script and then embeds the manifest.
set -eu
PATH=$PWD/.venv/bin:$PATH

# Generates the C bindings of the WIT: target/pack.h. `pack.zig` declares what the code uses of them.
wit-bindgen c --world everything --rename-world pack --out-dir target wit
python-zig build-exe -target wasm32-wasi -mexec-model=reactor -OReleaseSmall -fstrip -lc \
  nodes.zig target/pack.c target/pack_component_type.o -femit-bin=target/module.wasm

# Rust's component linker turns the module into a component. The module is linked already, so its first step only copies
# it.
printf '#!/bin/sh\ncp "$1" "$3"\n' >target/linked
chmod +x target/linked
"$(rustc --print target-libdir)/../bin/wasm-component-ld" --wasm-ld-path "$PWD/target/linked" --wasi-adapter none \
  target/module.wasm -o "$1"
