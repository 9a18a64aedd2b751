//! The flags of rustc for a pack. Packs are published, and must not contain paths of the author's machine.

use std::{
    env,
    ffi::{OsStr, OsString},
    path::{Path, PathBuf},
    process::Command,
};

use serde_json::json;

use super::RUST_TARGET;

/// The separator of the flags in [`ENCODED`].
const SEPARATOR: char = '\u{1f}';
const ENCODED: &str = "CARGO_ENCODED_RUSTFLAGS";
const PLAIN: &str = "RUSTFLAGS";

/// Lets rustc write `/cargo` in place of the folders in which cargo keeps the sources of crates. The flags of the author stay:
/// those of a variable, or of `target` in the configuration of cargo. Those of `build` there have no effect on a pack.
pub(super) fn hide_home(command: &mut Command) {
    let home = env::var_os("CARGO_HOME").map(PathBuf::from);
    let Some(home) = home.or_else(|| Some(env::home_dir()?.join(".cargo"))) else { return };
    let flags = flags(&home);
    match of_variables(env::var_os(ENCODED).as_deref(), env::var_os(PLAIN).as_deref()) {
        Some(own) => {
            let all = own.into_iter().chain(flags).collect::<Vec<_>>();
            command.env(ENCODED, all.join(OsStr::new(&SEPARATOR.to_string())));
        }
        // cargo joins this list with that of its files.
        None => {
            let flags = flags.iter().map(|flag| flag.to_string_lossy());
            let list = json!(flags.collect::<Vec<_>>());
            command.args(["--config", &format!("target.{RUST_TARGET}.rustflags={list}")]);
        }
    }
}

fn flags(home: &Path) -> Vec<OsString> {
    let flag = |folder: &str| {
        let mut flag = OsString::from("--remap-path-prefix=");
        flag.push(home.join(folder));
        flag.push("=/cargo");
        flag
    };
    vec![flag("registry/src"), flag("git/checkouts")]
}

/// Returns the flags that the author set by a variable. cargo reads the first one that is set.
fn of_variables(encoded: Option<&OsStr>, plain: Option<&OsStr>) -> Option<Vec<OsString>> {
    let split = |text: &OsStr, separator: char| {
        let text = text.to_string_lossy();
        text.split(separator).map(str::trim).filter(|flag| !flag.is_empty()).map(OsString::from).collect()
    };
    encoded.map(|text| split(text, SEPARATOR)).or_else(|| plain.map(|text| split(text, ' ')))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_of_the_author_are_read_as_cargo_reads_them() {
        let read =
            |encoded: Option<&str>, plain: Option<&str>| of_variables(encoded.map(OsStr::new), plain.map(OsStr::new));
        let flags = |flags: &[&str]| Some(flags.iter().map(OsString::from).collect::<Vec<_>>());
        assert_eq!(read(None, None), None);
        assert_eq!(read(None, Some(" -C  opt-level=s ")), flags(&["-C", "opt-level=s"]));
        assert_eq!(read(Some("--cfg\u{1f}a b"), Some("-g")), flags(&["--cfg", "a b"]));
        assert_eq!(read(Some(""), Some("-g")), flags(&[]));
    }

    #[test]
    fn folders_of_cargo_are_replaced() {
        let expected =
            ["registry/src", "git/checkouts"].map(|name| format!("--remap-path-prefix=/h/.cargo/{name}=/cargo"));
        assert_eq!(flags(Path::new("/h/.cargo")), expected.map(OsString::from));
    }
}
