//! The files that a flow may read: the files in and below the flow's own folder, and the flows in that folder. A flow
//! from the network reads no files, and calls the flows of its tenant's library.

pub(crate) mod guard;
mod listing;

use std::{
    collections::{BTreeMap, BTreeSet},
    io::{self, Read},
    path::{Path, PathBuf},
    sync::Arc,
};

use cap_std::{ambient_authority, fs::Dir};
use flowcell_contract::{Tenant, host_files::TENANTS_FOLDER};
pub use flowcell_flow::is_flow_name;
use flowcell_flow::{CheckContext, CheckMode, Source};
pub use listing::Listing;

use crate::{
    host::agentic,
    posted::{PostedFlows, PostedText, normal_files},
};

/// Maximum number of bytes that are read of a file: one more than a flow may have, so that the checker sees and
/// reports a flow that is too large.
const MAX_BYTES: u64 = 4 * 1024 * 1024 + 1;
/// Maximum number of entries of a folder that are read to suggest the name of a flow.
const MAX_NAMED_ENTRIES: usize = 100_000;
/// The initial size in bytes of the buffer for reading a flow. Most flows fit into it.
const USUAL_BYTES: usize = 8 * 1024;
/// The endings of flow files, in the order of the lookup.
pub(crate) const FLOW_ENDINGS: [&str; 4] = ["yaml", "yml", "json", "flow.js"];

/// The folder of a flow. No path of a file leads out of the folder, neither by `..` nor by a link.
pub struct Folder {
    /// The path as messages show it. Empty for the current folder.
    path: PathBuf,
    /// The folder of the project, where agents are found. Empty for the current folder.
    project: PathBuf,
    /// True for a flow that is in no file, such as one from the network. Such a flow may read no files.
    nowhere: bool,
    /// For a flow without a folder: the library whose flows it may name. `None`: it may name none.
    beside: Option<Box<Folder>>,
    /// True if the folder is a tenant's library.
    library: bool,
    /// The posted flows of the library's tenant. `None` if this is no library, or if the store is not shared.
    posted: Option<PostedFlows>,
    /// For a posted flow: the files beside it, instead of those of the folder.
    own: Option<Arc<PostedText>>,
    /// The check mode of flows in this folder.
    rules: CheckMode,
}

impl Folder {
    /// Returns the folder of a file.
    pub(crate) fn of(file: &Path) -> Folder {
        Folder::in_project(file.parent().map(Path::to_path_buf).unwrap_or_default(), PathBuf::new(), false)
    }

    /// Returns the folder of a tenant's library, for the flows in it.
    pub(crate) fn of_library(path: PathBuf) -> Folder {
        Folder::in_project(path, PathBuf::new(), true)
    }

    /// Returns the folder `path` of a project. `library` is true if `path` is a tenant's library.
    pub(crate) fn in_project(path: PathBuf, project: PathBuf, library: bool) -> Folder {
        let (beside, posted, own) = (None, None, None);
        Folder { path, project, nowhere: false, beside, library, posted, own, rules: CheckMode::New }
    }

    /// Returns the folder for a flow that is in no file, such as one from the network. The flow reads no files of this
    /// machine.
    pub fn nowhere() -> Folder {
        Folder { nowhere: true, ..Folder::in_project(PathBuf::new(), PathBuf::new(), false) }
    }

    /// Returns the folder of a flow from the network, for a tenant with this library. The flow reads no files. It may
    /// call the flows of the library, which read the files beside them.
    pub fn nowhere_beside(library: PathBuf) -> Folder {
        Folder::of_library(library).for_request()
    }

    /// Returns the folder of a flow from the network that may call the flows of this library.
    pub(crate) fn for_request(self) -> Folder {
        Folder { beside: Some(Box::new(self.with_mode(CheckMode::Stored))), ..Folder::nowhere() }
    }

    /// Adds the posted flows of the tenant to a library. The flows of the folder come first.
    pub(crate) fn with_posted(self, posted: Option<PostedFlows>) -> Folder {
        match self.beside {
            Some(library) => Folder { beside: Some(Box::new(library.with_posted(posted))), ..self },
            None => Folder { posted, ..self },
        }
    }

    /// Returns the folder for a posted flow, which reads only the files that were posted with it.
    pub(crate) fn with_files_of(self, flow: Arc<PostedText>) -> Folder {
        Folder { own: Some(flow), ..self }
    }

