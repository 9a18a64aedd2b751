//! `wasi:filesystem`: the tenant's folder as `/`, by calls of the capability `files`.
//!
//! Opening a file reads it completely. Closing or syncing a changed file writes it completely. So the grants, quotas
//! and the record of calls are the same as for other calls, and a repeated attempt finds the same content.
//!
//! The host writes closed files before the next call, and at the latest before the attempt's answer counts. If that
//! fails, the attempt fails. The host supports neither links nor setting times. A folder exists only through the
//! files in it, so making one does nothing.

use std::vec;

use flowcell_contract::{BINARY, BuiltIn, Failure, Json, Value, code};
use wasmtime::component::{HasData, Resource};
use wasmtime_wasi::p2::{
    DynInputStream, DynOutputStream, FsError, FsResult,
    bindings::{
        clocks::wall_clock::Datetime,
        filesystem::{
            preopens,
            types::{
                self, Advice, Descriptor, DescriptorFlags, DescriptorStat, DescriptorType, DirectoryEntry,
                DirectoryEntryStream, ErrorCode, HostDescriptor, HostDirectoryEntryStream, MetadataHashValue,
                NewTimestamp, OpenFlags, PathFlags,
            },
        },
    },
};

use super::content::{Budget, Opened, Reader, Writer};
use crate::sandbox::Sandbox;

/// The open files of an attempt, and the closed files that are not written yet.
#[derive(Default)]
pub(crate) struct Folders {
    budget: Budget,
    unwritten: Vec<Opened>,
}

/// The sandbox behind `wasi:filesystem` of a node type that asked for `files`.
pub(crate) struct Folder<'a>(pub(crate) &'a mut Sandbox);

impl HasData for Folders {
    type Data<'a> = Folder<'a>;
}

/// The target of a descriptor.
enum Target {
    /// A folder by its path. The tenant's own folder has the empty path.
    Folder(String),
    File(Opened),
}

/// The entries of a folder that the guest has not read yet.
struct Listing(vec::IntoIter<DirectoryEntry>);

/// Writes the closed files. Fails with the first write that fails.
pub(crate) async fn write_back(sandbox: &mut Sandbox) -> Result<(), Failure> {
    for file in std::mem::take(&mut sandbox.folders.unwritten) {
        write_file(sandbox, &file).await?;
    }
    Ok(())
}

async fn write_file(sandbox: &mut Sandbox, file: &Opened) -> Result<(), Failure> {
    let Some(bytes) = file.take_changed() else { return Ok(()) };
    let kept = Value::from(sandbox.calls.keep(bytes, BINARY)?);
    let args = [("path", Json::from(file.path())), ("file", kept.json().clone())];
    sandbox.send(BuiltIn::Files, "write", Json::object(args)).await.map(drop)
}

