//! The files of a library, through a capability for its folder: no name leads out of it, neither by `..` nor by a link.

use std::{
    collections::{BTreeMap, BTreeSet},
    io::{self, ErrorKind, Write},
    path::Path,
    time::SystemTime,
};

use cap_std::{
    ambient_authority,
    fs::{Dir, File, OpenOptions},
};

use flowcell_contract::places::VERSIONS_FOLDER as VERSIONS;

use crate::folder::{is_flow_name, limited};

const LOCK: &str = ".versions/.lock";
/// What is written before it gets its name. Whoever writes holds the lock.
const NEW: &str = ".versions/.new";
/// No version has a larger number.
const LAST_VERSION: u32 = 999_999_999;

/// How the file of a flow ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ending {
    Json,
    Yaml,
    Yml,
    Script,
}

impl Ending {
    /// In the order in which they are looked for.
    const ALL: [Ending; 4] = [Ending::Json, Ending::Yaml, Ending::Yml, Ending::Script];

    /// How the file of a text that is no script ends.
    pub(super) fn of(text: &str) -> Ending {
        let json = serde_json::from_str::<serde::de::IgnoredAny>(text).is_ok();
        if json { Ending::Json } else { Ending::Yaml }
    }

    /// The file of a flow.
    pub(super) fn file(self, name: &str) -> String {
        format!("{name}.{}", self.text())
    }

    fn text(self) -> &'static str {
        match self {
            Ending::Json => "json",
            Ending::Yaml => "yaml",
            Ending::Yml => "yml",
            Ending::Script => "flow.js",
        }
    }
}

/// The files of a library whose folder is there.
pub(super) struct Files(Dir);

/// Nobody else changes the library while this is kept.
pub(super) struct Lock(#[expect(dead_code, reason = "closing it gives the lock back")] std::fs::File);

impl Files {
    /// Those of a folder; none if it is not there.
    pub(super) fn open(folder: &Path) -> io::Result<Option<Files>> {
        let here = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
        if_there(Dir::open_ambient_dir(here, ambient_authority())).map(|dir| dir.map(Files))
    }

    /// Those of a folder, which is made if it is not there.
    pub(super) fn create(folder: &Path) -> io::Result<Files> {
        std::fs::create_dir_all(folder)?;
        Files::open(folder)?.ok_or_else(|| ErrorKind::NotFound.into())
    }

    /// Waits until nobody else changes the library.
    pub(super) fn lock(&self) -> io::Result<Lock> {
        self.0.create_dir_all(VERSIONS)?;
        let file = self.0.open_with(LOCK, private().write(true).create(true))?.into_std();
        file.lock()?;
        Ok(Lock(file))
    }

    /// The names of all flows.
    pub(super) fn names(&self) -> io::Result<BTreeSet<String>> {
        let mut names = BTreeSet::new();
        for entry in self.0.entries()? {
            let Ok(file) = entry?.file_name().into_string() else { continue };
            names.extend(split(&file).map(|(name, _)| name.to_owned()).filter(|name| is_flow_name(name)));
        }
        Ok(names)
    }

    /// The files of all flows, each with its size and when it was written.
    pub(super) fn times(&self) -> io::Result<BTreeSet<(String, u64, SystemTime)>> {
        let mut times = BTreeSet::new();
        for entry in self.0.entries()? {
            let entry = entry?;
            let Ok(file) = entry.file_name().into_string() else { continue };
            if !split(&file).is_some_and(|(name, _)| is_flow_name(name)) {
                continue;
            }
            // One that is removed meanwhile is none.
            if let Some(known) = if_there(entry.metadata())? {
                times.insert((file, known.len(), known.modified()?.into_std()));
            }
        }
        Ok(times)
    }

    /// The newest version of a flow.
    pub(super) fn newest(&self, name: &str) -> io::Result<Option<(Ending, String)>> {
        for ending in Ending::ALL {
            if let Some(text) = self.read(&ending.file(name))? {
                return Ok(Some((ending, text)));
            }
        }
        Ok(None)
    }

    /// The versions of a flow that are kept.
    pub(super) fn older(&self, name: &str) -> io::Result<BTreeMap<u32, Ending>> {
        let mut older = BTreeMap::new();
        let Some(entries) = if_there(self.0.read_dir(format!("{VERSIONS}/{name}")))? else { return Ok(older) };
        for entry in entries {
            let Ok(file) = entry?.file_name().into_string() else { continue };
            let Some((version, ending)) = split(&file) else { continue };
            let version = version.parse().ok().filter(|version| (1..LAST_VERSION).contains(version));
            older.extend(version.map(|version| (version, ending)));
        }
        Ok(older)
    }

    /// A version that is kept.
    pub(super) fn kept(&self, name: &str, version: u32, ending: Ending) -> io::Result<Option<String>> {
        self.read(&kept(name, version, ending))
    }

    /// Keeps a version.
    pub(super) fn keep(&self, name: &str, version: u32, ending: Ending, text: &str) -> io::Result<()> {
        self.0.create_dir_all(format!("{VERSIONS}/{name}"))?;
        self.replace(&kept(name, version, ending), text)?;
        self.settle(&format!("{VERSIONS}/{name}"))
    }

    /// Keeps a version no more.
    pub(super) fn drop_kept(&self, name: &str, version: u32, ending: Ending) -> io::Result<()> {
        if_there(self.0.remove_file(kept(name, version, ending))).map(|_| ())
    }

    /// Writes the newest version of a flow.
    pub(super) fn write(&self, name: &str, ending: Ending, text: &str) -> io::Result<()> {
        self.replace(&ending.file(name), text)?;
        self.settle(".")
    }

    /// Removes a file of a flow.
    pub(super) fn remove(&self, name: &str, ending: Ending) -> io::Result<()> {
        if_there(self.0.remove_file(ending.file(name)))?;
        self.settle(".")
    }

    /// Removes all that is kept of a flow.
    pub(super) fn forget(&self, name: &str) -> io::Result<()> {
        if_there(self.0.remove_dir_all(format!("{VERSIONS}/{name}"))).map(|_| ())
    }

    fn read(&self, path: &str) -> io::Result<Option<String>> {
        match if_there(self.0.open(path))? {
            Some(file) => limited(file).map(Some),
            None => Ok(None),
        }
    }

    /// A reader sees all of a text or none, and so does one after a power cut.
    fn replace(&self, path: &str, text: &str) -> io::Result<()> {
        // What a process has left that died while it wrote.
        if_there(self.0.remove_file(NEW))?;
        let mut file: File = self.0.open_with(NEW, private().write(true).create_new(true))?;
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        self.0.rename(NEW, &self.0, path)
    }

    /// Forces the names in a folder. What cannot be forced elsewhere than on Unix is left to the system.
    fn settle(&self, folder: &str) -> io::Result<()> {
        if cfg!(unix) { self.0.open(folder)?.sync_all() } else { Ok(()) }
    }
}

/// How a file is made that only its owner may read and write.
fn private() -> OpenOptions {
    let mut options = OpenOptions::new();
    #[cfg(unix)]
    cap_std::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options
}

fn kept(name: &str, version: u32, ending: Ending) -> String {
    format!("{VERSIONS}/{name}/{version}.{}", ending.text())
}

fn split(file: &str) -> Option<(&str, Ending)> {
    let (name, ending) = file.split_once('.')?;
    Some((name, Ending::ALL.into_iter().find(|known| known.text() == ending)?))
}

fn if_there<T>(result: io::Result<T>) -> io::Result<Option<T>> {
    match result {
        Ok(found) => Ok(Some(found)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}
