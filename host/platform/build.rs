//! Builds the catalog: compiles the packs in `nodes/` to components and embeds them in the binary with their digests.
//!
//! The packs have another target, so a nested cargo builds them. It uses its own target directory, since the outer
//! cargo locks its directory until this script ends. `FLOWCELL_CATALOG` names a folder of built packs to use instead;
//! then nothing is built. A published package has no workspace around it, and carries the built packs.

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
/// Two cargo profiles for the packs. The first one builds the packs for a release of the host, the second one for every
/// other build.
const PROFILES: [&str; 2] = ["guest-dist", "guest"];
/// The environment variable that names a folder of built packs, with files such as `flowcell_agent.wasm`.
const CATALOG_VARIABLE: &str = "FLOWCELL_CATALOG";
/// The folder of the built packs in a published package. `host/cli/package/verify crates` fills it.
const CARRIED: &str = "packs";
/// The file that cargo adds to each published package.
const PUBLISHED_MARK: &str = "Cargo.toml.orig";
/// The packs of the catalog, in the order of its listing.
const PACKS: [&str; 9] = ["agent", "control", "data", "file", "http", "query", "report", "script", "system"];
/// The source files and folders of the packs.
const SOURCES: [&str; 6] = ["nodes", "sdk", "wit", "Cargo.toml", "Cargo.lock", "rust-toolchain.toml"];
/// Beginnings of the names of cargo's environment variables that configure the build of the packs too. All other
/// variables that begin with `CARGO_` configure only the build of the host.
const KEPT_SETTINGS: [&str; 6] =
    ["CARGO_HOME", "CARGO_HTTP_", "CARGO_MAKEFLAGS", "CARGO_NET_", "CARGO_REGISTR", "CARGO_TERM_"];

fn main() {
    if let Err(message) = build() {
        for line in message.lines() {
            println!("cargo::error={line}");
        }
        std::process::exit(1);
    }
}

fn build() -> Result<(), String> {
    println!("cargo::rerun-if-env-changed={CATALOG_VARIABLE}");
    let out = directory_from_variable("OUT_DIR")?;
    if let Some(built) = env::var_os(CATALOG_VARIABLE) {
        return take_packs(Path::new(&built), &out);
    }
    let package = directory_from_variable("CARGO_MANIFEST_DIR")?;
    // Tools that merge files leave a file with this name in a clone, too.
    if package.join(PUBLISHED_MARK).is_file() && !package.join("../../wit").is_dir() {
        return take_carried_packs(&package.join(CARRIED), &out);
    }
    let workspace = package.join("../..");
    for source in SOURCES {
        println!("cargo::rerun-if-changed={}", workspace.join(source).display());
    }
    ensure_target()?;
    let guests = target_directory(&out)?.join("guests");
    let is_release = env::var_os("PROFILE").is_some_and(|profile| profile == "release");
    let profile = PROFILES[usize::from(!is_release)];
    build_packs(&workspace, &guests, profile)?;
    let built = guests.join(TARGET).join(profile);
    write_catalog(&built, &out)
}

/// Embeds packs that are already built.
pub(crate) fn take_packs(built: &Path, out: &Path) -> Result<(), String> {
    // A build script runs in the folder of its package, not in cargo's current folder.
    if !built.is_absolute() {
        return Err(format!("{CATALOG_VARIABLE} is {}; write the whole path of the folder", built.display()));
    }
    println!("cargo::rerun-if-changed={}", built.display());
    write_catalog(built, out).map_err(|error| {
        format!("{error}\n{CATALOG_VARIABLE} names the folder with flowcell_{}.wasm and the other packs", PACKS[0])
    })
}

/// Embeds the packs of a published package.
pub(crate) fn take_carried_packs(carried: &Path, out: &Path) -> Result<(), String> {
    println!("cargo::rerun-if-changed={}", carried.display());
    write_catalog(carried, out).map_err(|error| {
        format!("{error}\nthe package was made without the catalog's packs; set {CATALOG_VARIABLE} to a folder of built packs")
    })
}

fn directory_from_variable(name: &str) -> Result<PathBuf, String> {
    env::var_os(name).map(PathBuf::from).ok_or_else(|| format!("cargo did not set {name}"))
}

/// Adds the packs' target to the current toolchain, if it is missing.
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
            "the catalog's packs need the Rust target {TARGET}, which this toolchain lacks, and rustup cannot run to \
             add it ({error})\ninstall the target's standard library in the same way as the toolchain"
        )),
    }
}

/// Returns the outer target directory, which cargo marks with a tag.
fn target_directory(out: &Path) -> Result<PathBuf, String> {
    let tagged = out.ancestors().find(|directory| directory.join("CACHEDIR.TAG").is_file());
    // Without the tag, the path is `target/<profile>/build/<package>/out`.
    let usual = || out.ancestors().nth(4);
    tagged
        .or_else(usual)
        .map(Path::to_path_buf)
        .ok_or_else(|| format!("{} is not in a target directory", out.display()))
}

fn build_packs(workspace: &Path, guests: &Path, profile: &str) -> Result<(), String> {
    let cargo = env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    command
        .current_dir(workspace)
        .args(["build", "--profile", profile, "--target", TARGET, "--target-dir"])
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

/// Returns whether an environment variable configures the outer build, which builds the host. Such variables set its
/// flags, its wrappers such as clippy's, and its target.
fn is_of_the_outer_build(name: &OsStr) -> bool {
    let Some(name) = name.to_str() else { return false };
    let of_cargo = name.starts_with("CARGO_") && !KEPT_SETTINGS.iter().any(|kept| name.starts_with(kept));
    of_cargo
        || ["RUSTC", "RUSTDOC", "RUSTFLAGS", "CLIPPY_", "DEP_"].iter().any(|prefix| name.starts_with(prefix))
        || ["TARGET", "HOST", "OUT_DIR", "PROFILE", "DEBUG", "OPT_LEVEL", "NUM_JOBS"].contains(&name)
}

/// Copies the components to `out`, and writes `catalog.rs` beside them, which lists and includes them.
fn write_catalog(built: &Path, out: &Path) -> Result<(), String> {
    let mut listing = String::from("&[\n");
    for pack in PACKS {
        let file = built.join(format!("flowcell_{pack}.wasm"));
        let bytes = fs::read(&file).map_err(|error| format!("cannot read {}: {error}", file.display()))?;
        let copy = out.join(format!("{pack}.wasm"));
        fs::write(&copy, &bytes).map_err(|error| format!("cannot write {}: {error}", copy.display()))?;
        let digest: String = Sha256::digest(&bytes).iter().map(|byte| format!("{byte:02x}")).collect();
        // Writing to a string cannot fail.
        let _ = writeln!(
            listing,
            "    BuiltIn {{ name: {pack:?}, digest: {digest:?}, bytes: include_bytes!(concat!(env!(\"OUT_DIR\"), \"/{pack}.wasm\")) }},"
        );
    }
    listing.push_str("]\n");
    let file = out.join("catalog.rs");
    fs::write(&file, listing).map_err(|error| format!("cannot write {}: {error}", file.display()))
}
