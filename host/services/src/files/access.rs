//! The operations in a tenant's folder. All of them may block.

use std::{
    io::{self, Read, Write},
    time::UNIX_EPOCH,
};

use cap_fs_ext::{DirExt, FollowSymlinks, MetadataExt, OpenOptionsFollowExt, OpenOptionsSyncExt};
use cap_std::fs::{Dir, Metadata, OpenOptions};
use flowcell_contract::{
    Failure, Json, code as codes,
    host_files::{STORE_FILE, is_store_file},
};

use super::{
    FileGrants, Limits,
    failures::failed,
    path::{self, FilePath},
    quota::{Quota, Used},
    root::open_or_make,
};
use crate::code;

/// Size in bytes of the parts in which a file is read.
const PART_BYTES: usize = 64 << 10;

/// Returns the part of a content at an offset, and nothing at the end.
pub(super) type ReadPart<'a> = &'a mut dyn FnMut(u64) -> Result<Vec<u8>, Failure>;

/// A content to write.
pub(super) struct Source<'a> {
    /// The size in bytes.
    pub(super) size: u64,
    pub(super) part: ReadPart<'a>,
}

/// An open folder of a tenant.
pub(super) struct Access {
    pub(super) dir: Dir,
    pub(super) limits: Limits,
}

/// An entry of a folder.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Entry {
    path: FilePath,
    folder: bool,
    size: u64,
    modified_ms: u64,
}

impl Access {
    /// Returns the content of a file of at most `limit` bytes.
    pub(super) fn read(&self, path: &FilePath, limit: u64) -> Result<Vec<u8>, Failure> {
        let mut bytes = Vec::new();
        self.read_parts(path, limit, |part| {
            bytes.extend_from_slice(part);
            Ok(())
        })?;
        Ok(bytes)
    }

