//! Finds the flows and agents in a listing of files. If several files have the same name, decides which of them is
//! used. The caller reads the folders.

use std::{collections::BTreeMap, sync::Arc};

use parking_lot::Mutex;

use crate::{
    agentic::name::{file_stem, is_kebab_case, rename_help},
    diagnostic::{Diagnostic, Location, Severity},
};

/// The level of a folder: it belongs to a project, or to the settings of the user. Files of the project take
/// precedence.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// The project's folder.
    Project,
    /// The user's folder, for all projects.
    Global,
}

/// A folder that is searched for flows or agents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Folder {
    /// Level of the folder.
    pub level: Level,
    /// Path relative to the project's root, or to the user's home folder.
    pub path: &'static str,
}

/// The kind of files to find.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileKind {
    /// Flows: `*.yaml`, `*.yml`, `*.json`.
    Flows,
    /// Agents: `*.md`.
    Agents,
}

const fn project(path: &'static str) -> Folder {
    Folder { level: Level::Project, path }
}

const fn global(path: &'static str) -> Folder {
    Folder { level: Level::Global, path }
}

/// The folders of flows, in order of precedence.
pub const FLOW_FOLDERS: [Folder; 6] = [
    project(".flowcell/flows"),
    project(".opencode/flows"),
    project(".agents/flows"),
    global(".config/flowcell/flows"),
    global(".config/opencode/flows"),
    global(".agents/flows"),
];

/// The folders of agents, in order of precedence.
pub const AGENT_FOLDERS: [Folder; 6] = [
    project(".flowcell/agents"),
    project(".opencode/agents"),
    project(".agents/agents"),
    global(".config/flowcell/agents"),
    global(".config/opencode/agents"),
    global(".agents/agents"),
];

/// A file in one of the searched folders.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListedFile {
    /// Level of the file's folder.
    pub level: Level,
    /// Path as messages show it.
    pub path: String,
}

/// A discovered flow or agent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DiscoveredFile {
    /// The file's name without its extension.
    pub id: String,
    /// Level of the file's folder.
    pub level: Level,
    /// Path as messages show it.
    pub path: String,
    /// Paths of the files that are ignored in favour of this file: they have the same id and a lower precedence.
    pub hides: Vec<String>,
}

/// The discovered files and the diagnostics about them.
#[derive(Clone, Debug, Default)]
pub struct Discovery {
    /// The files by id.
    pub entries: BTreeMap<String, DiscoveredFile>,
    /// Errors about files with invalid names, and warnings about files that another file of the same level and name
    /// hides.
    pub diagnostics: Vec<Diagnostic>,
}

/// Finds flows or agents in a listing of files. The listing must follow the order of the folders in [`FLOW_FOLDERS`] or
/// [`AGENT_FOLDERS`]. If several files have the same id, a file of the project wins over a file of the user. Within one
/// level, the earlier file in the listing wins.
pub fn discover(kind: FileKind, listing: &[ListedFile]) -> Discovery {
    let mut found = Discovery::default();
    let mut listing: Vec<_> = listing.iter().filter(|file| has_extension(kind, &file.path)).collect();
    listing.sort_by_key(|file| file.level);
    for ListedFile { level, path } in listing {
        let id = file_stem(path);
        if !is_kebab_case(id) {
            found.diagnostics.push(bad_name_error(path, id));
            continue;
        }
        match found.entries.get_mut(id) {
            None => {
                let entry = DiscoveredFile { id: id.to_owned(), level: *level, path: path.clone(), hides: Vec::new() };
                found.entries.insert(id.to_owned(), entry);
            }
            Some(entry) => {
                if entry.level == *level {
                    found.diagnostics.push(hidden_file_warning(path, entry));
                }
                entry.hides.push(path.clone());
            }
        }
    }
    found
}

/// Returns true if the file has an extension of this kind; false for hidden files and test case files (`*.test.yaml`).
fn has_extension(kind: FileKind, path: &str) -> bool {
    let endings: &[&str] = match kind {
        FileKind::Flows => &["yaml", "yml", "json"],
        FileKind::Agents => &["md"],
    };
    let file = path.rsplit(['/', '\\']).next().unwrap_or(path);
    let Some((stem, ending)) = file.rsplit_once('.') else { return false };
    endings.contains(&ending) && !stem.is_empty() && !stem.starts_with('.') && !stem.ends_with(".test")
}

