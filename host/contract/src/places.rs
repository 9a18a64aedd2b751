//! Names of the host's own files and folders, which no flow reads or writes.

/// The database in the folder of a store, by which such a folder is recognised.
pub const STORE_FILE: &str = "flowcell.db";
/// The folder beside the flows of `local` that has the flows of other tenants.
pub const TENANTS_FOLDER: &str = ".tenants";
/// The folder beside flows that has their older versions.
pub const VERSIONS_FOLDER: &str = ".versions";
/// The folder beside the files of `local` that has the files of other tenants.
pub const TENANT_FILES_FOLDER: &str = ".flowcell-tenants";

/// Files of a store, each by the beginning of its name.
const STORE_FILES: [&str; 5] = [STORE_FILE, "owner.lock", "epoch", "secret.key", "control.sock"];

/// Whether a folder of this name is the host's, wherever it is. Case is ignored, as some file systems ignore it.
pub fn is_host_folder(name: &str) -> bool {
    [TENANTS_FOLDER, VERSIONS_FOLDER, TENANT_FILES_FOLDER].iter().any(|own| own.eq_ignore_ascii_case(name))
}

/// Whether a file of this name belongs to the store in the same folder.
pub fn is_store_file(name: &str) -> bool {
    let begins = |own: &&str| name.get(..own.len()).is_some_and(|begin| begin.eq_ignore_ascii_case(own));
    STORE_FILES.iter().any(begins)
}
