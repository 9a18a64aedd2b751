//! The files of a library, through a capability for its folder: no name leads out of it, neither by `..` nor by a link. A flow may be
//! a link to another file in the folder; below `.versions` nothing is a link.

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

use flowcell_contract::places::VERSIONS_FOLDER as VERSIONS;

use crate::host::folder::{guard, is_flow_name, limited};

const LOCK: &str = ".versions/.lock";
/// What is written before it gets its name. Whoever writes holds the lock.
const NEW: &str = ".versions/.new";
/// The bytes of all versions, and the changes since they were counted.
const SIZE: &str = ".versions/.size";
/// Changes after which the bytes are counted again: people put files there, too.
const COUNTED: u32 = 256;
/// Bytes that a version takes at least.
const BLOCK: u64 = 4_096;
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
pub(super) struct Files {
    dir: Dir,
    folder: PathBuf,
}

/// The bytes that all versions of all flows take.
#[derive(Clone, Copy)]
pub(super) struct Size {
    pub(super) bytes: u64,
    changes: u32,
}

impl Size {
    /// The size with another text.
    pub(super) fn with(self, text: &str) -> Size {
        Size { bytes: self.bytes + (text.len() as u64).max(BLOCK), changes: self.changes + 1 }
    }
}

/// A link that is not followed.
#[derive(Debug)]
pub(super) struct LinkError(pub(super) String);

impl std::error::Error for LinkError {}

impl fmt::Display for LinkError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "the link `{}` is not followed", self.0)
    }
}

/// Nobody else changes the library while this is kept.
pub(super) struct Lock(#[expect(dead_code, reason = "closing it gives the lock back")] std::fs::File);

impl Files {
    /// Those of a folder; none if it is not there.
    pub(super) fn open(folder: &Path) -> io::Result<Option<Files>> {
        let here = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
        let dir = if_there(Dir::open_ambient_dir(here, ambient_authority()))?;
        Ok(dir.map(|dir| Files { dir, folder: folder.to_owned() }))
    }

    /// Those of a folder, which is made if it is not there.
    pub(super) fn create(folder: &Path) -> io::Result<Files> {
        std::fs::create_dir_all(folder)?;
        Files::open(folder)?.ok_or_else(|| ErrorKind::NotFound.into())
    }

    /// Waits until nobody else changes the library.
    pub(super) fn lock(&self) -> io::Result<Lock> {
        self.check_own(VERSIONS)?;
        self.dir.create_dir_all(VERSIONS)?;
        let file = self.dir.open_with(LOCK, private().write(true).create(true))?.into_std();
        file.lock()?;
        Ok(Lock(file))
    }

    /// The names of all flows.
    pub(super) fn names(&self) -> io::Result<BTreeSet<String>> {
        let mut names = BTreeSet::new();
        for entry in self.dir.entries()? {
            let Ok(file) = entry?.file_name().into_string() else { continue };
            names.extend(split(&file).map(|(name, _)| name.to_owned()).filter(|name| is_flow_name(name)));
        }
        Ok(names)
    }

    /// The files of all flows, each with its size and when it was written.
    pub(super) fn times(&self) -> io::Result<BTreeSet<(String, u64, SystemTime)>> {
        let mut times = BTreeSet::new();
        for entry in self.dir.entries()? {
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
            if let Some(text) = self.read_newest(&ending.file(name))? {
                return Ok(Some((ending, text)));
            }
        }
        Ok(None)
    }

    /// The versions of a flow that are kept.
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

    /// A version that is kept.
    pub(super) fn kept(&self, name: &str, version: u32, ending: Ending) -> io::Result<Option<String>> {
        let path = kept(name, version, ending);
        self.check_own(&path)?;
        if_there(self.dir.open(path))?.map(limited).transpose()
    }

    /// Keeps a version.
    pub(super) fn keep(&self, name: &str, version: u32, ending: Ending, text: &str) -> io::Result<()> {
        self.check_own(&format!("{VERSIONS}/{name}"))?;
        self.dir.create_dir_all(format!("{VERSIONS}/{name}"))?;
        self.replace(&kept(name, version, ending), text)?;
        self.settle(&format!("{VERSIONS}/{name}"))
    }

    /// Keeps a version no more.
    pub(super) fn drop_kept(&self, name: &str, version: u32, ending: Ending) -> io::Result<()> {
        if_there(self.dir.remove_file(kept(name, version, ending))).map(|_| ())
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

    /// Removes all that is kept of a flow.
    pub(super) fn forget(&self, name: &str) -> io::Result<()> {
        self.check_own(&format!("{VERSIONS}/{name}"))?;
        if_there(self.dir.remove_dir_all(format!("{VERSIONS}/{name}"))).map(|_| ())
    }

    /// The size that was noted last, or else as it is.
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
            // One that is removed meanwhile takes nothing.
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

    /// Notes the size. A note that is lost is counted anew.
    pub(super) fn note(&self, size: Size) -> io::Result<()> {
        let mut file = self.dir.open_with(SIZE, private().write(true).create(true).truncate(true))?;
        file.write_all(format!("{} {}", size.bytes, size.changes).as_bytes())
    }

    /// Reads a file of the folder itself. A link is judged by where it leads.
    fn read_newest(&self, file: &str) -> io::Result<Option<String>> {
        match if_there(guard::open(&self.folder, file)) {
            Ok(found) => found.map(limited).transpose(),
            Err(_) if self.is_link(Path::new(file))? => Err(link(file)),
            Err(error) => Err(error),
        }
    }

    /// Refuses a path of this program's own files, of which no part may be a link.
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

    /// A reader sees all of a text or none, and so does one after a power cut.
    fn replace(&self, path: &str, text: &str) -> io::Result<()> {
        // What a process has left that died while it wrote.
        if_there(self.dir.remove_file(NEW))?;
        let mut file: File = self.dir.open_with(NEW, private().write(true).create_new(true))?;
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        self.dir.rename(NEW, &self.dir, path)
    }

    /// Forces the names in a folder. What cannot be forced elsewhere than on Unix is left to the system.
    fn settle(&self, folder: &str) -> io::Result<()> {
        if cfg!(unix) { self.dir.open(folder)?.sync_all() } else { Ok(()) }
    }
}

fn link(path: &str) -> io::Error {
    io::Error::new(ErrorKind::PermissionDenied, LinkError(path.to_owned()))
}

/// How a file is made that only its owner may read and write. It is no link.
fn private() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.follow(FollowSymlinks::No);
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
