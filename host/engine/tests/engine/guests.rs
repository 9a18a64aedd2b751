//! Builds the guests of the tests on first use, into a separate target folder.

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::Command,
    sync::LazyLock,
};

/// The pack with the hostile node types.
pub(crate) static HOSTILE: LazyLock<Vec<u8>> = LazyLock::new(|| {
    let manifest = root().join("tests/guests/hostile/Cargo.toml");
    build(&["--release", "--manifest-path", manifest.to_str().unwrap()], "release/hostile.wasm")
});

/// The packs of the catalog, as `host/platform/build.rs` builds them: a build of fewer packs has other features, and would
/// compile most of them again.
const CATALOG: [&str; 9] = ["agent", "control", "data", "file", "http", "query", "report", "script", "system"];

/// Returns the component of a pack of the catalog, which is built if it was not.
pub(crate) fn catalog_pack(name: &str) -> Vec<u8> {
    let packages: Vec<_> = CATALOG.iter().map(|name| format!("--package=flowcell-{name}")).collect();
    let arguments: Vec<_> = ["--profile", "guest"].into_iter().chain(packages.iter().map(String::as_str)).collect();
    build(&arguments, &format!("guest/flowcell_{name}.wasm"))
}

/// Returns the root folder of the repository.
pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

/// Builds a guest and returns its bytes.
pub(crate) fn build(arguments: &[&str], artefact: &str) -> Vec<u8> {
    let target = root().join("target/guests");
    let status = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
        .args(["build", "--quiet", "--target", "wasm32-wasip2", "--target-dir"])
        .arg(&target)
        .args(arguments)
        .env_remove("RUSTFLAGS")
        .current_dir(root())
        .status()
        .unwrap();
    assert!(status.success(), "a guest was not built");
    fs::read(target.join("wasm32-wasip2").join(artefact)).unwrap()
}

/// Returns a component written by hand, with `fields` in its one core module and `more` beside the module. The host
/// cannot call the component's function `run`, so the component tests only what happens before that call.
pub(crate) fn by_hand(fields: &str, more: &str) -> Vec<u8> {
    let text = format!(
        r#"(component
             {more}
             (core module $m (func (export "run")) {fields})
             (core instance $i (instantiate $m))
             (func $run (canon lift (core func $i "run")))
             (instance $node (export "run" (func $run)))
             (export "flowcell:node/node@0.1.0" (instance $node)))"#
    );
    wat::parse_str(text).unwrap()
}

/// Returns the component with a manifest appended, as the SDKs for JavaScript and Python append it.
pub(crate) fn with_manifest(mut component: Vec<u8>, manifest: &str) -> Vec<u8> {
    let name = b"flowcell:manifest";
    let mut content = leb(name.len());
    content.extend_from_slice(name);
    content.extend_from_slice(manifest.as_bytes());
    component.push(0);
    component.extend(leb(content.len()));
    component.extend(content);
    component
}

fn leb(mut number: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    loop {
        let low = u8::try_from(number & 0x7f).unwrap();
        number >>= 7;
        bytes.push(if number == 0 { low } else { low | 0x80 });
        if number == 0 {
            return bytes;
        }
    }
}
