//! Gives the pack a stack that is large enough to parse nested scripts: the parser takes about 17 KiB for each bracket.

/// Size of the stack in bytes. Together with the memory that every script needs, this stays within the limit of an
/// instance.
const STACK: u32 = 2 << 20;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    if std::env::var("CARGO_CFG_TARGET_ARCH").is_ok_and(|target| target == "wasm32") {
        for argument in ["-z", &format!("stack-size={STACK}")] {
            println!("cargo::rustc-link-arg-cdylib={argument}");
        }
    }
}
