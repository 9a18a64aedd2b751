//! The operator's folder, and the folders of tenants in it.

use std::{
    fmt::Write as _,
    io,
    path::{Path, PathBuf},
};

use cap_fs_ext::DirExt;
use cap_std::{ambient_authority, fs::Dir};
use flowcell_contract::Tenant;

use super::{
    path::RESERVED_PREFIX,
    quota::{MAX_DEPTH, Used, count},
};

/// The operator's folder.
pub(super) struct Root(PathBuf);

impl Root {
    pub(super) fn new(folder: PathBuf) -> Root {
        Root(folder)
    }

    /// Opens the folder of a tenant, and creates it if needed. The folder of `local` is the root itself, which must
    /// exist.
    pub(super) fn open_tenant(&self, tenant: &Tenant) -> io::Result<Dir> {
        let root = Dir::open_ambient_dir(&self.0, ambient_authority())?;
        if *tenant == Tenant::local() {
            return Ok(root);
        }
        let tenants = open_or_make(&root, &format!("{RESERVED_PREFIX}-tenants"))?;
        open_or_make(&tenants, &folder_name(tenant.as_str()))
    }
}

/// Removes the folder of a tenant with everything in it, without following links. Returns its bytes and entries.
pub(super) fn remove_tenant(folder: &Path, tenant: &Tenant) -> io::Result<Used> {
    let opened = |dir: io::Result<Dir>| match dir {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        dir => dir.map(Some),
    };
    let Some(root) = opened(Dir::open_ambient_dir(folder, ambient_authority()))? else { return Ok(Used::default()) };
    let tenants = opened(root.open_dir_nofollow(format!("{RESERVED_PREFIX}-tenants")))?;
    let (Some(tenants), name) = (tenants, folder_name(tenant.as_str())) else { return Ok(Used::default()) };
    let Some(own) = opened(tenants.open_dir_nofollow(&name))? else { return Ok(Used::default()) };
    let used = count(&own, MAX_DEPTH)?;
    tenants.remove_dir_all(&name)?;
    Ok(used)
}

/// Opens a folder in a folder, and creates it if it is missing. It does not follow links.
pub(super) fn open_or_make(dir: &Dir, name: &str) -> io::Result<Dir> {
    match dir.open_dir_nofollow(name) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            match dir.create_dir(name) {
                // Another process created the folder first.
                Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
                _ => {}
            }
            dir.open_dir_nofollow(name)
        }
        opened => opened,
    }
}

/// Returns the folder name of a tenant. No two tenants have the same folder name, even on file systems that ignore
/// case. The name is never `.`, `..` or a path.
fn folder_name(tenant: &str) -> String {
    let mut name = String::with_capacity(tenant.len());
    for byte in tenant.bytes() {
        match byte {
            b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_' => name.push(byte.into()),
            // Writing to a string cannot fail.
            _ => _ = write!(name, "%{byte:02x}"),
        }
    }
    name
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

    use super::*;

    #[cfg(unix)]
    #[test]
    fn a_removed_folder_leaves_others_and_the_targets_of_its_links() {
        let folder = tempfile::tempdir().unwrap();
        let root = Root::new(folder.path().to_owned());
        for name in ["acme", "acme-2", "ACME"] {
            root.open_tenant(&Tenant::from(name)).unwrap().write("plan.txt", "12345").unwrap();
        }
        let outside = folder.path().join("outside.txt");
        std::fs::write(&outside, "stays").unwrap();
        let own = folder.path().join(".flowcell-tenants/acme");
        std::os::unix::fs::symlink(&outside, own.join("link")).unwrap();
        std::os::unix::fs::symlink(folder.path(), own.join("up")).unwrap();
        let removed = remove_tenant(folder.path(), &Tenant::from("acme")).unwrap();
        assert_eq!((removed.bytes, removed.entries), (5, 3));
        assert!(!own.exists() && outside.exists());
        assert!(folder.path().join(".flowcell-tenants/acme-2/plan.txt").exists());
        assert!(folder.path().join(".flowcell-tenants/%41%43%4d%45/plan.txt").exists());
        for missing in ["acme", "..", "."] {
            assert_eq!(remove_tenant(folder.path(), &Tenant::from(missing)).unwrap(), Used::default());
        }
    }

    #[test]
    fn tenants_have_folders_of_their_own() {
        let names = ["acme", "Acme", "..", "a/b", "a%2fb", ".", "%"].map(folder_name);
        assert_eq!(names, ["acme", "%41cme", "%2e%2e", "a%2fb", "a%252fb", "%2e", "%25"]);
    }
}