impl Folder<'_> {
    fn push(&mut self, target: Target) -> FsResult<Resource<Descriptor>> {
        Ok(Resource::new_own(self.0.table.push(target)?.rep()))
    }

    fn target(&self, descriptor: &Resource<Descriptor>) -> FsResult<&Target> {
        Ok(self.0.table.get(&Resource::<Target>::new_borrow(descriptor.rep()))?)
    }

    fn file(&self, descriptor: &Resource<Descriptor>) -> FsResult<Opened> {
        match self.target(descriptor)? {
            Target::File(file) => Ok(file.clone()),
            Target::Folder(_) => Err(ErrorCode::IsDirectory.into()),
        }
    }

    /// Returns the path of a name that is relative to a folder.
    fn path(&self, folder: &Resource<Descriptor>, path: &str) -> FsResult<String> {
        match self.target(folder)? {
            Target::Folder(folder) => Ok(join_path(folder, path)?),
            Target::File(_) => Err(ErrorCode::NotDirectory.into()),
        }
    }

    async fn ask(
        &mut self,
        function: &str,
        path: &str,
        more: Option<(&'static str, Json)>,
    ) -> FsResult<Result<Value, Failure>> {
        let args = Json::object([("path", Json::from(path))].into_iter().chain(more));
        let reply = self.0.call(BuiltIn::Files, function, args).await.map_err(FsError::trap)?;
        self.0.update_clock();
        Ok(reply)
    }

    /// Converts a failure to an error code for the guest. Logs a denial, because the code does not tell the guest the
    /// reason.
    async fn error_code(&mut self, failure: Failure) -> FsError {
        if &*failure.code == code::DENIED {
            self.0.log("warn", failure.message.clone()).await;
        }
        let code = match &*failure.code {
            code::DENIED => ErrorCode::NotPermitted,
            code::INVALID_INPUT => ErrorCode::Invalid,
            code::FILE_NOT_FOUND => ErrorCode::NoEntry,
            "file_too_large" => ErrorCode::FileTooLarge,
            "not_empty" => ErrorCode::NotEmpty,
            "quota_exceeded" => ErrorCode::Quota,
            _ => ErrorCode::Io,
        };
        code.into()
    }

    async fn perform(&mut self, function: &str, path: &str, more: Option<(&'static str, Json)>) -> FsResult<Value> {
        match self.ask(function, path, more).await? {
            Ok(value) => Ok(value),
            Err(failure) => Err(self.error_code(failure).await),
        }
    }

    async fn read_file(&mut self, path: &str) -> FsResult<Result<Value, Failure>> {
        self.ask("read", path, Some(("as", Json::from("file")))).await
    }

    /// Returns the properties of a path, or `None` if nothing exists there. A folder without a grant of its own is
    /// visible if the flow grants something below it.
    async fn stat_path(&mut self, path: &str) -> FsResult<Option<DescriptorStat>> {
        if path.is_empty() {
            return Ok(Some(stat_of_folder()));
        }
        let failure = match self.ask("stat", path, None).await? {
            Ok(entry) => return Ok(stat_of(entry.json())),
            Err(failure) => failure,
        };
        if &*failure.code == code::DENIED && self.ask("list", path, None).await?.is_ok() {
            return Ok(Some(stat_of_folder()));
        }
        Err(self.error_code(failure).await)
    }

    /// Opens a file and reads its content. With `create`, a missing file is empty.
    async fn open(&mut self, path: &str, create: bool) -> FsResult<Target> {
        let failure = match self.read_file(path).await? {
            Ok(reply) => {
                let blob = reply.json().get("file").and_then(|file| Value::from(file.clone()).blob());
                let bytes = self.0.calls.bytes(&blob.ok_or(ErrorCode::Io)?);
                let bytes = bytes.map_err(|_| ErrorCode::Io)?;
                return Ok(Target::File(Opened::read(path, &bytes, &self.0.folders.budget)?));
            }
            Err(failure) => failure,
        };
        match &*failure.code {
            code::FILE_NOT_FOUND if create => Ok(Target::File(Opened::empty(path, &self.0.folders.budget))),
            code::DENIED | code::INVALID_INPUT => match self.stat_path(path).await? {
                Some(stat) if stat.type_ == DescriptorType::Directory => Ok(Target::Folder(path.to_owned())),
                _ => Err(self.error_code(failure).await),
            },
            _ => Err(self.error_code(failure).await),
        }
    }
}

impl preopens::Host for Folder<'_> {
    fn get_directories(&mut self) -> wasmtime::Result<Vec<(Resource<Descriptor>, String)>> {
        let root = self.0.table.push(Target::Folder(String::new()))?;
        Ok(vec![(Resource::new_own(root.rep()), "/".to_owned())])
    }
}

impl types::Host for Folder<'_> {
    fn convert_error_code(&mut self, error: FsError) -> wasmtime::Result<ErrorCode> {
        error.downcast()
    }

    fn filesystem_error_code(&mut self, error: Resource<wasmtime::Error>) -> wasmtime::Result<Option<ErrorCode>> {
        Ok(self.0.table.get(&error)?.downcast_ref::<ErrorCode>().copied())
    }
}

