//! What a flow may read: files in the folder that it lies in and below, and the flows beside it.

pub(crate) mod guard;

use std::{
    io::{self, Read},
    path::{Path, PathBuf},
};

use cap_std::{ambient_authority, fs::Dir};
use flowcell_contract::{Tenant, places::TENANTS_FOLDER};
use flowcell_flow::{CheckContext, CheckMode, Source};

use crate::host::agentic;

/// A flow or a prompt has no business being larger; the checker refuses a flow of this size with a place.
const MAX_BYTES: u64 = 4 * 1024 * 1024 + 1;
/// Most flows are smaller, and are read at once.
const USUAL_BYTES: usize = 8 * 1024;
/// How the files of flows end, in the order in which they are looked for.
const ENDINGS: [&str; 4] = ["yaml", "yml", "json", "flow.js"];

/// A folder as a capability: no path leads out of it, neither by `..` nor by a link.
pub struct Folder {
    /// As messages show it; empty for the current folder.
    path: PathBuf,
    /// The folder of the project, below which agents are found; empty for the current folder.
    project: PathBuf,
    /// There is no such folder, and nothing in it.
    nowhere: bool,
    /// It is a tenant's library.
    library: bool,
    /// The rules for flows in it.
    rules: CheckMode,
}

impl Folder {
    /// The folder that a file lies in.
    pub(crate) fn of(file: &Path) -> Folder {
        Folder::at(file.parent().map(Path::to_path_buf).unwrap_or_default(), PathBuf::new(), false)
    }

    /// A tenant's library.
    pub(crate) fn library(path: PathBuf) -> Folder {
        Folder::at(path, PathBuf::new(), true)
    }

    /// A folder of a project.
    pub(crate) fn at(path: PathBuf, project: PathBuf, library: bool) -> Folder {
        Folder { path, project, nowhere: false, library, rules: CheckMode::New }
    }

    /// The folder of a flow that lies in none, such as one that came over the network: it reads nothing of this machine.
    pub fn nowhere() -> Folder {
        Folder { path: PathBuf::new(), project: PathBuf::new(), nowhere: true, library: false, rules: CheckMode::New }
    }

    /// The folder of the project; empty for the current folder.
    pub(crate) fn project(&self) -> &Path {
        &self.project
    }

    /// Whether it is a tenant's library.
    pub(crate) fn is_library(&self) -> bool {
        self.library
    }

    /// Sets the rules for flows in the folder.
    pub(crate) fn with_mode(self, rules: CheckMode) -> Folder {
        Folder { rules, ..self }
    }

    /// Where it is; none: there is no such folder.
    pub(crate) fn path(&self) -> Option<PathBuf> {
        (!self.nowhere).then(|| self.path.clone())
    }

    /// Whether there is no such folder.
    pub(crate) fn is_nowhere(&self) -> bool {
        self.nowhere
    }

    /// The file of a pack that is named relative to the folder, which may lie outside of it.
    pub(crate) fn pack(&self, path: &str) -> io::Result<PathBuf> {
        guard::resolve(&self.path, Path::new(path))
    }

    /// The path of something that is named relative to the folder.
    pub(crate) fn join(&self, path: &str) -> PathBuf {
        self.path.join(path.strip_prefix("./").unwrap_or(path))
    }

    /// The names of the flows in the folder, in order.
    pub(crate) fn flows(&self) -> Vec<String> {
        if self.nowhere {
            return Vec::new();
        }
        let here = if self.path.as_os_str().is_empty() { Path::new(".") } else { &self.path };
        let Ok(entries) = Dir::open_ambient_dir(here, ambient_authority()).and_then(|dir| dir.entries()) else {
            return Vec::new();
        };
        let files = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
        let name = |file: String| {
            let (name, ending) = file.split_once('.')?;
            (ENDINGS.contains(&ending) && is_flow_name(name)).then(|| name.to_owned())
        };
        files.filter_map(name).collect::<std::collections::BTreeSet<_>>().into_iter().collect()
    }

    /// Says why the file of a flow is not read though it is there, such as a link that leads elsewhere.
    pub(crate) fn refused(&self, name: &str) -> Option<String> {
        ENDINGS.iter().filter(|_| is_flow_name(name)).find_map(|ending| {
            let file = format!("{name}.{ending}");
            let error = self.read_within(&file).err().filter(|error| error.kind() != io::ErrorKind::NotFound)?;
            Some(format!("`{file}` beside the calling flow is not read: {error}"))
        })
    }

