//! Gives the pack a stack on which scripts can be read that are nested: the parser takes some 17 KiB for each bracket.

/// Bytes. With what a script needs in any case it stays within the memory that every instance may have.
const STACK: u32 = 2 << 20;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    if std::env::var("CARGO_CFG_TARGET_ARCH").is_ok_and(|target| target == "wasm32") {
        for argument in ["-z", &format!("stack-size={STACK}")] {
            println!("cargo::rustc-link-arg-cdylib={argument}");
        }
    }
}
