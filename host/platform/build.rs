//! Builds the catalog: the packs in `nodes/` as components, put into the binary with their digests.
//!
//! They are guests of another target, so that a nested cargo builds them, in a target directory of its own: the outer
//! cargo holds the lock of its own directory until this script ends. With `FLOWCELL_CATALOG`, the packs in that folder
//! are taken instead, and nothing is built.

use std::{
    env,
    ffi::OsStr,
    fmt::Write as _,
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use sha2::{Digest, Sha256};

const TARGET: &str = "wasm32-wasip2";
const PROFILE: &str = "guest";
/// A folder with the packs that are already built, as `flowcell_agent.wasm` and so on.
const BUILT: &str = "FLOWCELL_CATALOG";
/// The packs of the catalog, in the order in which their types are listed.
const PACKS: [&str; 8] = ["agent", "control", "data", "file", "http", "report", "script", "system"];
/// What the packs are made of.
const SOURCES: [&str; 6] = ["nodes", "sdk", "wit", "Cargo.toml", "Cargo.lock", "rust-toolchain.toml"];
/// Settings of cargo that mean the same for a guest as for the host.
const KEPT: [&str; 6] = ["CARGO_HOME", "CARGO_HTTP_", "CARGO_MAKEFLAGS", "CARGO_NET_", "CARGO_REGISTR", "CARGO_TERM_"];

fn main() {
    if let Err(message) = build() {
        for line in message.lines() {
            println!("cargo::error={line}");
        }
        std::process::exit(1);
    }
}

fn build() -> Result<(), String> {
    println!("cargo::rerun-if-env-changed={BUILT}");
    let out = directory("OUT_DIR")?;
    if let Some(built) = env::var_os(BUILT) {
        return take_packs(Path::new(&built), &out);
    }
    let workspace = directory("CARGO_MANIFEST_DIR")?.join("../..");
    for source in SOURCES {
        println!("cargo::rerun-if-changed={}", workspace.join(source).display());
    }
    ensure_target()?;
    let guests = target_directory(&out)?.join("guests");
    build_packs(&workspace, &guests)?;
    let built = guests.join(TARGET).join(PROFILE);
    write_catalog(&built, &out)
}

/// Takes packs that are already built.
pub(crate) fn take_packs(built: &Path, out: &Path) -> Result<(), String> {
    // A build script runs in the folder of its package, not where cargo was called.
    if !built.is_absolute() {
        return Err(format!("{BUILT} is {}; write the whole path of the folder", built.display()));
    }
    println!("cargo::rerun-if-changed={}", built.display());
    write_catalog(built, out).map_err(|error| {
        format!("{error}\n{BUILT} names the folder with flowcell_{}.wasm and the other packs", PACKS[0])
    })
}

fn directory(name: &str) -> Result<PathBuf, String> {
    env::var_os(name).map(PathBuf::from).ok_or_else(|| format!("cargo did not set {name}"))
}

/// Adds the guests' target to the toolchain that compiles this, unless it is there.
fn ensure_target() -> Result<(), String> {
    let rustc = env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let found = Command::new(rustc).args(["--print", "target-libdir", "--target", TARGET]).output();
    let installed = found.is_ok_and(|output| {
        output.status.success() && Path::new(String::from_utf8_lossy(&output.stdout).trim()).is_dir()
    });
    if installed {
        return Ok(());
    }
    let toolchain = env::var("RUSTUP_TOOLCHAIN").ok();
    let named = toolchain.iter().flat_map(|toolchain| ["--toolchain", toolchain]);
    let added = Command::new("rustup").args(["target", "add", TARGET]).args(named).status();
    match added {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => {
            Err(format!("`rustup target add {TARGET}` failed ({status}); the catalog's packs need that target"))
        }
        Err(error) => Err(format!(
            "the catalog's packs need the Rust target {TARGET}, which this toolchain lacks, and rustup cannot be run to \
             add it ({error})\ninstall the target's standard library with whatever installed this toolchain"
        )),
    }
}

/// The outer target directory: cargo tags it, wherever it is.
fn target_directory(out: &Path) -> Result<PathBuf, String> {
    let tagged = out.ancestors().find(|directory| directory.join("CACHEDIR.TAG").is_file());
    // `target/<profile>/build/<package>/out`, if somebody has removed the tag.
    let usual = || out.ancestors().nth(4);
    tagged.or_else(usual).map(Path::to_path_buf).ok_or_else(|| format!("{} is in no target directory", out.display()))
}

fn build_packs(workspace: &Path, guests: &Path) -> Result<(), String> {
    let cargo = env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    command
        .current_dir(workspace)
        .args(["build", "--profile", PROFILE, "--target", TARGET, "--target-dir"])
        .arg(guests);
    for pack in PACKS {
        command.arg("-p").arg(format!("flowcell-{pack}"));
    }
    for (name, _) in env::vars_os() {
        if is_of_the_outer_build(&name) {
            command.env_remove(name);
        }
    }
    let output = command.output().map_err(|error| format!("cannot run cargo for the catalog's packs: {error}"))?;
    if output.status.success() {
        return Ok(());
    }
    let talk = String::from_utf8_lossy(&output.stderr);
    Err(format!("the catalog's packs do not build ({})\n{talk}", output.status))
}

/// Whether a variable is about how the host is compiled: its flags, wrappers such as clippy's, and its target.
fn is_of_the_outer_build(name: &OsStr) -> bool {
    let Some(name) = name.to_str() else { return false };
    let of_cargo = name.starts_with("CARGO_") && !KEPT.iter().any(|kept| name.starts_with(kept));
    of_cargo
        || ["RUSTC", "RUSTDOC", "RUSTFLAGS", "CLIPPY_", "DEP_"].iter().any(|prefix| name.starts_with(prefix))
        || ["TARGET", "HOST", "OUT_DIR", "PROFILE", "DEBUG", "OPT_LEVEL", "NUM_JOBS"].contains(&name)
}

/// Copies the components beside `catalog.rs`, which names them.
fn write_catalog(built: &Path, out: &Path) -> Result<(), String> {
    let mut listing = String::from("&[\n");
    for pack in PACKS {
        let file = built.join(format!("flowcell_{pack}.wasm"));
        let bytes = fs::read(&file).map_err(|error| format!("cannot read {}: {error}", file.display()))?;
        let copy = out.join(format!("{pack}.wasm"));
        fs::write(&copy, &bytes).map_err(|error| format!("cannot write {}: {error}", copy.display()))?;
        let digest: String = Sha256::digest(&bytes).iter().map(|byte| format!("{byte:02x}")).collect();
        // Writing to a string does not fail.
        let _ = writeln!(
            listing,
            "    BuiltIn {{ name: {pack:?}, digest: {digest:?}, bytes: include_bytes!(concat!(env!(\"OUT_DIR\"), \"/{pack}.wasm\")) }},"
        );
    }
    listing.push_str("]\n");
    let file = out.join("catalog.rs");
    fs::write(&file, listing).map_err(|error| format!("cannot write {}: {error}", file.display()))
}