impl HostDescriptor for Folder<'_> {
    async fn open_at(
        &mut self,
        folder: Resource<Descriptor>,
        _: PathFlags,
        path: String,
        how: OpenFlags,
        flags: DescriptorFlags,
    ) -> FsResult<Resource<Descriptor>> {
        let path = self.path(&folder, &path)?;
        // The host checks that this is a folder only when the guest looks into it.
        if path.is_empty() || how.contains(OpenFlags::DIRECTORY) {
            return self.push(Target::Folder(path));
        }
        let create = how.contains(OpenFlags::CREATE);
        if create && how.contains(OpenFlags::EXCLUSIVE) && self.stat_path(&path).await?.is_some() {
            return Err(ErrorCode::Exist.into());
        }
        let writes = flags.contains(DescriptorFlags::WRITE);
        let target = if how.contains(OpenFlags::TRUNCATE) && create && writes {
            Target::File(Opened::empty(&path, &self.0.folders.budget))
        } else {
            self.open(&path, create).await?
        };
        if let (Target::File(file), true) = (&target, how.contains(OpenFlags::TRUNCATE)) {
            file.resize(0)?;
        }
        self.push(target)
    }

    fn drop(&mut self, descriptor: Resource<Descriptor>) -> wasmtime::Result<()> {
        let target = self.0.table.delete(Resource::<Target>::new_own(descriptor.rep()))?;
        if let Target::File(file) = target
            && file.is_changed()
        {
            self.0.folders.unwritten.push(file);
        }
        Ok(())
    }

    fn read_via_stream(&mut self, file: Resource<Descriptor>, at: u64) -> FsResult<Resource<DynInputStream>> {
        let stream: DynInputStream = Box::new(Reader { file: self.file(&file)?, at });
        Ok(self.0.table.push(stream)?)
    }

    fn write_via_stream(&mut self, file: Resource<Descriptor>, at: u64) -> FsResult<Resource<DynOutputStream>> {
        let stream: DynOutputStream = Box::new(Writer { file: self.file(&file)?, at: Some(at) });
        Ok(self.0.table.push(stream)?)
    }

    fn append_via_stream(&mut self, file: Resource<Descriptor>) -> FsResult<Resource<DynOutputStream>> {
        let stream: DynOutputStream = Box::new(Writer { file: self.file(&file)?, at: None });
        Ok(self.0.table.push(stream)?)
    }

    async fn read(&mut self, file: Resource<Descriptor>, most: u64, at: u64) -> FsResult<(Vec<u8>, bool)> {
        let bytes = self.file(&file)?.read_at(at, usize::try_from(most).unwrap_or(usize::MAX));
        let ended = bytes.is_empty() && most > 0;
        Ok((bytes.into(), ended))
    }

    async fn write(&mut self, file: Resource<Descriptor>, bytes: Vec<u8>, at: u64) -> FsResult<u64> {
        self.file(&file)?.write_at(at, &bytes)?;
        Ok(bytes.len() as u64)
    }

    async fn set_size(&mut self, file: Resource<Descriptor>, size: u64) -> FsResult<()> {
        let size = usize::try_from(size).map_err(|_| ErrorCode::FileTooLarge)?;
        Ok(self.file(&file)?.resize(size)?)
    }

    async fn sync(&mut self, descriptor: Resource<Descriptor>) -> FsResult<()> {
        let Target::File(file) = self.target(&descriptor)? else { return Ok(()) };
        let file = file.clone();
        match write_file(self.0, &file).await {
            Ok(()) => Ok(()),
            Err(failure) => Err(self.error_code(failure).await),
        }
    }

    async fn sync_data(&mut self, descriptor: Resource<Descriptor>) -> FsResult<()> {
        self.sync(descriptor).await
    }

    async fn stat(&mut self, descriptor: Resource<Descriptor>) -> FsResult<DescriptorStat> {
        Ok(match self.target(&descriptor)? {
            Target::Folder(_) => stat_of_folder(),
            Target::File(file) => stat(DescriptorType::RegularFile, file.len() as u64, None),
        })
    }

    async fn stat_at(&mut self, folder: Resource<Descriptor>, _: PathFlags, path: String) -> FsResult<DescriptorStat> {
        let path = self.path(&folder, &path)?;
        Ok(self.stat_path(&path).await?.ok_or(ErrorCode::NoEntry)?)
    }

    async fn read_directory(&mut self, folder: Resource<Descriptor>) -> FsResult<Resource<DirectoryEntryStream>> {
        let path = self.path(&folder, "")?;
        let listed = self.perform("list", &path, None).await?;
        let entries = listed.json().get("entries").and_then(Json::as_array).unwrap_or_default().iter();
        let entry = |entry: &Json| {
            let path = entry.get("path")?.as_str()?;
            let name = path.rsplit('/').next()?.to_owned();
            Some(DirectoryEntry { type_: stat_of(entry)?.type_, name })
        };
        let entries = entries.map(entry).collect::<Option<Vec<_>>>().ok_or(ErrorCode::Io)?;
        Ok(Resource::new_own(self.0.table.push(Listing(entries.into_iter()))?.rep()))
    }

    async fn create_directory_at(&mut self, folder: Resource<Descriptor>, path: String) -> FsResult<()> {
        // The first file in the folder makes it.
        self.path(&folder, &path).map(drop)
    }

    async fn unlink_file_at(&mut self, folder: Resource<Descriptor>, path: String) -> FsResult<()> {
        let path = self.path(&folder, &path)?;
        let was_there = self.perform("remove", &path, None).await?;
        if *was_there.json() == Json::Bool(true) { Ok(()) } else { Err(ErrorCode::NoEntry.into()) }
    }

    async fn remove_directory_at(&mut self, folder: Resource<Descriptor>, path: String) -> FsResult<()> {
        self.unlink_file_at(folder, path).await
    }

    async fn rename_at(
        &mut self,
        folder: Resource<Descriptor>,
        path: String,
        to: Resource<Descriptor>,
        new: String,
    ) -> FsResult<()> {
        let (path, new) = (self.path(&folder, &path)?, self.path(&to, &new)?);
        let read = match self.read_file(&path).await? {
            Ok(read) => read,
            Err(failure) => return Err(self.error_code(failure).await),
        };
        let file = read.json().get("file").cloned().ok_or(ErrorCode::Io)?;
        self.perform("write", &new, Some(("file", file))).await?;
        self.perform("remove", &path, None).await.map(drop)
    }

    async fn get_type(&mut self, descriptor: Resource<Descriptor>) -> FsResult<DescriptorType> {
        Ok(self.stat(descriptor).await?.type_)
    }

    async fn get_flags(&mut self, descriptor: Resource<Descriptor>) -> FsResult<DescriptorFlags> {
        Ok(match self.target(&descriptor)? {
            Target::Folder(_) => DescriptorFlags::READ | DescriptorFlags::MUTATE_DIRECTORY,
            Target::File(_) => DescriptorFlags::READ | DescriptorFlags::WRITE,
        })
    }

    async fn advise(&mut self, _: Resource<Descriptor>, _: u64, _: u64, _: Advice) -> FsResult<()> {
        Ok(())
    }

    async fn set_times(&mut self, _: Resource<Descriptor>, _: NewTimestamp, _: NewTimestamp) -> FsResult<()> {
        Err(ErrorCode::Unsupported.into())
    }

    async fn set_times_at(
        &mut self,
        _: Resource<Descriptor>,
        _: PathFlags,
        _: String,
        _: NewTimestamp,
        _: NewTimestamp,
    ) -> FsResult<()> {
        Err(ErrorCode::Unsupported.into())
    }

    async fn link_at(
        &mut self,
        _: Resource<Descriptor>,
        _: PathFlags,
        _: String,
        _: Resource<Descriptor>,
        _: String,
    ) -> FsResult<()> {
        Err(ErrorCode::NotPermitted.into())
    }

    async fn symlink_at(&mut self, _: Resource<Descriptor>, _: String, _: String) -> FsResult<()> {
        Err(ErrorCode::NotPermitted.into())
    }

    async fn readlink_at(&mut self, _: Resource<Descriptor>, _: String) -> FsResult<String> {
        Err(ErrorCode::Invalid.into())
    }

    async fn is_same_object(
        &mut self,
        one: Resource<Descriptor>,
        other: Resource<Descriptor>,
    ) -> wasmtime::Result<bool> {
        let table = &self.0.table;
        let path = |descriptor: Resource<Descriptor>| {
            Ok::<_, wasmtime::Error>(table.get(&Resource::<Target>::new_borrow(descriptor.rep()))?.path())
        };
        Ok(path(one)? == path(other)?)
    }

    async fn metadata_hash(&mut self, descriptor: Resource<Descriptor>) -> FsResult<MetadataHashValue> {
        Ok(hash(self.target(&descriptor)?.path()))
    }

    async fn metadata_hash_at(
        &mut self,
        folder: Resource<Descriptor>,
        _: PathFlags,
        path: String,
    ) -> FsResult<MetadataHashValue> {
        Ok(hash(&self.path(&folder, &path)?))
    }
}