    /// Reads a file of at most `limit` bytes in parts.
    pub(super) fn read_parts(
        &self,
        path: &FilePath,
        limit: u64,
        mut take: impl FnMut(&[u8]) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        let (dir, name) = self.parent(path)?;
        let mut options = OpenOptions::new();
        // Opening a pipe must not wait for its writer.
        options.read(true).follow(FollowSymlinks::No).nonblock(true);
        let file = dir.open_with(name, &options).map_err(|error| open_failure(&dir, name, path, &error))?;
        let metadata = file.metadata().map_err(|error| failed(&path.to_string(), &error))?;
        if !metadata.is_file() {
            return Err(not_a_file(path));
        }
        // Another name of the file (a hard link) may be outside of the tenant's folder.
        if metadata.nlink() > 1 {
            return Err(Failure::new(
                codes::DENIED,
                format!("`{path}` has several names (hard links), so it cannot be read"),
            ));
        }
        if metadata.len() > limit {
            return Err(too_large(path, limit));
        }
        let (mut file, mut buffer, mut size) = (file, vec![0; PART_BYTES], 0);
        loop {
            let read = match file.read(&mut buffer) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                read => read.map_err(|error| failed(&path.to_string(), &error))?,
            };
            // The file may grow while it is read.
            size += read as u64;
            if size > limit {
                return Err(too_large(path, limit));
            }
            if read == 0 {
                return Ok(());
            }
            take(&buffer[..read])?;
        }
    }

    /// Replaces or creates a file, and creates its missing folders. The name of the temporary file derives from `key`,
    /// the idempotency key of the call. So a repeated call replaces the temporary file that an interrupted one has
    /// left.
    pub(super) fn write(
        &self,
        path: &FilePath,
        Source { size, part }: Source<'_>,
        key: &str,
        quota: &Quota,
    ) -> Result<(), Failure> {
        if size > self.limits.file {
            return Err(too_large(path, self.limits.file));
        }
        let before = self.stat(path)?;
        if before.as_ref().is_some_and(|before| before.folder) {
            return Err(not_a_file(path));
        }
        let old = before.as_ref().map_or(0, |before| before.size);
        // The old file exists until the new one takes its name.
        let new = Used { bytes: size, entries: self.count_missing(path) };
        quota.take(&self.dir, new, &self.limits)?;
        let written = self.replace(path, part, key);
        quota.give_back(match &written {
            Ok(()) => Used { bytes: old, entries: 0 },
            Err(_) => new,
        });
        written
    }

    /// Returns the number of files and folders that a write to this path creates.
    fn count_missing(&self, path: &FilePath) -> u64 {
        let names = path.names();
        let there = |end: &usize| {
            let folders = &names[..*end - 1];
            self.folder(folders).is_ok_and(|dir| dir.symlink_metadata(&*names[*end - 1]).is_ok())
        };
        let there = (1..=names.len()).rev().find(there).unwrap_or(0);
        (names.len() - there) as u64
    }

    fn replace(&self, path: &FilePath, part: ReadPart<'_>, key: &str) -> Result<(), Failure> {
        let Some((folders, name)) = path.split() else { return Err(not_a_file(path)) };
        let wrong = |error: &io::Error| failed(&path.to_string(), error);
        let mut dir = self.dir.try_clone().map_err(|error| wrong(&error))?;
        for folder in folders {
            dir = open_or_make(&dir, folder).map_err(|error| open_failure(&dir, folder, path, &error))?;
        }
        let new = format!("{}-{key}.new", path::RESERVED_PREFIX);
        let mut unreadable = None;
        let written = write_new(&dir, &new, part, &mut unreadable).and_then(|()| dir.rename(&new, &dir, name));
        match written {
            // Syncing the folder puts the name on stable storage.
            Ok(()) => sync(&dir).map_err(|error| wrong(&error)),
            Err(error) => {
                // If the file cannot be removed, it stays hidden until a repeated call replaces it.
                let _ = dir.remove_file(&new);
                Err(unreadable.unwrap_or_else(|| open_failure(&dir, name, path, &error)))
            }
        }
    }

    /// Lists the entries of a folder, but only those that the grants let the node see.
    pub(super) fn list(&self, folder: &FilePath, grants: &FileGrants) -> Result<Vec<Entry>, Failure> {
        let wrong = |error: io::Error| failed(&folder.to_string(), &error);
        let dir = self.folder(folder.names()).map_err(|found| found.failure(folder))?;
        let mut found = Vec::new();
        for entry in dir.entries().map_err(wrong)? {
            let entry = entry.map_err(wrong)?;
            let name = entry.file_name();
            // A name that no path can contain is not listed.
            let Some(name) = name.to_str().filter(|name| path::split_names(name).is_ok_and(|names| names.len() == 1))
            else {
                continue;
            };
            let metadata = entry.metadata().ok();
            let Some(entry) = metadata.and_then(|metadata| Entry::from_metadata(folder.join(name), &metadata)) else {
                continue;
            };
            if grants.may_read(&entry.path) || entry.folder && grants.may_list(&entry.path) {
                found.push(entry);
            }
            if found.len() > self.limits.listed {
                let message = format!("`{folder}` has more than {} entries", self.limits.listed);
                return Err(Failure::new(codes::LIMIT_EXCEEDED, message));
            }
        }
        found.sort_by(|one, other| one.path.names().cmp(other.path.names()));
        Ok(found)
    }

    /// Returns the entry at a path, or `None` if the path does not exist.
    pub(super) fn stat(&self, path: &FilePath) -> Result<Option<Entry>, Failure> {
        let (dir, name) = match self.parent(path) {
            Err(failure) if failure.code == codes::FILE_NOT_FOUND => return Ok(None),
            found => found?,
        };
        match dir.symlink_metadata(name) {
            Ok(metadata) if metadata.is_symlink() => Err(link_failure(path)),
            Ok(metadata) => Entry::from_metadata(path.clone(), &metadata).map(Some).ok_or_else(|| not_a_file(path)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(failed(&path.to_string(), &error)),
        }
    }

    /// Removes a file or an empty folder. Returns true if it existed.
    pub(super) fn remove(&self, path: &FilePath, quota: &Quota) -> Result<bool, Failure> {
        let Some(entry) = self.stat(path)? else { return Ok(false) };
        let (dir, name) = self.parent(path)?;
        let removed = if entry.folder { dir.remove_dir(name) } else { dir.remove_file(name) };
        match removed.and_then(|()| sync(&dir)) {
            Ok(()) => {
                quota.give_back(Used { bytes: entry.size, entries: 1 });
                Ok(true)
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(error) if error.kind() == io::ErrorKind::DirectoryNotEmpty => {
                Err(Failure::new(code::NOT_EMPTY, format!("the folder `{path}` is not empty")))
            }
            Err(error) => Err(open_failure(&dir, name, path, &error)),
        }
    }

    /// Opens the folder that contains the last name of a path. Returns the folder and the name.
    fn parent<'a>(&self, path: &'a FilePath) -> Result<(Dir, &'a str), Failure> {
        let (folders, name) = path.split().ok_or_else(|| not_a_file(path))?;
        let dir = self.folder(folders).map_err(|found| found.failure(path))?;
        if is_store_file(name) && dir.symlink_metadata(STORE_FILE).is_ok() {
            return Err(Obstacle::Store.failure(path));
        }
        Ok((dir, name))
    }

    /// Opens the folder at a path, one name after the other. Refuses links, and folders that contain a store of runs.
    fn folder(&self, names: &[Box<str>]) -> Result<Dir, Obstacle> {
        let mut dir = self.dir.try_clone().map_err(Obstacle::Failed)?;
        for name in names {
            dir = dir.open_dir_nofollow(&**name).map_err(|error| Obstacle::from_error(&dir, name, error))?;
            if dir.symlink_metadata(STORE_FILE).is_ok() {
                return Err(Obstacle::Store);
            }
        }
        Ok(dir)
    }
}