    /// Returns the folder for a flow from the network that reads only the files that came with it. The error says which
    /// path is refused.
    pub fn with_files(self, files: BTreeMap<String, String>) -> Result<Folder, String> {
        if files.is_empty() {
            return Ok(self);
        }
        let own = PostedText { text: String::new(), files: normal_files(files)? };
        Ok(self.with_files_of(Arc::new(own)))
    }

    /// Returns the folder of the project. Empty for the current folder.
    pub(crate) fn project(&self) -> &Path {
        &self.project
    }

    /// Returns whether this is a tenant's library.
    pub(crate) fn is_library(&self) -> bool {
        self.library
    }

    /// Sets the check mode of flows in the folder.
    pub(crate) fn with_mode(self, rules: CheckMode) -> Folder {
        Folder { rules, ..self }
    }

    /// Returns the path, or `None` for a flow that is in no file.
    pub(crate) fn path(&self) -> Option<PathBuf> {
        (!self.nowhere).then(|| self.path.clone())
    }

    /// Returns the library whose flows a flow without a folder may call.
    pub(crate) fn beside(&self) -> Option<&Folder> {
        self.beside.as_deref()
    }

    /// Returns whether names of flows are looked up in a tenant's library.
    pub(crate) fn has_library(&self) -> bool {
        self.library || self.beside.is_some()
    }

    /// Returns whether the flow has no folder.
    pub(crate) fn is_nowhere(&self) -> bool {
        self.nowhere
    }

    /// Resolves the path of a pack's file, which is relative to the folder. The file may be outside the folder.
    pub(crate) fn resolve_pack(&self, path: &str) -> io::Result<PathBuf> {
        guard::resolve(&self.path, Path::new(path))
    }

    /// Joins a relative path to the folder.
    pub(crate) fn join(&self, path: &str) -> PathBuf {
        self.path.join(path.strip_prefix("./").unwrap_or(path))
    }

    /// Returns the sorted names of the flows that a flow may call: those in the folder, or for a flow that is in no
    /// file, those of its library.
    pub(crate) fn flows(&self) -> Vec<String> {
        self.some_flows(usize::MAX, usize::MAX)
    }

    /// Returns at most `most` of the names that [`Folder::flows`] returns. Reads at most `entries` entries of the folder.
    fn some_flows(&self, most: usize, entries: usize) -> Vec<String> {
        if let Some(library) = &self.beside {
            return library.some_flows(most, entries);
        }
        if self.nowhere {
            return Vec::new();
        }
        let here = if self.path.as_os_str().is_empty() { Path::new(".") } else { &self.path };
        let found = Dir::open_ambient_dir(here, ambient_authority()).and_then(|dir| dir.entries());
        let found = found.into_iter().flatten().take(entries);
        let files = found.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
        let name = |file: String| {
            let (name, ending) = file.split_once('.')?;
            (FLOW_ENDINGS.contains(&ending) && is_flow_name(name)).then(|| name.to_owned())
        };
        let posted = self.posted.iter().flat_map(|posted| match posted.flows() {
            Ok(flows) => flows.keys().cloned().collect(),
            Err(error) => {
                tracing::warn!("cannot list the posted flows: {error}");
                Vec::new()
            }
        });
        files.filter_map(name).chain(posted).take(most).collect::<BTreeSet<_>>().into_iter().collect()
    }

    /// Returns the files in and below `below`, a folder in this one that is empty for this one itself. None for a flow
    /// that is in no file, and outside of this folder.
    pub(crate) fn files(&self, below: &str) -> Listing {
        if self.nowhere { Listing::default() } else { listing::list(&self.path, below) }
    }

    /// Returns the path of a file that the flow may read; `None` if there is no such file.
    pub(crate) fn find_file(&self, path: &str) -> Option<PathBuf> {
        (!self.nowhere && guard::is_file(&self.path, path)).then(|| self.join(path))
    }

    /// Finds a flow by its name, first in the folder and then among the posted flows. Also returns the folder of this
    /// flow if it is another one: that of a posted flow, or the library of a flow that is in no file.
    pub(crate) fn find(&self, name: &str) -> Option<(Source, Option<Folder>)> {
        if let Some(library) = &self.beside {
            let (source, folder) = library.find(name)?;
            return Some((source, folder.or_else(|| Some(library.around(None)))));
        }
        if !is_flow_name(name) || self.nowhere {
            return None;
        }
        let in_folder = FLOW_ENDINGS.iter().find_map(|ending| {
            let file = format!("{name}.{ending}");
            let text = self.read_below(&file).ok()?;
            Some(Source { name: self.join(&file).display().to_string(), text })
        });
        if let Some(source) = in_folder {
            return Some((source, self.own.is_some().then(|| self.around(None))));
        }
        let posted = self.posted.as_ref()?;
        let found = posted.newest(name).unwrap_or_else(|error| {
            tracing::warn!("cannot read the posted flow `{name}`: {error}");
            None
        });
        let (version, text) = found?;
        let source = Source { name: version.file, text: text.text.clone() };
        Some((source, Some(self.around(Some(text)))))
    }