impl HostDirectoryEntryStream for Folder<'_> {
    async fn read_directory_entry(
        &mut self,
        listing: Resource<DirectoryEntryStream>,
    ) -> FsResult<Option<DirectoryEntry>> {
        Ok(self.0.table.get_mut(&Resource::<Listing>::new_borrow(listing.rep()))?.0.next())
    }

    fn drop(&mut self, listing: Resource<DirectoryEntryStream>) -> wasmtime::Result<()> {
        self.0.table.delete(Resource::<Listing>::new_own(listing.rep()))?;
        Ok(())
    }
}

impl Target {
    fn path(&self) -> &str {
        match self {
            Target::Folder(path) => path,
            Target::File(file) => file.path(),
        }
    }
}

/// Joins a folder and a relative path. Fails if the path leads out of `/`.
fn join_path(folder: &str, path: &str) -> Result<String, ErrorCode> {
    if path.starts_with('/') {
        return Err(ErrorCode::NotPermitted);
    }
    let mut names: Vec<&str> = folder.split('/').filter(|name| !name.is_empty()).collect();
    for name in path.split('/') {
        match name {
            "" | "." => {}
            ".." => _ = names.pop().ok_or(ErrorCode::NotPermitted)?,
            name => names.push(name),
        }
    }
    Ok(names.join("/"))
}

