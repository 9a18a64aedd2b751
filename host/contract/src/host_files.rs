//! Names of the host's own files and folders. The host does not let flows read or write them.

/// The database file of a store. The host recognises the folder of a store by this file.
pub const STORE_FILE: &str = "flowcell.db";
/// The folder beside the flows of the tenant `local`. It holds the flows of other tenants.
pub const TENANTS_FOLDER: &str = ".tenants";
/// The folder beside flows that holds their older versions.
pub const VERSIONS_FOLDER: &str = ".versions";
/// The folder beside the files of the tenant `local`. It holds the files of other tenants.
pub const TENANT_FILES_FOLDER: &str = ".flowcell-tenants";

/// The folder in a store that holds the large files.
pub const LARGE_FILES_FOLDER: &str = "flowcell.files";

/// Prefixes of the names of a store's files. Because `flowcell.db` is such a prefix, `flowcell.db-wal` belongs to the
/// store, too.
const STORE_FILES: [&str; 7] =
    [STORE_FILE, "owner.lock", "epoch", "secret.key", "control.sock", "flowcell.reserve", LARGE_FILES_FOLDER];

/// Returns true if a folder with this name belongs to the host, wherever it is. Ignores case, because some file systems
/// do so, too.
pub fn is_host_folder(name: &str) -> bool {
    [TENANTS_FOLDER, VERSIONS_FOLDER, TENANT_FILES_FOLDER].iter().any(|own| own.eq_ignore_ascii_case(name))
}

/// Returns true if a file with this name belongs to a store. Applies only to files in the folder of a store. Ignores
/// case.
pub fn is_store_file(name: &str) -> bool {
    let begins = |own: &&str| name.get(..own.len()).is_some_and(|begin| begin.eq_ignore_ascii_case(own));
    STORE_FILES.iter().any(begins)
}
