//! Finds the files of agentic flows and of agents, in the folders of the project and of the user. By default the
//! project is the current folder.

use std::path::{Path, PathBuf};

pub use flowcell_flow::agentic::{
    AGENT_FOLDERS, DiscoveredFile, Discovery, DiscoveryCache, FLOW_FOLDERS, FileKind, Folder, Level, ListedFile,
    discover,
};

/// A function that lists the files of flows, or those of agents.
pub type Lister = fn() -> Vec<ListedFile>;

/// Returns a cache that finds agentic flows by name. It lists the folders on first use, and again after
/// [`invalidate`](DiscoveryCache::invalidate).
pub fn flows() -> DiscoveryCache<Lister> {
    DiscoveryCache::new(FileKind::Flows, || list_in_current_project(&FLOW_FOLDERS))
}

/// Returns a cache that finds agents by name, without the built-in ones.
pub fn agents() -> DiscoveryCache<Lister> {
    DiscoveryCache::new(FileKind::Agents, || list_in_current_project(&AGENT_FOLDERS))
}

/// Returns a cache that finds the agents of a project folder and of the user by name. An empty path means the current
/// folder.
pub(crate) fn agents_in(project: &Path) -> DiscoveryCache<impl Fn() -> Vec<ListedFile>> {
    let project = project.to_owned();
    DiscoveryCache::new(FileKind::Agents, move || list_files(&project, &AGENT_FOLDERS))
}

/// Returns the path of the file of an agent, or `None` if no folder has the agent.
pub(crate) fn agent_file(project: &Path, name: &str) -> Option<PathBuf> {
    Some(PathBuf::from(agents_in(project).get(name)?.path))
}

fn list_in_current_project(folders: &[Folder]) -> Vec<ListedFile> {
    list_files(Path::new(""), folders)
}

/// Lists the files in the folders, in the order of the folders.
fn list_files(project: &Path, folders: &[Folder]) -> Vec<ListedFile> {
    let home = std::env::var_os("HOME").filter(|home| !home.is_empty()).map(PathBuf::from);
    let mut listing = Vec::new();
    for folder in folders {
        let path = match (folder.level, &home) {
            (Level::Project, _) => project.join(folder.path),
            (Level::Global, Some(home)) => home.join(folder.path),
            (Level::Global, None) => continue,
        };
        let files = std::fs::read_dir(path).into_iter().flatten().filter_map(|entry| Some(entry.ok()?.path()));
        let mut paths: Vec<_> = files.filter(|path| path.is_file()).map(|path| path.display().to_string()).collect();
        paths.sort();
        listing.extend(paths.into_iter().map(|path| ListedFile { level: folder.level, path }));
    }
    listing
}