/// The reason that a folder cannot be opened.
enum Obstacle {
    Nothing,
    Link,
    /// The folder contains a store with the data of all tenants.
    Store,
    NoFolder,
    Failed(io::Error),
}

impl Obstacle {
    fn from_error(dir: &Dir, name: &str, error: io::Error) -> Obstacle {
        match dir.symlink_metadata(name) {
            Ok(metadata) if metadata.is_symlink() => Obstacle::Link,
            Ok(metadata) if !metadata.is_dir() && error.kind() == io::ErrorKind::NotADirectory => Obstacle::NoFolder,
            _ if error.kind() == io::ErrorKind::NotFound => Obstacle::Nothing,
            _ => Obstacle::Failed(error),
        }
    }

    fn failure(&self, path: &FilePath) -> Failure {
        match self {
            Obstacle::Nothing => Failure::new(codes::FILE_NOT_FOUND, format!("`{path}` does not exist")),
            Obstacle::Link => link_failure(path),
            Obstacle::Store => {
                let message = format!("`{path}` leads into the folder of a store, which belongs to the host");
                Failure::new(codes::DENIED, message)
            }
            Obstacle::NoFolder => {
                Failure::new(codes::INVALID_INPUT, format!("`{path}` has a file in the place of a folder"))
            }
            Obstacle::Failed(error) => failed(&path.to_string(), error),
        }
    }
}

impl Entry {
    /// Returns an entry, or `None` if the path is neither a file nor a folder.
    fn from_metadata(path: FilePath, metadata: &Metadata) -> Option<Entry> {
        if !metadata.is_file() && !metadata.is_dir() {
            return None;
        }
        let modified = metadata.modified().ok().map(cap_std::time::SystemTime::into_std);
        let since = modified.and_then(|modified| modified.duration_since(UNIX_EPOCH).ok());
        let modified_ms = since.map_or(0, |since| u64::try_from(since.as_millis()).unwrap_or(u64::MAX));
        let size = if metadata.is_file() { metadata.len() } else { 0 };
        Some(Entry { path, folder: metadata.is_dir(), size, modified_ms })
    }

    /// Returns the entry in the form of a reply.
    pub(super) fn to_json(&self) -> Json {
        Json::object([
            ("path", Json::from(self.path.to_string())),
            ("kind", Json::from(if self.folder { "folder" } else { "file" })),
            ("size", Json::from(self.size)),
            ("modifiedMs", Json::from(self.modified_ms)),
        ])
    }
}

/// Writes a new file in parts. Sets `unreadable` if its content cannot be read.
fn write_new(dir: &Dir, name: &str, part: ReadPart<'_>, unreadable: &mut Option<Failure>) -> io::Result<()> {
    // An interrupted call may have left this file.
    let _ = dir.remove_file(name);
    let mut file = dir.open_with(name, OpenOptions::new().write(true).create_new(true))?;
    let mut offset = 0;
    loop {
        let bytes = part(offset).map_err(|failure| {
            *unreadable = Some(failure);
            io::Error::other("the content cannot be read")
        })?;
        if bytes.is_empty() {
            return file.sync_all();
        }
        file.write_all(&bytes)?;
        offset += bytes.len() as u64;
    }
}

fn sync(dir: &Dir) -> io::Result<()> {
    // A folder opened only for traversal cannot be synced.
    dir.open(".")?.sync_all()
}

/// Returns the failure for a name that could not be opened. Its code depends on the kind of the entry with this name,
/// such as a link or a file.
fn open_failure(dir: &Dir, name: &str, path: &FilePath, error: &io::Error) -> Failure {
    let again = io::Error::new(error.kind(), error.to_string());
    Obstacle::from_error(dir, name, again).failure(path)
}

fn link_failure(path: &FilePath) -> Failure {
    Failure::new(codes::DENIED, format!("`{path}` contains a link, and the host follows no links"))
}

fn not_a_file(path: &FilePath) -> Failure {
    Failure::new(codes::INVALID_INPUT, format!("`{path}` is not a file"))
}

fn too_large(path: &FilePath, limit: u64) -> Failure {
    Failure::new(code::FILE_TOO_LARGE, format!("`{path}` is larger than {limit} bytes"))
}