fn start_of(path: &str) -> Location {
    Location { file: path.to_owned(), line: 1, column: 1, len: 1 }
}

fn bad_name_error(path: &str, id: &str) -> Diagnostic {
    let message = format!("`{id}` is not a kebab-case name, so the file is ignored");
    Diagnostic::error("bad_file_name", "", start_of(path), &message, Some(&rename_help(path)))
}

fn hidden_file_warning(path: &str, by: &DiscoveredFile) -> Diagnostic {
    let message = format!("`{}` hides this file, which has the same name", by.path);
    let mut diagnostic = Diagnostic::error("hidden_file", "", start_of(path), &message, Some("rename one of them"));
    diagnostic.severity = Severity::Warning;
    diagnostic
}

/// Caches a listing of flows or agents. The first lookup lists the folders.
pub struct DiscoveryCache<L> {
    kind: FileKind,
    lister: L,
    known: Mutex<Option<Arc<Discovery>>>,
}

impl<L: Fn() -> Vec<ListedFile>> DiscoveryCache<L> {
    /// Creates an empty cache. `lister` returns the files in the order of [`FLOW_FOLDERS`] or [`AGENT_FOLDERS`].
    pub fn new(kind: FileKind, lister: L) -> DiscoveryCache<L> {
        DiscoveryCache { kind, lister, known: Mutex::new(None) }
    }

    /// Returns the file with this id; `None` if there is no such file.
    pub fn get(&self, id: &str) -> Option<DiscoveredFile> {
        self.list().entries.get(id).cloned()
    }

    /// Returns all entries and diagnostics.
    pub fn list(&self) -> Arc<Discovery> {
        let mut known = self.known.lock();
        known.get_or_insert_with(|| Arc::new(discover(self.kind, &(self.lister)()))).clone()
    }

    /// Clears the cache, so that the next lookup lists the folders again.
    pub fn invalidate(&self) {
        *self.known.lock() = None;
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

    use std::cell::Cell;

    use super::*;

    fn listed(level: Level, path: &str) -> ListedFile {
        ListedFile { level, path: path.to_owned() }
    }

    #[test]
    fn project_files_win_over_global_ones() {
        use Level::{Global, Project};
        let found = discover(
            FileKind::Flows,
            &[
                listed(Global, "home/a.yaml"),
                listed(Project, ".flowcell/flows/a.yaml"),
                listed(Project, ".agents/flows/a.json"),
                listed(Project, ".agents/flows/My_Flow.yml"),
                listed(Project, ".agents/flows/a.test.yaml"),
                listed(Project, ".agents/flows/.hidden.yaml"),
                listed(Project, ".agents/flows/README.md"),
                listed(Global, "home/b.yaml"),
            ],
        );
        assert_eq!(found.entries.keys().collect::<Vec<_>>(), ["a", "b"]);
        let entry = &found.entries["a"];
        assert_eq!((entry.level, &*entry.path), (Project, ".flowcell/flows/a.yaml"));
        assert_eq!(entry.hides, [".agents/flows/a.json", "home/a.yaml"]);
        let codes: Vec<_> =
            found.diagnostics.iter().map(|diagnostic| (diagnostic.code, &*diagnostic.location.file)).collect();
        assert_eq!(codes, [("hidden_file", ".agents/flows/a.json"), ("bad_file_name", ".agents/flows/My_Flow.yml")]);
        assert!(found.diagnostics[1].help.as_ref().unwrap().contains("`my-flow`"));
    }

    #[test]
    fn folders_of_a_project_come_first() {
        for folders in [FLOW_FOLDERS, AGENT_FOLDERS] {
            assert!(folders.is_sorted_by_key(|folder| folder.level));
        }
    }

    #[test]
    fn a_listing_is_cached_until_invalidated() {
        let times = Cell::new(0);
        let registry = DiscoveryCache::new(FileKind::Agents, || {
            times.set(times.get() + 1);
            vec![listed(Level::Global, "agents/one.md")]
        });
        assert!(registry.get("one").is_some() && registry.get("two").is_none());
        assert_eq!((registry.list().entries.len(), times.get()), (1, 1));
        registry.invalidate();
        assert!(registry.get("one").is_some());
        assert_eq!(times.get(), 2);
    }
}
