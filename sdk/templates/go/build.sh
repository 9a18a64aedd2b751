#!/bin/sh
# Builds the pack: `flowcell node build` says into which file, and puts the manifest into it.
set -eu
PATH=$PWD/.venv/bin:$PATH
mkdir -p target

# What the border looks like from Go. After a change in `wit` the folder `imports` has to go.
[ -d imports ] || wit-bindgen go --world everything --pkg-name acme --out-dir . wit
GOOS=wasip1 GOARCH=wasm go build -buildmode=c-shared -ldflags='-s -w -checklinkname=0' -o target/module.wasm .

# The linker of components that comes with Rust turns the module into one, with what stands in for the older WASI that Go
# is compiled for. What it would have linked first is linked already.
printf '#!/bin/sh\ncp "$1" "$3"\n' >target/linked
chmod +x target/linked
"$(rustc --print target-libdir)/../bin/wasm-component-ld" --wasm-ld-path "$PWD/target/linked" --wasi-adapter reactor \
  --component-type wit target/module.wasm -o "$1"