    fn read_within(&self, path: &str) -> io::Result<String> {
        if self.nowhere {
            return Err(io::Error::new(io::ErrorKind::NotFound, "this flow is no file, and has no files beside it"));
        }
        limited(guard::open(&self.path, path)?)
    }
}

/// Reads a flow's file.
pub(crate) fn read_source(path: &Path) -> io::Result<Source> {
    let text = limited(std::fs::File::open(path)?)?;
    Ok(Source { name: path.display().to_string(), text })
}

/// Reads a text, and of one that is too large a little more than it may have.
pub(crate) fn limited(file: impl Read) -> io::Result<String> {
    let mut text = String::with_capacity(USUAL_BYTES);
    file.take(MAX_BYTES).read_to_string(&mut text)?;
    Ok(text)
}

impl CheckContext for Folder {
    fn mode(&self) -> CheckMode {
        self.rules
    }

    fn read(&self, path: &str) -> Result<String, String> {
        let text = self.read_within(path).map_err(|error| match error.kind() {
            io::ErrorKind::PermissionDenied => format!("{error} (a flow reads only files in its folder or below)"),
            _ => error.to_string(),
        })?;
        if text.len() as u64 >= MAX_BYTES { Err("it is larger than 4 MiB".into()) } else { Ok(text) }
    }

    fn flow(&self, name: &str) -> Option<Source> {
        if !is_flow_name(name) {
            return None;
        }
        ENDINGS.iter().find_map(|ending| {
            let file = format!("{name}.{ending}");
            let text = self.read_within(&file).ok()?;
            Some(Source { name: self.join(&file).display().to_string(), text })
        })
    }

    fn has_flow(&self, name: &str) -> bool {
        self.nowhere || self.flow(name).is_some()
    }

    fn agent(&self, name: &str) -> Option<Source> {
        if self.nowhere {
            return None;
        }
        read_source(&agentic::agent_file(&self.project, name)?).ok()
    }

    fn agents(&self) -> Option<Vec<String>> {
        if self.nowhere {
            return Some(Vec::new());
        }
        Some(agentic::agents_in(&self.project).list().entries.keys().cloned().collect())
    }
}

/// Returns the folder of a tenant's library below that of a server: that of `local` is the folder itself, those of others are in
/// `.tenants` below it.
pub(crate) fn library_of(folder: &Path, tenant: &Tenant) -> PathBuf {
    match *tenant == Tenant::local() {
        true => folder.to_owned(),
        false => folder.join(TENANTS_FOLDER).join(tenant.as_str()).join("flows"),
    }
}

/// A name that is a file's name and nothing else.
pub fn is_flow_name(name: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-');
    (1..=64).contains(&name.len()) && name.bytes().all(plain)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

    use super::*;

    #[test]
    fn nothing_outside_is_read() {
        let outer = tempfile::tempdir().unwrap();
        std::fs::write(outer.path().join("secret.md"), "secret").unwrap();
        let inner = outer.path().join("flows");
        std::fs::create_dir_all(inner.join("prompts")).unwrap();
        std::fs::write(inner.join("prompts/ask.md"), "ask").unwrap();
        #[cfg(unix)]
        std::os::unix::fs::symlink("../secret.md", inner.join("link.md")).unwrap();
        let folder = Folder::of(&inner.join("a.yaml"));
        assert_eq!(folder.read("./prompts/ask.md").as_deref(), Ok("ask"));
        for path in ["../secret.md", "link.md", "prompts/../../secret.md", "/etc/hostname"] {
            assert!(folder.read(path).is_err(), "{path} was read");
        }
    }

    #[test]
    fn nowhere_has_nothing() {
        let nowhere = Folder::nowhere();
        assert!(nowhere.read("./Cargo.toml").unwrap_err().contains("no files beside it"));
        assert!(nowhere.read("Cargo.toml").is_err() && nowhere.flow("child").is_none());
        assert!(nowhere.flows().is_empty() && nowhere.agents().unwrap().is_empty() && nowhere.agent("a").is_none());
    }

    #[test]
    fn a_flow_is_found_by_its_plain_name() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("child.yaml"), "flow: {}").unwrap();
        let folder = Folder::of(&dir.path().join("parent.yaml"));
        assert_eq!(folder.flow("child").map(|source| source.text).as_deref(), Some("flow: {}"));
        for name in ["", "other", "./child", "../child", "child.yaml"] {
            assert!(folder.flow(name).is_none(), "{name} was found");
        }
    }
}
