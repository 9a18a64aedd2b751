//! The files of a library. All paths are opened relative to the library's folder, and none leads out of the folder,
//! neither by `..` nor by a link. A flow may be a link to another file in the folder, but links below `.versions` are
//! refused.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    io::{self, ErrorKind, Write},
    path::{Path, PathBuf},
    time::SystemTime,
};

use cap_fs_ext::{FollowSymlinks, OpenOptionsFollowExt};
use cap_std::{
    ambient_authority,
    fs::{Dir, DirEntry, File, OpenOptions},
};

use flowcell_contract::host_files::VERSIONS_FOLDER as VERSIONS;

use crate::host::folder::{guard, is_flow_name, limited};

const LOCK: &str = ".versions/.lock";
/// The temporary file of a write. The writer holds the lock.
const NEW: &str = ".versions/.new";
/// The file with the number of bytes of all versions, and the number of changes since these bytes were counted.
const SIZE: &str = ".versions/.size";
/// Number of changes after which the bytes are counted again, since users may also add files directly.
const COUNTED: u32 = 256;
/// Minimum number of bytes that a version counts for.
const BLOCK: u64 = 4_096;
/// Upper bound of version numbers.
const LAST_VERSION: u32 = 999_999_999;

/// The ending of a flow's file, which tells the format of its text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ending {
    Json,
    Yaml,
    Yml,
    Script,
}

impl Ending {
    /// All endings, in the order of the lookup.
    const ALL: [Ending; 4] = [Ending::Json, Ending::Yaml, Ending::Yml, Ending::Script];

    /// Returns the ending for a text that is not a script: JSON if it parses, else YAML.
    pub(super) fn of(text: &str) -> Ending {
        let json = serde_json::from_str::<serde::de::IgnoredAny>(text).is_ok();
        if json { Ending::Json } else { Ending::Yaml }
    }

    /// Returns the file name of a flow.
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

/// The files of a library whose folder exists.
pub(super) struct LibraryFiles {
    dir: Dir,
    folder: PathBuf,
}

/// The size of all versions of all flows, with the number of changes since the bytes were counted.
#[derive(Clone, Copy)]
pub(super) struct Size {
    pub(super) bytes: u64,
    changes: u32,
}

impl Size {
    /// Returns the size after a text is added.
    pub(super) fn with(self, text: &str) -> Size {
        Size { bytes: self.bytes + (text.len() as u64).max(BLOCK), changes: self.changes + 1 }
    }
}

/// An error for a link that is not followed.
#[derive(Debug)]
pub(super) struct LinkError(pub(super) String);

impl std::error::Error for LinkError {}

impl fmt::Display for LinkError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "the library does not follow the link `{}`", self.0)
    }
}

