//! The files of agents: Markdown in the folders of the project, which is the current folder, and of the user.

use std::path::PathBuf;

use flowcell_flow::agentic::{AGENT_FOLDERS, Discovery, Kind, Level, Listed, discover};

/// Where the file of the agent of this name is.
pub(crate) fn agent_file(name: &str) -> Option<PathBuf> {
    Some(PathBuf::from(&agents().entries.get(name)?.path))
}

/// All files of agents.
pub(crate) fn agents() -> Discovery {
    let home = std::env::var_os("HOME").filter(|home| !home.is_empty()).map(PathBuf::from);
    let mut listing = Vec::new();
    for folder in AGENT_FOLDERS {
        let path = match (folder.level, &home) {
            (Level::Project, _) => PathBuf::from(folder.path),
            (Level::Global, Some(home)) => home.join(folder.path),
            (Level::Global, None) => continue,
        };
        let files = std::fs::read_dir(path).into_iter().flatten().filter_map(|entry| Some(entry.ok()?.path()));
        let mut paths: Vec<_> = files.filter(|path| path.is_file()).map(|path| path.display().to_string()).collect();
        paths.sort();
        listing.extend(paths.into_iter().map(|path| Listed { level: folder.level, path }));
    }
    discover(Kind::Agents, &listing)
}
