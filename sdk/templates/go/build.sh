#!/bin/sh
# Builds the pack into the file "$1". `flowcell node build` calls this script and then embeds the manifest.
set -eu
PATH=$PWD/.venv/bin:$PATH
mkdir -p target

# Generates the Go bindings of the WIT. After a change in `wit`, delete the folder `imports`.
[ -d imports ] || wit-bindgen go --world everything --pkg-name acme --out-dir . wit
# The pack is published: -trimpath keeps the paths of this machine out of it, and -buildvcs=false its repository.
GOOS=wasip1 GOARCH=wasm go build -trimpath -buildvcs=false -buildmode=c-shared -ldflags='-s -w -checklinkname=0' \
  -o target/module.wasm .

# Rust's component linker turns the module into a component and adds the adapter for the older WASI that Go targets. The
# module is linked already, so the linker's first step only copies it.
printf '#!/bin/sh\ncp "$1" "$3"\n' >target/linked
chmod +x target/linked
"$(rustc --print target-libdir)/../bin/wasm-component-ld" --wasm-ld-path "$PWD/target/linked" --wasi-adapter reactor \
  --component-type wit target/module.wasm -o "$1"