fn stat(type_: DescriptorType, size: u64, modified: Option<Datetime>) -> DescriptorStat {
    DescriptorStat {
        type_,
        link_count: 1,
        size,
        data_access_timestamp: None,
        data_modification_timestamp: modified,
        status_change_timestamp: None,
    }
}

fn stat_of_folder() -> DescriptorStat {
    stat(DescriptorType::Directory, 0, None)
}

/// Converts an entry of the capability. Returns `None` for `null`, which means that nothing exists there.
fn stat_of(entry: &Json) -> Option<DescriptorStat> {
    let kind = match entry.get("kind")?.as_str()? {
        "folder" => DescriptorType::Directory,
        _ => DescriptorType::RegularFile,
    };
    let ms = entry.get("modifiedMs")?.as_u64()?;
    let modified = Datetime { seconds: ms / 1_000, nanoseconds: (ms % 1_000) as u32 * 1_000_000 };
    Some(stat(kind, entry.get("size")?.as_u64()?, Some(modified)))
}

/// Returns a hash of a path, by which the guest distinguishes files.
fn hash(path: &str) -> MetadataHashValue {
    let hash = blake3::hash(path.as_bytes());
    let half = |from: usize| u64::from_le_bytes(std::array::from_fn(|index| hash.as_bytes()[from + index]));
    MetadataHashValue { lower: half(0), upper: half(8) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_path_leads_out() {
        let cases = [
            ("", "a/b", Some("a/b")),
            ("a", "./b//c/", Some("a/b/c")),
            ("a", "../b", Some("b")),
            ("a/b", "../..", Some("")),
            ("a", "../..", None),
            ("", "..", None),
            ("a", "/etc", None),
        ];
        for (folder, path, there) in cases {
            assert_eq!(join_path(folder, path).ok().as_deref(), there, "{folder} {path}");
        }
    }
}
