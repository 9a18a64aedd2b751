//! Builds packs outside the workspace when a test needs them.

use std::{
    path::{Path, PathBuf},
    process::Command,
};

/// Returns the folder of a guest.
pub(crate) fn guest(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/guests").join(name)
}

/// Builds a guest, and returns the folder of its component. The build uses a target directory of its own, because the
/// outer cargo may hold the lock of the default one.
pub(crate) fn build(name: &str, features: &str) -> PathBuf {
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}-{features}"));
    let built = Command::new(env!("CARGO"))
        .args([
            "build",
            "--release",
            "--locked",
            "--target",
            "wasm32-wasip2",
            "--features",
            features,
            "--manifest-path",
        ])
        .arg(guest(name).join("Cargo.toml"))
        .arg("--target-dir")
        .arg(&target)
        .env_remove("RUSTFLAGS")
        .env_remove("CARGO_ENCODED_RUSTFLAGS")
        .output()
        .unwrap();
    assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
    target.join("wasm32-wasip2/release")
}

/// Builds the library that simulates a failing machine below the program. Returns its path.
#[cfg(target_os = "linux")]
#[allow(dead_code, reason = "not every test has a bad machine")]
pub(crate) fn bad_machine() -> PathBuf {
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).join("bad-machine");
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/bad-machine/Cargo.toml");
    let built = Command::new(env!("CARGO"))
        .args(["build", "--release", "--locked", "--manifest-path"])
        .arg(manifest)
        .arg("--target-dir")
        .arg(&target)
        .env_remove("CARGO_BUILD_TARGET")
        .output()
        .unwrap();
    assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
    target.join("release/libbad_machine.so")
}
