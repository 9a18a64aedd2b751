//! Decides which paths a flow may name. A flow may name paths in its own folder, but no path of the host's own files.
//! The readers of prompts, scripts, sub-flows and packs all check their paths here.

use std::{
    io,
    path::{Component, Path, PathBuf},
};

use cap_fs_ext::{FollowSymlinks, OpenOptionsFollowExt};
use cap_std::fs::{Dir, File, OpenOptions};
use flowcell_contract::host_files::{STORE_FILE, is_host_folder, is_store_file};

/// Folders of agentic flows and agents, which users keep in the same folder as the store.
const BESIDE_STORE: [&str; 2] = ["flows", "agents"];

/// Opens a file below a folder. It follows links inside the folder and checks the path that they lead to.
pub(crate) fn open(folder: &Path, path: &str) -> io::Result<File> {
    let (dir, resolved) = find(folder, path)?;
    dir.open_with(resolved, OpenOptions::new().read(true).follow(FollowSymlinks::No))
}

/// Returns true if a file that a flow may read has this path below a folder. Opens nothing.
pub(crate) fn is_file(folder: &Path, path: &str) -> bool {
    find(folder, path).and_then(|(dir, resolved)| dir.symlink_metadata(resolved)).is_ok_and(|about| about.is_file())
}

/// Resolves and checks the path of a file below a folder. Returns it with the folder.
fn find(folder: &Path, path: &str) -> io::Result<(Dir, PathBuf)> {
    let here = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
    let dir = Dir::open_ambient_dir(here, cap_std::ambient_authority())?;
    // A path to one of the host's files fails without revealing whether the file exists.
    check_names(Path::new(path))?;
    let resolved = resolve_below(&dir, Path::new(path))?;
    check(here, &resolved)?;
    Ok((dir, resolved))
}

/// Resolves the links in a path. If the file itself is not a link, it keeps its name, even if another process replaces
/// the file at this moment.
fn resolve_below(dir: &Dir, path: &Path) -> io::Result<PathBuf> {
    let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else { return dir.canonicalize(path) };
    if dir.symlink_metadata(path)?.is_symlink() {
        return dir.canonicalize(path);
    }
    let here = parent.components().all(|part| part == Component::CurDir);
    Ok(if here { PathBuf::from(name) } else { dir.canonicalize(parent)?.join(name) })
}

/// Resolves the path of a file that may be outside the folder, such as a pack. It follows links.
pub(crate) fn resolve(folder: &Path, path: &Path) -> io::Result<PathBuf> {
    let here = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
    check_names(path)?;
    let (here, file) = (here.canonicalize()?, here.join(path).canonicalize()?);
    let common = here.components().zip(file.components()).take_while(|(one, other)| one == other).count();
    let mut names = file.components();
    let base: PathBuf = names.by_ref().take(common).collect();
    check(&base, names.as_path())?;
    Ok(file)
}

/// Refuses `below`, the path of a file below the folder `base`, if it names one of the host's own files. The path
/// contains no links.
fn check(base: &Path, below: &Path) -> io::Result<()> {
    check_names(below)?;
    let mut folder = base.to_owned();
    for (depth, name) in below.components().enumerate() {
        let name = name.as_os_str();
        let is_allowed = |name: &str| match depth {
            // A flow may be in the same folder as a store.
            0 => !is_store_file(name),
            _ => BESIDE_STORE.contains(&name),
        };
        if folder.join(STORE_FILE).symlink_metadata().is_ok() && !name.to_str().is_some_and(is_allowed) {
            return Err(denied_error("the folder of a store"));
        }
        folder.push(name);
    }
    Ok(())
}

fn check_names(path: &Path) -> io::Result<()> {
    let names = path.components().filter_map(|part| match part {
        Component::Normal(name) => name.to_str(),
        _ => None,
    });
    match names.into_iter().find(|name| is_host_folder(name)) {
        Some(name) => Err(denied_error(&format!("`{name}`"))),
        None => Ok(()),
    }
}

