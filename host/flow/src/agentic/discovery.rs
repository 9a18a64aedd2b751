//! Which files are flows and agents, and which of them win: rules over a listing that somebody else has read.

use std::{collections::BTreeMap, sync::Arc};

use parking_lot::Mutex;

use crate::{
    agentic::name::{is_kebab_case, of_file, rename},
    diagnostic::{Diagnostic, Place, Severity},
};

/// How near to the user's work a folder is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// The project's own, which wins.
    Project,
    /// The user's, for every project.
    Global,
}

/// A folder in which flows or agents are looked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Folder {
    /// Where it is.
    pub level: Level,
    /// Its path: from the project's root, or from the user's home.
    pub path: &'static str,
}

/// What files are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
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

/// The folders of flows; an earlier one wins.
pub const FLOW_FOLDERS: [Folder; 6] = [
    project(".flowcell/flows"),
    project(".opencode/flows"),
    project(".agents/flows"),
    global(".config/flowcell/flows"),
    global(".config/opencode/flows"),
    global(".agents/flows"),
];

/// The folders of agents; an earlier one wins.
pub const AGENT_FOLDERS: [Folder; 6] = [
    project(".flowcell/agents"),
    project(".opencode/agents"),
    project(".agents/agents"),
    global(".config/flowcell/agents"),
    global(".config/opencode/agents"),
    global(".agents/agents"),
];

/// A file in one of the folders.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listed {
    /// Where its folder is.
    pub level: Level,
    /// Its path, as messages show it.
    pub path: String,
}

/// A flow or an agent that was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The file's name without its ending.
    pub id: String,
    /// Where it was found.
    pub level: Level,
    /// Its path.
    pub path: String,
    /// Files of the same name that it wins over.
    pub hides: Vec<String>,
}

/// What a listing holds.
#[derive(Clone, Debug, Default)]
pub struct Discovery {
    /// By id.
    pub entries: BTreeMap<String, Entry>,
    /// Files whose names are no names, and files of one level that hide each other.
    pub diagnostics: Vec<Diagnostic>,
}

/// Finds flows or agents in a listing, which is in the order of the folders. Project wins over global, then the first.
pub fn discover(kind: Kind, listing: &[Listed]) -> Discovery {
    let mut found = Discovery::default();
    let mut listing: Vec<_> = listing.iter().filter(|file| is_meant(kind, &file.path)).collect();
    listing.sort_by_key(|file| file.level);
    for Listed { level, path } in listing {
        let id = of_file(path);
        if !is_kebab_case(id) {
            found.diagnostics.push(bad_name(path, id));
            continue;
        }
        match found.entries.get_mut(id) {
            None => {
                let entry = Entry { id: id.to_owned(), level: *level, path: path.clone(), hides: Vec::new() };
                found.entries.insert(id.to_owned(), entry);
            }
            Some(entry) => {
                if entry.level == *level {
                    found.diagnostics.push(hidden(path, entry));
                }
                entry.hides.push(path.clone());
            }
        }
    }
    found
}

/// Whether a file is looked at. The cases beside a flow are none of it.
fn is_meant(kind: Kind, path: &str) -> bool {
    let endings: &[&str] = match kind {
        Kind::Flows => &["yaml", "yml", "json"],
        Kind::Agents => &["md"],
    };
    let file = path.rsplit(['/', '\\']).next().unwrap_or(path);
    let Some((stem, ending)) = file.rsplit_once('.') else { return false };
    endings.contains(&ending) && !stem.is_empty() && !stem.starts_with('.') && !stem.ends_with(".test")
}

fn start_of(path: &str) -> Place {
    Place { file: path.to_owned(), line: 1, column: 1, len: 1 }
}

fn bad_name(path: &str, id: &str) -> Diagnostic {
    let message = format!("`{id}` is no name in kebab-case, so the file is not found by it");
    Diagnostic::error("bad_file_name", "", start_of(path), &message, Some(&rename(path)))
}

fn hidden(path: &str, by: &Entry) -> Diagnostic {
    let message = format!("`{}` hides this file, which has the same name", by.path);
    let mut finding = Diagnostic::error("hidden_file", "", start_of(path), &message, Some("rename one of them"));
    finding.severity = Severity::Warning;
    finding
}

/// The flows or agents of a place, listed when they are first asked for.
pub struct Registry<L> {
    kind: Kind,
    lister: L,
    known: Mutex<Option<Arc<Discovery>>>,
}

impl<L: Fn() -> Vec<Listed>> Registry<L> {
    /// A registry of what `lister` lists, in the order of the folders.
    pub fn new(kind: Kind, lister: L) -> Registry<L> {
        Registry { kind, lister, known: Mutex::new(None) }
    }

    /// The entry of this name.
    pub fn get(&self, id: &str) -> Option<Entry> {
        self.list().entries.get(id).cloned()
    }

    /// All entries, with what is wrong about them.
    pub fn list(&self) -> Arc<Discovery> {
        let mut known = self.known.lock();
        known.get_or_insert_with(|| Arc::new(discover(self.kind, &(self.lister)()))).clone()
    }

    /// Forgets what was listed.
    pub fn invalidate(&self) {
        *self.known.lock() = None;
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

    use std::cell::Cell;

    use super::*;

    fn listed(level: Level, path: &str) -> Listed {
        Listed { level, path: path.to_owned() }
    }

    #[test]
    fn the_project_wins_and_then_the_first() {
        use Level::{Global, Project};
        let found = discover(
            Kind::Flows,
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
        let codes: Vec<_> = found.diagnostics.iter().map(|finding| (finding.code, &*finding.place.file)).collect();
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
    fn a_registry_lists_once_until_it_is_told_to_forget() {
        let times = Cell::new(0);
        let registry = Registry::new(Kind::Agents, || {
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
