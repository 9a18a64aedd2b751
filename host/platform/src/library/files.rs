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

use crate::host::folder::{guard, is_flow_name, read_limited};

const LOCK_FILE: &str = ".versions/.lock";
/// The temporary file of a write. The writer holds the lock.
const TEMPORARY_FILE: &str = ".versions/.new";
/// The file with the size of all versions in bytes, and the number of changes since this size was last counted.
const SIZE_FILE: &str = ".versions/.size";
/// Number of changes after which the bytes are counted again, since users may also add files directly.
const MAX_UNCOUNTED_CHANGES: u32 = 256;
/// Minimum size in bytes that a version counts with: a smaller version counts as this many bytes.
pub(super) const MIN_VERSION_BYTES: u64 = 4_096;
/// Upper bound of version numbers.
const LAST_VERSION: u32 = 999_999_999;

/// The ending of a flow's file, which shows the format of its text.
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
    pub(super) fn of_text(text: &str) -> Ending {
        let json = serde_json::from_str::<serde::de::IgnoredAny>(text).is_ok();
        if json { Ending::Json } else { Ending::Yaml }
    }

    /// Returns the file name of a flow.
    pub(super) fn file_name(self, name: &str) -> String {
        format!("{name}.{}", self.text())
    }

    /// Returns the ending of a flow's file, or `None` if the file has another one.
    pub(super) fn of_file(file: &str) -> Option<Ending> {
        let name = Path::new(file).file_name()?.to_str()?;
        split_file_name(name).map(|(_, ending)| ending)
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
    pub(super) fn with_text(self, text: &str) -> Size {
        Size { bytes: self.bytes + (text.len() as u64).max(MIN_VERSION_BYTES), changes: self.changes + 1 }
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
        let dir = none_if_missing(Dir::open_ambient_dir(here, ambient_authority()))?;
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
        let file = self.dir.open_with(LOCK_FILE, private_file_options().write(true).create(true))?.into_std();
        file.lock()?;
        Ok(Lock(file))
    }

    /// Returns the names of all flows.
    pub(super) fn names(&self) -> io::Result<BTreeSet<String>> {
        let mut names = BTreeSet::new();
        for entry in self.dir.entries()? {
            let Ok(file) = entry?.file_name().into_string() else { continue };
            names.extend(split_file_name(&file).map(|(name, _)| name.to_owned()).filter(|name| is_flow_name(name)));
        }
        Ok(names)
    }

    /// Returns the files of all flows, each with its size and time of modification.
    pub(super) fn file_times(&self) -> io::Result<BTreeSet<(String, u64, SystemTime)>> {
        let mut times = BTreeSet::new();
        for entry in self.dir.entries()? {
            let entry = entry?;
            let Ok(file) = entry.file_name().into_string() else { continue };
            if !split_file_name(&file).is_some_and(|(name, _)| is_flow_name(name)) {
                continue;
            }
            // A file that is removed meanwhile is skipped.
            if let Some(known) = none_if_missing(entry.metadata())? {
                times.insert((file, known.len(), known.modified()?.into_std()));
            }
        }
        Ok(times)
    }

    /// Returns the newest version of a flow.
    pub(super) fn newest(&self, name: &str) -> io::Result<Option<(Ending, String)>> {
        for ending in Ending::ALL {
            if let Some(text) = self.read_newest(&ending.file_name(name))? {
                return Ok(Some((ending, text)));
            }
        }
        Ok(None)
    }

    /// Returns the numbers of the stored older versions of a flow, each with the ending of its file.
    pub(super) fn older_versions(&self, name: &str) -> io::Result<BTreeMap<u32, Ending>> {
        let mut older = BTreeMap::new();
        let folder = format!("{VERSIONS}/{name}");
        self.check_own(&folder)?;
        let Some(entries) = none_if_missing(self.dir.read_dir(folder))? else { return Ok(older) };
        for entry in entries {
            let Ok(file) = entry?.file_name().into_string() else { continue };
            let Some((version, ending)) = split_file_name(&file) else { continue };
            let version = version.parse().ok().filter(|version| (1..LAST_VERSION).contains(version));
            older.extend(version.map(|version| (version, ending)));
        }
        Ok(older)
    }

    /// Returns the text of a stored older version, or `None` if it does not exist.
    pub(super) fn read_older(&self, name: &str, version: u32, ending: Ending) -> io::Result<Option<String>> {
        let path = older_path(name, version, ending);
        self.check_own(&path)?;
        none_if_missing(self.dir.open(path))?.map(read_limited).transpose()
    }

    /// Stores an older version.
    pub(super) fn write_older(&self, name: &str, version: u32, ending: Ending, text: &str) -> io::Result<()> {
        self.check_own(&format!("{VERSIONS}/{name}"))?;
        self.dir.create_dir_all(format!("{VERSIONS}/{name}"))?;
        self.replace(&older_path(name, version, ending), text)?;
        self.sync_folder(&format!("{VERSIONS}/{name}"))
    }

    /// Removes a stored older version.
    pub(super) fn remove_older(&self, name: &str, version: u32, ending: Ending) -> io::Result<()> {
        none_if_missing(self.dir.remove_file(older_path(name, version, ending))).map(|_| ())
    }

    /// Writes the newest version of a flow.
    pub(super) fn write(&self, name: &str, ending: Ending, text: &str) -> io::Result<()> {
        self.replace(&ending.file_name(name), text)?;
        self.sync_folder(".")
    }

    /// Removes a file of a flow.
    pub(super) fn remove(&self, name: &str, ending: Ending) -> io::Result<()> {
        none_if_missing(self.dir.remove_file(ending.file_name(name)))?;
        self.sync_folder(".")
    }

    /// Removes all stored older versions of a flow.
    pub(super) fn remove_all_older(&self, name: &str) -> io::Result<()> {
        self.check_own(&format!("{VERSIONS}/{name}"))?;
        none_if_missing(self.dir.remove_dir_all(format!("{VERSIONS}/{name}"))).map(|_| ())
    }

    /// Returns the recorded size. If the record is missing, or there were [`MAX_UNCOUNTED_CHANGES`] changes since the
    /// last count, counts the bytes.
    pub(super) fn size(&self) -> io::Result<Size> {
        let noted = none_if_missing(self.dir.open_with(SIZE_FILE, private_file_options().read(true)))?
            .map(read_limited)
            .transpose()
            .unwrap_or_default();
        let noted = noted.and_then(|noted| {
            let (bytes, changes) = noted.split_once(' ')?;
            Some(Size { bytes: bytes.parse().ok()?, changes: changes.parse().ok()? })
        });
        noted.filter(|noted| noted.changes < MAX_UNCOUNTED_CHANGES).map_or_else(|| self.count_size(), Ok)
    }

    /// Counts the bytes of all versions.
    pub(super) fn count_size(&self) -> io::Result<Size> {
        let taken = |entry: io::Result<DirEntry>| -> io::Result<u64> {
            let entry = entry?;
            let is_version = entry.file_name().to_str().is_some_and(|file| split_file_name(file).is_some());
            // A file that is removed meanwhile counts nothing.
            let known = none_if_missing(entry.metadata())?.filter(|known| is_version && known.is_file());
            Ok(known.map_or(0, |known| known.len().max(MIN_VERSION_BYTES)))
        };
        let mut bytes = self.dir.entries()?.map(taken).sum::<io::Result<u64>>()?;
        for entry in self.dir.read_dir(VERSIONS)? {
            let entry = entry?;
            if entry.file_type()?.is_dir() {
                let versions = none_if_missing(entry.open_dir().and_then(|folder| folder.entries()))?;
                bytes += versions.into_iter().flatten().map(taken).sum::<io::Result<u64>>()?;
            }
        }
        Ok(Size { bytes, changes: 0 })
    }

    /// Records the size. If the record is lost, the bytes are counted again.
    pub(super) fn write_size(&self, size: Size) -> io::Result<()> {
        let mut file = self.dir.open_with(SIZE_FILE, private_file_options().write(true).create(true).truncate(true))?;
        file.write_all(format!("{} {}", size.bytes, size.changes).as_bytes())
    }

    /// Reads a file of the folder itself. It follows a link and checks its target.
    fn read_newest(&self, file: &str) -> io::Result<Option<String>> {
        match none_if_missing(guard::open(&self.folder, file)) {
            Ok(found) => found.map(read_limited).transpose(),
            Err(_) if self.is_link(Path::new(file))? => Err(link_error(file)),
            Err(error) => Err(error),
        }
    }

    /// Refuses a path of the library's own files if any part of it is a link.
    fn check_own(&self, path: &str) -> io::Result<()> {
        let mut part = PathBuf::new();
        for name in Path::new(path) {
            part.push(name);
            if self.is_link(&part)? {
                return Err(link_error(&part.to_string_lossy()));
            }
        }
        Ok(())
    }

    fn is_link(&self, path: &Path) -> io::Result<bool> {
        Ok(none_if_missing(self.dir.symlink_metadata(path))?.is_some_and(|known| known.is_symlink()))
    }

    /// Replaces a file atomically. A reader gets the whole old or new text, also after a power failure.
    fn replace(&self, path: &str, text: &str) -> io::Result<()> {
        // A process that died during a write has left this file.
        none_if_missing(self.dir.remove_file(TEMPORARY_FILE))?;
        let mut file: File = self.dir.open_with(TEMPORARY_FILE, private_file_options().write(true).create_new(true))?;
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        self.dir.rename(TEMPORARY_FILE, &self.dir, path)
    }

    /// Syncs the names in a folder. On systems other than Unix it does nothing.
    fn sync_folder(&self, folder: &str) -> io::Result<()> {
        if cfg!(unix) { self.dir.open(folder)?.sync_all() } else { Ok(()) }
    }
}

fn link_error(path: &str) -> io::Error {
    io::Error::new(ErrorKind::PermissionDenied, LinkError(path.to_owned()))
}

/// Returns options for a file that only its owner may read and write. Links are not followed.
fn private_file_options() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.follow(FollowSymlinks::No);
    #[cfg(unix)]
    cap_std::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options
}

fn older_path(name: &str, version: u32, ending: Ending) -> String {
    format!("{VERSIONS}/{name}/{version}.{}", ending.text())
}

fn split_file_name(file: &str) -> Option<(&str, Ending)> {
    let (name, ending) = file.split_once('.')?;
    Some((name, Ending::ALL.into_iter().find(|known| known.text() == ending)?))
}

fn none_if_missing<T>(result: io::Result<T>) -> io::Result<Option<T>> {
    match result {
        Ok(found) => Ok(Some(found)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}