fn denied_error(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::PermissionDenied, format!("{what} belongs to the host, so flows cannot read it"))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

    use std::{fs, io::Read};

    use super::*;

    /// Creates a folder of flows with every kind of file that flows must not read.
    fn place() -> tempfile::TempDir {
        let place = tempfile::tempdir().unwrap();
        for (file, text) in [
            ("prompts/ask.md", "ask"),
            (".flowcell/agents/helper.md", "helper"),
            (".flowcell/flowcell.db", "secret"),
            (".flowcell/secret.key", "secret"),
            (".flowcell/other/x.md", "secret"),
            ("kept/flowcell.db-wal", "secret"),
            ("kept/flowcell.db", "secret"),
            ("kept/x/y.md", "secret"),
            (".tenants/bob/flows/plan.json", "secret"),
            (".tenants/bob/flows/.versions/plan/1.json", "secret"),
            (".versions/plan/1.json", "secret"),
            (".flowcell-tenants/bob/x.csv", "secret"),
        ] {
            let file = place.path().join(file);
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(file, text).unwrap();
        }
        place
    }

    fn read(folder: &Path, path: &str) -> io::Result<String> {
        let mut text = String::new();
        open(folder, path)?.read_to_string(&mut text)?;
        Ok(text)
    }

    const SECRET: [&str; 13] = [
        ".tenants/bob/flows/plan.json",
        "./.tenants/bob/flows/plan.json",
        "prompts/../.tenants/bob/flows/plan.json",
        ".Tenants/bob/flows/plan.json",
        ".tenants/bob/flows/.versions/plan/1.json",
        ".versions/plan/1.json",
        ".flowcell/flowcell.db",
        ".flowcell/secret.key",
        ".flowcell/other/x.md",
        "kept/flowcell.db",
        "kept/flowcell.db-wal",
        "kept/x/y.md",
        ".flowcell-tenants/bob/x.csv",
    ];

    #[test]
    fn files_of_the_host_are_not_read() {
        let place = place();
        assert_eq!(read(place.path(), "prompts/ask.md").unwrap(), "ask");
        assert_eq!(read(place.path(), ".flowcell/agents/helper.md").unwrap(), "helper");
        assert!(is_file(place.path(), "prompts/ask.md") && !is_file(place.path(), "prompts"));
        for path in SECRET {
            assert!(read(place.path(), path).is_err(), "{path} was read");
            assert!(!is_file(place.path(), path), "{path} was found");
            assert!(resolve(place.path(), Path::new(path)).is_err(), "{path} was found");
            let outside = place.path().join("prompts");
            assert!(resolve(&outside, &Path::new("..").join(path)).is_err(), "{path} was found from outside");
        }
        // The error does not reveal whether the tenant exists.
        let told = |path: &str| read(place.path(), path).unwrap_err().to_string();
        assert_eq!(told(".tenants/bob/flows/plan.json"), told(".tenants/nobody/x"));
    }

    #[cfg(unix)]
    #[test]
    fn a_link_is_checked_by_its_target() {
        let place = place();
        let link = |to: &str, name: &str| std::os::unix::fs::symlink(to, place.path().join(name)).unwrap();
        link("prompts", "asks");
        link(".tenants/bob", "friend");
        link("kept", "store");
        link(".tenants/bob/flows/plan.json", "plan.json");
        assert_eq!(read(place.path(), "asks/ask.md").unwrap(), "ask");
        for path in ["friend/flows/plan.json", "store/flowcell.db", "store/x/y.md", "plan.json"] {
            assert!(read(place.path(), path).is_err(), "{path} was read");
            assert!(resolve(place.path(), Path::new(path)).is_err(), "{path} was found");
        }
    }

    #[test]
    fn a_tenant_reads_the_files_beside_its_own_flows() {
        let place = place();
        let own = place.path().join(".tenants/bob/flows");
        fs::write(own.join("ask.md"), "ask").unwrap();
        assert_eq!(read(&own, "ask.md").unwrap(), "ask");
        assert!(read(&own, ".versions/plan/1.json").is_err());
    }

    #[test]
    fn a_flow_beside_a_store_reads_its_own_files() {
        let place = place();
        let folder = place.path().join("kept");
        fs::write(folder.join("ask.md"), "ask").unwrap();
        assert_eq!(read(&folder, "ask.md").unwrap(), "ask");
        for path in ["flowcell.db", "flowcell.db-wal", "./flowcell.db"] {
            assert!(read(&folder, path).is_err(), "{path} was read");
        }
    }
}