/// The lock that prevents changes of the library by other callers.
pub(super) struct Lock(#[expect(dead_code, reason = "closing it gives the lock back")] std::fs::File);

impl LibraryFiles {
    /// Opens the files of a folder. It returns `None` if the folder does not exist.
    pub(super) fn open(folder: &Path) -> io::Result<Option<LibraryFiles>> {
        let here = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
        let dir = if_there(Dir::open_ambient_dir(here, ambient_authority()))?;
        Ok(dir.map(|dir| LibraryFiles { dir, folder: folder.to_owned() }))
    }

    /// Opens the files of a folder, and creates the folder if needed.
    pub(super) fn create(folder: &Path) -> io::Result<LibraryFiles> {
        std::fs::create_dir_all(folder)?;
        LibraryFiles::open(folder)?.ok_or_else(|| ErrorKind::NotFound.into())
    }

    /// Waits for the lock of the library.
    pub(super) fn lock(&self) -> io::Result<Lock> {
        self.check_own(VERSIONS)?;
        self.dir.create_dir_all(VERSIONS)?;
        let file = self.dir.open_with(LOCK, private().write(true).create(true))?.into_std();
        file.lock()?;
        Ok(Lock(file))
    }

    /// Returns the names of all flows.
    pub(super) fn names(&self) -> io::Result<BTreeSet<String>> {
        let mut names = BTreeSet::new();
        for entry in self.dir.entries()? {
            let Ok(file) = entry?.file_name().into_string() else { continue };
            names.extend(split(&file).map(|(name, _)| name.to_owned()).filter(|name| is_flow_name(name)));
        }
        Ok(names)
    }

    /// Returns the files of all flows, each with its size and time of modification.
    pub(super) fn times(&self) -> io::Result<BTreeSet<(String, u64, SystemTime)>> {
        let mut times = BTreeSet::new();
        for entry in self.dir.entries()? {
            let entry = entry?;
            let Ok(file) = entry.file_name().into_string() else { continue };
            if !split(&file).is_some_and(|(name, _)| is_flow_name(name)) {
                continue;
            }
            // A file that is removed meanwhile is skipped.
            if let Some(known) = if_there(entry.metadata())? {
                times.insert((file, known.len(), known.modified()?.into_std()));
            }
        }
        Ok(times)
    }

    /// Returns the newest version of a flow.
    pub(super) fn newest(&self, name: &str) -> io::Result<Option<(Ending, String)>> {
        for ending in Ending::ALL {
            if let Some(text) = self.read_newest(&ending.file(name))? {
                return Ok(Some((ending, text)));
            }
        }
        Ok(None)
    }

    /// Returns the numbers of the stored older versions of a flow, each with the ending of its file.
    pub(super) fn older(&self, name: &str) -> io::Result<BTreeMap<u32, Ending>> {
        let mut older = BTreeMap::new();
        let folder = format!("{VERSIONS}/{name}");
        self.check_own(&folder)?;
        let Some(entries) = if_there(self.dir.read_dir(folder))? else { return Ok(older) };
        for entry in entries {
            let Ok(file) = entry?.file_name().into_string() else { continue };
            let Some((version, ending)) = split(&file) else { continue };
            let version = version.parse().ok().filter(|version| (1..LAST_VERSION).contains(version));
            older.extend(version.map(|version| (version, ending)));
        }
        Ok(older)
    }

    /// Returns the text of a stored older version, or `None` if it does not exist.
    pub(super) fn read_older(&self, name: &str, version: u32, ending: Ending) -> io::Result<Option<String>> {
        let path = older_path(name, version, ending);
        self.check_own(&path)?;
        if_there(self.dir.open(path))?.map(limited).transpose()
    }

    /// Stores an older version.
    pub(super) fn write_older(&self, name: &str, version: u32, ending: Ending, text: &str) -> io::Result<()> {
        self.check_own(&format!("{VERSIONS}/{name}"))?;
        self.dir.create_dir_all(format!("{VERSIONS}/{name}"))?;
        self.replace(&older_path(name, version, ending), text)?;
        self.settle(&format!("{VERSIONS}/{name}"))
    }

    /// Removes a stored older version.
    pub(super) fn remove_older(&self, name: &str, version: u32, ending: Ending) -> io::Result<()> {
        if_there(self.dir.remove_file(older_path(name, version, ending))).map(|_| ())
    }

    /// Writes the newest version of a flow.
    pub(super) fn write(&self, name: &str, ending: Ending, text: &str) -> io::Result<()> {
        self.replace(&ending.file(name), text)?;
        self.settle(".")
    }

    /// Removes a file of a flow.
    pub(super) fn remove(&self, name: &str, ending: Ending) -> io::Result<()> {
        if_there(self.dir.remove_file(ending.file(name)))?;
        self.settle(".")
    }

    /// Removes all stored older versions of a flow.
    pub(super) fn forget(&self, name: &str) -> io::Result<()> {
        self.check_own(&format!("{VERSIONS}/{name}"))?;
        if_there(self.dir.remove_dir_all(format!("{VERSIONS}/{name}"))).map(|_| ())
    }

    /// Returns the recorded size. If the record is missing, or there were [`COUNTED`] changes since the last count,
    /// counts the bytes.
    pub(super) fn size(&self) -> io::Result<Size> {
        let noted =
            if_there(self.dir.open_with(SIZE, private().read(true)))?.map(limited).transpose().unwrap_or_default();
        let noted = noted.and_then(|noted| {
            let (bytes, changes) = noted.split_once(' ')?;
            Some(Size { bytes: bytes.parse().ok()?, changes: changes.parse().ok()? })
        });
        noted.filter(|noted| noted.changes < COUNTED).map_or_else(|| self.count(), Ok)
    }

    /// Counts the bytes of all versions.
    pub(super) fn count(&self) -> io::Result<Size> {
        let taken = |entry: io::Result<DirEntry>| -> io::Result<u64> {
            let entry = entry?;
            let is_version = entry.file_name().to_str().is_some_and(|file| split(file).is_some());
            // A file that is removed meanwhile counts nothing.
            let known = if_there(entry.metadata())?.filter(|known| is_version && known.is_file());
            Ok(known.map_or(0, |known| known.len().max(BLOCK)))
        };
        let mut bytes = self.dir.entries()?.map(taken).sum::<io::Result<u64>>()?;
        for entry in self.dir.read_dir(VERSIONS)? {
            let entry = entry?;
            if entry.file_type()?.is_dir() {
                let versions = if_there(entry.open_dir().and_then(|folder| folder.entries()))?;
                bytes += versions.into_iter().flatten().map(taken).sum::<io::Result<u64>>()?;
            }
        }
        Ok(Size { bytes, changes: 0 })
    }

    /// Records the size. If the record is lost, the bytes are counted again.
    pub(super) fn write_size(&self, size: Size) -> io::Result<()> {
        let mut file = self.dir.open_with(SIZE, private().write(true).create(true).truncate(true))?;
        file.write_all(format!("{} {}", size.bytes, size.changes).as_bytes())
    }

    /// Reads a file of the folder itself. It follows a link and checks its target.
    fn read_newest(&self, file: &str) -> io::Result<Option<String>> {
        match if_there(guard::open(&self.folder, file)) {
            Ok(found) => found.map(limited).transpose(),
            Err(_) if self.is_link(Path::new(file))? => Err(link(file)),
            Err(error) => Err(error),
        }
    }

    /// Refuses a path of the library's own files if any part of it is a link.
    fn check_own(&self, path: &str) -> io::Result<()> {
        let mut part = PathBuf::new();
        for name in Path::new(path) {
            part.push(name);
            if self.is_link(&part)? {
                return Err(link(&part.to_string_lossy()));
            }
        }
        Ok(())
    }

    fn is_link(&self, path: &Path) -> io::Result<bool> {
        Ok(if_there(self.dir.symlink_metadata(path))?.is_some_and(|known| known.is_symlink()))
    }

    /// Replaces a file atomically. A reader gets the whole old or new text, also after a power failure.
    fn replace(&self, path: &str, text: &str) -> io::Result<()> {
        // A process that died during a write has left this file.
        if_there(self.dir.remove_file(NEW))?;
        let mut file: File = self.dir.open_with(NEW, private().write(true).create_new(true))?;
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        self.dir.rename(NEW, &self.dir, path)
    }

    /// Syncs the names in a folder. On systems other than Unix it does nothing.
    fn settle(&self, folder: &str) -> io::Result<()> {
        if cfg!(unix) { self.dir.open(folder)?.sync_all() } else { Ok(()) }
    }
}

fn link(path: &str) -> io::Error {
    io::Error::new(ErrorKind::PermissionDenied, LinkError(path.to_owned()))
}

/// Returns options for a file that only its owner may read and write. Links are not followed.
fn private() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.follow(FollowSymlinks::No);
    #[cfg(unix)]
    cap_std::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options
}

fn older_path(name: &str, version: u32, ending: Ending) -> String {
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