    /// Returns whether the folder has the file of a flow. Does not read it.
    fn has_file_of(&self, name: &str) -> bool {
        FLOW_ENDINGS.iter().any(|ending| guard::is_file(&self.path, &format!("{name}.{ending}")))
    }

    fn has_posted(&self, name: &str) -> bool {
        let Some(posted) = &self.posted else { return false };
        match posted.head(name) {
            Ok(head) => head.is_some_and(|head| head.newest().is_some()),
            Err(error) => {
                tracing::warn!("cannot look for the posted flow `{name}`: {error}");
                false
            }
        }
    }

    /// Finds a flow as [`Folder::find`] does, with the folder in which it is checked by the rules for stored flows.
    pub(crate) fn find_called(&self, name: &str) -> Option<(Source, Folder)> {
        let (source, folder) = self.find(name)?;
        Some((source, folder.unwrap_or_else(|| self.around(None)).with_mode(CheckMode::Stored)))
    }

    /// Returns the folder of another flow of the same library.
    fn around(&self, own: Option<Arc<PostedText>>) -> Folder {
        let folder = Folder::in_project(self.path.clone(), self.project.clone(), self.library);
        Folder { own, posted: self.posted.clone(), rules: self.rules, ..folder }
    }

    /// If the file of a flow exists and cannot be read, explains why, such as a link that leads out of the folder.
    /// Returns `None` if there is no such file, or if it can be read.
    pub(crate) fn explain_refusal(&self, name: &str) -> Option<String> {
        if let Some(library) = &self.beside {
            return library.explain_refusal(name);
        }
        FLOW_ENDINGS.iter().filter(|_| is_flow_name(name)).find_map(|ending| {
            let file = format!("{name}.{ending}");
            let error = self.read_below(&file).err().filter(|error| error.kind() != io::ErrorKind::NotFound)?;
            Some(format!("cannot read `{file}` next to the calling flow: {error}"))
        })
    }

    /// Reads a file that the flow names.
    fn read_within(&self, path: &str) -> io::Result<String> {
        match &self.own {
            Some(own) => own.read(path).cloned().ok_or_else(|| {
                let why =
                    "the flow was posted without this file: post it with its `files`, or with `flowcell flows push`";
                io::Error::new(io::ErrorKind::NotFound, why)
            }),
            None => self.read_below(path),
        }
    }

    fn read_below(&self, path: &str) -> io::Result<String> {
        if self.nowhere {
            return Err(io::Error::new(
                io::ErrorKind::NotFound,
                "this flow is not in a file, so it cannot name files next to it",
            ));
        }
        read_limited(guard::open(&self.path, path)?)
    }
}

/// Reads a flow's file.
pub(crate) fn read_source(path: &Path) -> io::Result<Source> {
    let text = read_limited(std::fs::File::open(path)?)?;
    Ok(Source { name: path.display().to_string(), text })
}

