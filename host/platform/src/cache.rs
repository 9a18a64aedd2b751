//! The user's cache folder, for compiled code and fetched packs.

use std::{env, path::PathBuf};

/// Returns `$FLOWCELL_CACHE`, or `flowcell` in the platform's cache folder. Returns `None` if the environment names
/// neither.
pub(crate) fn user_folder() -> Option<PathBuf> {
    let folder = |name| env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let home = || folder("HOME");
    let platform = if cfg!(windows) {
        folder("LOCALAPPDATA")
    } else if cfg!(target_os = "macos") {
        home().map(|home| home.join("Library/Caches"))
    } else {
        folder("XDG_CACHE_HOME").filter(|path| path.is_absolute()).or_else(|| home().map(|home| home.join(".cache")))
    };
    folder("FLOWCELL_CACHE").or_else(|| platform.map(|platform| platform.join("flowcell")))
}