/// Reads a text. If it is too large, reads only one byte more than the limit.
pub(crate) fn read_limited(file: impl Read) -> io::Result<String> {
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
            io::ErrorKind::PermissionDenied => format!("{error} (a flow may read only files in its folder and below)"),
            _ => error.to_string(),
        })?;
        if text.len() as u64 >= MAX_BYTES { Err("it is larger than 4 MiB".into()) } else { Ok(text) }
    }

    fn flow(&self, name: &str) -> Option<Source> {
        self.find(name).map(|(source, _)| source)
    }

    fn has_flow(&self, name: &str) -> bool {
        match &self.beside {
            Some(library) => library.has_flow(name),
            None => self.nowhere || is_flow_name(name) && (self.has_file_of(name) || self.has_posted(name)),
        }
    }

    fn advise_flow(&self, name: &str) -> String {
        match (self.has_library(), self.nowhere) {
            (true, _) => format!("store the flow `{name}` first, or fix its name"),
            (false, true) => "this flow sees no other flows: over HTTP that needs the scope `flow:read`".to_owned(),
            (false, false) => format!("add a file `{name}.yaml` beside this one"),
        }
    }

    fn flow_names(&self, most: usize) -> Vec<String> {
        self.some_flows(most, MAX_NAMED_ENTRIES)
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

/// Returns the folder of a tenant's library in a server's folder. For `local` it is the server's folder itself. For
/// other tenants it is below `.tenants`.
pub(crate) fn library_of(folder: &Path, tenant: &Tenant) -> PathBuf {
    match *tenant == Tenant::local() {
        true => folder.to_owned(),
        false => folder.join(TENANTS_FOLDER).join(tenant.as_str()).join("flows"),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

    use flowcell_runtime::memory::MemoryDocuments;

    use super::*;
    use crate::posted::{Expects, NewVersion, cache::PostedCache};

    #[test]
    fn no_file_outside_the_folder_is_read() {
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
    fn a_flow_without_a_folder_reads_no_files() {
        let nowhere = Folder::nowhere();
        assert!(nowhere.read("./Cargo.toml").unwrap_err().contains("cannot name files next to it"));
        assert!(nowhere.read("Cargo.toml").is_err() && nowhere.flow("child").is_none());
        assert!(nowhere.has_flow("unknown"), "its library is unknown");
        assert!(nowhere.flows().is_empty() && nowhere.agents().unwrap().is_empty() && nowhere.agent("a").is_none());
    }

    #[test]
    fn a_flow_from_the_network_calls_flows_of_a_library_and_reads_no_files() {
        let outer = tempfile::tempdir().unwrap();
        std::fs::write(outer.path().join("outside.yaml"), "flow: {}").unwrap();
        let library = outer.path().join("flows");
        std::fs::create_dir(&library).unwrap();
        std::fs::write(library.join("known.yaml"), "flow: {}").unwrap();
        std::fs::write(library.join("ask.md"), "ask").unwrap();
        let folder = Folder::nowhere_beside(library.clone());
        assert!(folder.has_flow("known") && !folder.has_flow("other"));
        let (source, own) = folder.find_called("known").unwrap();
        assert_eq!((source.text.as_str(), own.read("ask.md").as_deref()), ("flow: {}", Ok("ask")));
        assert!(own.is_library() && own.mode() == CheckMode::Stored && folder.mode() == CheckMode::New);
        let whole = library.join("known").display().to_string();
        for name in ["../outside", "./known", "known.yaml", "", "kno\0wn", "\u{1b}[31mknown", &whole] {
            assert!(folder.flow(name).is_none() && !folder.has_flow(name), "{name:?} was found");
        }
        for path in ["ask.md", "./ask.md", "known.yaml", "../outside.yaml"] {
            assert!(folder.read(path).is_err() && folder.find_file(path).is_none(), "{path} was read");
        }
        assert_eq!((folder.flows(), folder.path()), (vec!["known".to_owned()], None));
        assert_eq!((folder.flow_names(1), folder.flow_names(0)), (vec!["known".to_owned()], Vec::new()));
        assert!(Folder::nowhere().flow_names(9).is_empty());
        assert!(folder.files("").paths.is_empty());
    }

    #[test]
    fn a_flow_from_the_network_calls_posted_flows_of_its_tenant_with_their_files() {
        let (store, library) = (Arc::new(MemoryDocuments::default()), tempfile::tempdir().unwrap());
        let posted = |tenant: &str| PostedFlows::new(Arc::new(PostedCache::new(store.clone())), Tenant::from(tenant));
        let files = [("ask.md".to_owned(), "ask".to_owned())].into();
        let text = PostedText { text: "flow: {}".to_owned(), files };
        let version = NewVersion { file: "known.yaml".into(), text, description: None, created: 7, by: "token".into() };
        posted("a").post("known", &version, Expects::Any, 10).unwrap();
        std::fs::write(library.path().join("other.md"), "other").unwrap();
        let beside = |tenant| Folder::nowhere_beside(library.path().to_owned()).with_posted(Some(posted(tenant)));
        let folder = beside("a");
        let (_, own) = folder.find_called("known").unwrap();
        assert_eq!(own.read("ask.md").as_deref(), Ok("ask"));
        assert!(own.read("other.md").is_err() && folder.read("ask.md").is_err());
        assert_eq!(folder.flows(), ["known"]);
        let foreign = beside("b");
        assert!(foreign.flow("known").is_none() && !foreign.has_flow("known") && foreign.flows().is_empty());
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
