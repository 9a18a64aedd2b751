//! The flows of a tenant with their versions: the flows of a folder and, with a shared store, the
//! [posted](crate::posted) ones. If both have a flow of the same name, the folder's flow is used.
//!
//! | module | contents |
//! |---|---|
//! | `error` | the errors |
//! | `files` | the files of the folder |
//! | [`post`] | posted flows |
//! | [`service`] | runs of flows by name, with a log |
//! | `stored` | the flows and versions that a library returns |
//!
//! | file | contents |
//! |---|---|
//! | `<name>.json` | the newest version of a flow; `<name>.yaml` if its text is not JSON, `<name>.flow.js` for a script |
//! | `.versions/<name>/<n>.json` | version `n` of the flow |
//! | `.versions/.lock` | the lock that a change holds |
//! | `.versions/.new` | the temporary file of a write |
//! | `.versions/.size` | the number of bytes of all versions |
//!
//! Users may add or edit files in the folder directly. An edited file gets the version number after the highest stored
//! one. A file is replaced atomically. If two callers create the same name, one of them wins, also across processes.

mod error;
mod files;
mod misplaced;
pub mod post;
pub mod service;
mod stored;
pub mod versions;

use std::{
    collections::{BTreeMap, BTreeSet},
    hash::{DefaultHasher, Hash, Hasher},
    path::{Path, PathBuf},
    sync::Arc,
    time::SystemTime,
};

use flowcell_contract::Tenant;
use flowcell_flow::{CheckContext, CheckMode, Source, Start, about};

use self::files::{Ending, LibraryFiles, LinkError, Size};
pub use self::{
    error::{LibraryError, PushError},
    misplaced::{Misplaced, misplaced_flows},
    stored::{FlowEntry, FlowFiles, FlowSource, PostedFlow, StoredFlow},
};
use crate::{
    host::{
        Host,
        folder::{Folder, is_flow_name, library_of},
        loaded::LoadedFlow,
        loading,
    },
    posted::{Expects, PostedFlows, PostedText},
};

/// Maximum number of older versions of a flow. If a flow has more, the oldest versions are removed.
pub const MAX_OLDER_VERSIONS: usize = 1_000;
/// Maximum size in bytes of a flow's text.
pub const MAX_FLOW_BYTES: usize = 4 * 1024 * 1024;
/// Maximum number of flows of a library.
pub const MAX_FLOWS: usize = 10_000;
/// Maximum size in bytes of a library's flows with all their versions. Each version counts as at least one disk block.
pub const MAX_LIBRARY_BYTES: u64 = 1 << 30;

/// The author of versions that the operator posts.
const OPERATOR: &str = "operator";

/// The flows of a tenant.
#[derive(Clone, Debug)]
pub struct FlowLibrary {
    folder: PathBuf,
    /// The posted flows of the tenant. `None` if the store is not shared.
    posted: Option<PostedFlows>,
    /// The author of posted versions.
    author: String,
}

/// A version of a flow that was found for a check or a run.
struct Found {
    source: Source,
    version: u32,
    /// The text and files of a posted version. `None` for a flow of the folder.
    posted: Option<Arc<PostedText>>,
}

/// The newest version of a flow, and its kept older versions.
struct CurrentFlow {
    ending: Ending,
    text: String,
    version: u32,
    older: BTreeMap<u32, Ending>,
}

impl FlowLibrary {
    /// Opens the flows of a folder. The folder may be missing until the first flow is created.
    pub fn open(folder: impl Into<PathBuf>) -> FlowLibrary {
        FlowLibrary { folder: folder.into(), posted: None, author: OPERATOR.to_owned() }
    }

    /// Opens the flows of a tenant in the folder of a server. The flows of `local` are directly in that folder. The
    /// flows of another tenant are in `.tenants/NAME/flows` below it.
    pub fn of_tenant(folder: &Path, tenant: &Tenant) -> FlowLibrary {
        FlowLibrary::open(library_of(folder, tenant))
    }

    /// Opens the flows of a host's tenant: those in the folder of a server, and the posted ones.
    pub fn of_host(folder: &Path, host: &Host) -> FlowLibrary {
        FlowLibrary::of_tenant(folder, host.tenant()).with_posted_of(host)
    }

    /// Adds the posted flows of a host's tenant. A host whose store is not shared has none.
    pub fn with_posted_of(self, host: &Host) -> FlowLibrary {
        FlowLibrary { posted: host.posted(), ..self }
    }

    /// Sets the author of the versions that are posted. Default: `operator`.
    pub fn by(self, author: &str) -> FlowLibrary {
        FlowLibrary { author: author.to_owned(), ..self }
    }

    /// Returns whether flows are posted to a shared store.
    pub fn is_shared(&self) -> bool {
        self.posted.is_some()
    }

    /// Returns the folder.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Returns all flows, sorted by name.
    pub fn list(&self) -> Result<Vec<FlowEntry>, LibraryError> {
        Ok(self.page(None, |_| true)?.0)
    }

    /// Returns the flows whose names come after `after`, sorted by name, until `fits` refuses one. `None` begins with
    /// the first flow. Also returns true if there are more flows.
    pub fn page(
        &self,
        after: Option<&str>,
        mut fits: impl FnMut(&FlowEntry) -> bool,
    ) -> Result<(Vec<FlowEntry>, bool), LibraryError> {
        let (files, mut entries) = (self.files()?, Vec::new());
        let names = self.names_in(files.as_ref())?;
        for name in names.into_iter().filter(|name| after.is_none_or(|after| name.as_str() > after)) {
            let present = match files.as_ref().map_or(Ok(None), |files| self.find_current(files, &name)) {
                // A link that leads outside must not hide the other flows.
                Err(error @ LibraryError::Link(_)) => {
                    tracing::warn!("the list omits the flow `{name}`: {error}");
                    continue;
                }
                present => present?,
            };
            let posted = self.posted_entry(&name)?;
            let entry = match (present, posted) {
                (Some(present), posted) => {
                    let description = about(&flow_source(&name, present.ending, present.text)).description;
                    let hidden_version = posted.map(|posted| posted.version);
                    FlowEntry {
                        name,
                        version: present.version,
                        description,
                        source: FlowSource::Folder,
                        hidden_version,
                    }
                }
                (None, Some(posted)) => posted,
                // A flow that is deleted meanwhile is skipped.
                (None, None) => continue,
            };
            if !fits(&entry) {
                return Ok((entries, true));
            }
            entries.push(entry);
        }
        Ok((entries, false))
    }

    /// Returns the sorted names of all flows.
    pub fn names(&self) -> Result<Vec<String>, LibraryError> {
        Ok(self.names_in(self.files()?.as_ref())?.into_iter().collect())
    }

    /// Returns the names of at most `most` flows, to suggest one.
    pub(crate) fn some_names(&self, most: usize) -> Vec<String> {
        Folder::of_library(self.folder.clone()).with_posted(self.posted.clone()).flow_names(most)
    }

    fn names_in(&self, files: Option<&LibraryFiles>) -> Result<BTreeSet<String>, LibraryError> {
        let mut names = files.map_or_else(|| Ok(BTreeSet::new()), |files| self.map_io(files.names()))?;
        if let Some(posted) = &self.posted {
            names.extend(posted.flows()?.keys().cloned());
        }
        Ok(names)
    }

    /// Returns a number that changes when a flow is added, changed or removed.
    pub fn stamp(&self) -> Result<u64, LibraryError> {
        let mut hasher = DefaultHasher::new();
        self.file_times()?.hash(&mut hasher);
        self.posted.as_ref().map(PostedFlows::stamp).transpose()?.hash(&mut hasher);
        Ok(hasher.finish())
    }

    /// Returns the files of all flows in the folder, each with its size and time of modification.
    pub(crate) fn file_times(&self) -> Result<BTreeSet<(String, u64, SystemTime)>, LibraryError> {
        Ok(self.files()?.map(|files| self.map_io(files.file_times())).transpose()?.unwrap_or_default())
    }

    /// Returns a version of a flow. Default: the newest one.
    pub fn get(&self, name: &str, version: Option<u32>) -> Result<StoredFlow, LibraryError> {
        self.find(name, version).map(|(flow, _)| flow)
    }

    /// Returns the versions of a flow, in ascending order.
    pub fn versions(&self, name: &str) -> Result<Vec<u32>, LibraryError> {
        if let Some(head) = self.posted_head(name)? {
            return Ok(head.versions.iter().map(|version| version.version).collect());
        }
        let (_, present) = self.find_flow(name)?;
        let older = present.older.into_keys().filter(|version| *version < present.version);
        Ok(older.chain([present.version]).collect())
    }

    /// Adds a flow under the name in its text. It fails if the flow has errors or the name is taken.
    pub fn create(&self, host: &Host, text: &str) -> Result<StoredFlow, LibraryError> {
        self.create_as(host, &name_in_text(text)?, text)
    }

    /// Adds a flow under a name. If the text has a name, it must be the same.
    pub fn create_as(&self, host: &Host, name: &str, text: &str) -> Result<StoredFlow, LibraryError> {
        self.add(host, name, Ending::of_text(text), text)
    }

    /// Adds a script as a flow under a name.
    pub fn create_script(&self, host: &Host, name: &str, text: &str) -> Result<StoredFlow, LibraryError> {
        self.add(host, name, Ending::Script, text)
    }

    fn add(&self, host: &Host, name: &str, ending: Ending, text: &str) -> Result<StoredFlow, LibraryError> {
        if self.posted.is_some() {
            return self.post_version(host, name, ending, PostedText::from(text), Expects::Free);
        }
        self.check(host, name, ending, text, None)?;
        let files = self.map_io(LibraryFiles::create(&self.folder))?;
        let _lock = self.map_io(files.lock())?;
        if self.map_io(files.newest(name))?.is_some() {
            return Err(LibraryError::Exists(name.to_owned()));
        }
        if self.map_io(files.names())?.len() >= MAX_FLOWS {
            return Err(LibraryError::Full);
        }
        let size = self.size_with(&files, text)?;
        // A deletion may have left versions behind when its process died.
        self.map_io(files.remove_all_older(name))?;
        self.map_io(files.write(name, ending, text))?;
        self.map_io(files.write_size(size))?;
        Ok(self.to_stored(name, 1, ending, text.to_owned()))
    }

    /// Appends a version to the flow that the text names. A text that equals the newest version adds none.
    pub fn append(&self, host: &Host, text: &str) -> Result<StoredFlow, LibraryError> {
        self.append_as(host, &name_in_text(text)?, text)
    }

    /// Appends a version to a flow. If the text has a name, it must be the name of the flow.
    pub fn append_as(&self, host: &Host, name: &str, text: &str) -> Result<StoredFlow, LibraryError> {
        self.append_after(host, name, text, None)
    }

    /// Appends a version to a flow. Fails if `after` is given and not the newest version, unless the newest version has the
    /// same text.
    fn append_after(
        &self,
        host: &Host,
        name: &str,
        text: &str,
        after: Option<u32>,
    ) -> Result<StoredFlow, LibraryError> {
        let ending = Ending::of_text(text);
        if self.posted.is_some() {
            return self.post_version(host, name, ending, PostedText::from(text), Expects::Flow);
        }
        self.check(host, name, ending, text, None)?;
        let unknown = || LibraryError::Unknown(name.to_owned());
        let files = self.files()?.ok_or_else(unknown)?;
        let _lock = self.map_io(files.lock())?;
        let mut before = self.find_current(&files, name)?.ok_or_else(unknown)?;
        if before.text == text && before.ending == ending {
            return Ok(self.to_stored(name, before.version, ending, before.text));
        }
        if after.is_some_and(|after| after != before.version) {
            return Err(LibraryError::Moved { name: name.to_owned(), newest: before.version });
        }
        let size = self.size_with(&files, text)?;
        // A process that dies between the two writes leaves the newest version also as an older one.
        if !before.older.contains_key(&before.version) {
            self.map_io(files.write_older(name, before.version, before.ending, &before.text))?;
            before.older.insert(before.version, before.ending);
        }
        self.map_io(files.write(name, ending, text))?;
        if before.ending != ending {
            self.map_io(files.remove(name, before.ending))?;
        }
        self.map_io(files.write_size(size))?;
        let too_many = before.older.len().saturating_sub(MAX_OLDER_VERSIONS);
        for (version, ending) in before.older.iter().take(too_many) {
            self.map_io(files.remove_older(name, *version, *ending))?;
        }
        Ok(self.to_stored(name, before.version + 1, ending, text.to_owned()))
    }

    /// Removes a flow with all its versions. Runs of the flow continue, since they have pinned its content. With a
    /// shared store, a flow of the folder is refused.
    pub fn delete(&self, name: &str) -> Result<(), LibraryError> {
        if let Some(posted) = &self.posted {
            check_name(name)?;
            self.refuse_deployed(name)?;
            let found = posted.delete(name, MAX_FLOWS)?;
            return if found { Ok(()) } else { Err(LibraryError::Unknown(name.to_owned())) };
        }
        let (files, _) = self.find_flow(name)?;
        let _lock = self.map_io(files.lock())?;
        while let Some((ending, _)) = self.map_io(files.newest(name))? {
            self.map_io(files.remove(name, ending))?;
        }
        self.map_io(files.remove_all_older(name))
    }

    /// Loads a version of a flow, so that `host` can run it. `None` means the newest version. Since the flow is already
    /// stored, a rule that is newer than the flow and that the flow violates only gives a warning.
    pub fn load(&self, host: &Host, name: &str, version: Option<u32>) -> Result<LoadedFlow, LibraryError> {
        let Found { source, version, posted } = match version {
            Some(version) => self.found(self.find(name, Some(version))?)?,
            None => self.newest(name)?.ok_or_else(|| LibraryError::Unknown(name.to_owned()))?,
        };
        let folder = Arc::new(self.surroundings(&source, CheckMode::Stored, posted));
        let checked = loading::check_in(host, &source, folder, &Start::default());
        let flow = checked.flow.ok_or(LibraryError::Invalid(checked.diagnostics))?;
        Ok(LoadedFlow { version: Some(version), ..flow })
    }

    /// Returns the newest version of a flow if the host has already checked this version, and if that check looked up
    /// nothing outside of the flow's text. Otherwise returns `None`. The method reads only the flow itself.
    pub fn checked_before(&self, host: &Host, name: &str) -> Result<Option<LoadedFlow>, LibraryError> {
        let Some(Found { source, version, posted }) = self.newest(name)? else { return Ok(None) };
        let checked = host.checked_before(&source, &self.surroundings(&source, CheckMode::Stored, posted));
        let flow = checked.and_then(|checked| checked.flow);
        Ok(flow.map(|flow| LoadedFlow { version: Some(version), ..flow }))
    }

    /// Returns the newest version of a flow.
    fn newest(&self, name: &str) -> Result<Option<Found>, LibraryError> {
        check_name(name)?;
        let files = self.files()?;
        let newest = files.map_or(Ok(None), |files| self.find_current(&files, name))?;
        match newest {
            Some(newest) => {
                let source = flow_source(name, newest.ending, newest.text);
                Ok(Some(Found { source, version: newest.version, posted: None }))
            }
            None => self.newest_posted(name),
        }
    }

    /// Returns a stored version for a check.
    fn found(&self, (stored, ending): (StoredFlow, Ending)) -> Result<Found, LibraryError> {
        let posted = stored.posted.as_ref().map(|version| self.posted_text(&stored.name, version)).transpose()?;
        Ok(Found { source: flow_source(&stored.name, ending, stored.text), version: stored.version, posted })
    }

    fn find(&self, name: &str, version: Option<u32>) -> Result<(StoredFlow, Ending), LibraryError> {
        if let Some(head) = self.posted_head(name)? {
            return self.find_posted(name, &head, version);
        }
        let (files, present) = self.find_flow(name)?;
        let wanted = version.unwrap_or(present.version);
        if wanted == present.version {
            return Ok((self.to_stored(name, wanted, present.ending, present.text), present.ending));
        }
        let missing =
            || LibraryError::UnknownVersion { name: name.to_owned(), version: wanted, newest: present.version };
        let ending = *present.older.get(&wanted).ok_or_else(missing)?;
        let text = self.map_io(files.read_older(name, wanted, ending))?.ok_or_else(missing)?;
        Ok((self.to_stored(name, wanted, ending, text), ending))
    }

    fn find_flow(&self, name: &str) -> Result<(LibraryFiles, CurrentFlow), LibraryError> {
        check_name(name)?;
        let unknown = || LibraryError::Unknown(name.to_owned());
        let files = self.files()?.ok_or_else(unknown)?;
        let present = self.find_current(&files, name)?.ok_or_else(unknown)?;
        Ok((files, present))
    }

    /// Reads the state of a flow. Readers take no lock, so the method reads again if another process has changed the
    /// flow meanwhile.
    fn find_current(&self, files: &LibraryFiles, name: &str) -> Result<Option<CurrentFlow>, LibraryError> {
        loop {
            let older = self.map_io(files.older_versions(name))?;
            let Some((ending, text)) = self.map_io(files.newest(name))? else { return Ok(None) };
            let version = match older.last_key_value() {
                None => 1,
                Some((last, kept)) if self.map_io(files.read_older(name, *last, *kept))?.as_ref() == Some(&text) => {
                    *last
                }
                Some((last, _)) => last + 1,
            };
            if self.map_io(files.older_versions(name))? == older {
                return Ok(Some(CurrentFlow { ending, text, version, older }));
            }
        }
    }

    /// Checks that a text is a flow of this name without errors. `ending` is the ending of its file. `posted` has the
    /// files beside a flow to post. Returns the flow's description.
    fn check(
        &self,
        host: &Host,
        name: &str,
        ending: Ending,
        text: &str,
        posted: Option<Arc<PostedText>>,
    ) -> Result<Option<String>, LibraryError> {
        check_name(name)?;
        check_size(text)?;
        let source = flow_source(name, ending, text.to_owned());
        let about = about(&source);
        let said = about.name.filter(|said| said != name);
        let folder = Arc::new(self.surroundings(&source, CheckMode::Adding, posted));
        let checked = loading::check_in(host, &source, folder, &Start::default());
        match (checked.flow, said) {
            (None, _) => Err(LibraryError::Invalid(checked.diagnostics)),
            (Some(_), Some(said)) => Err(LibraryError::OtherName { name: name.to_owned(), said }),
            (Some(_), None) => Ok(about.description),
        }
    }

    fn to_stored(&self, name: &str, version: u32, ending: Ending, text: String) -> StoredFlow {
        let file = self.folder.join(ending.file_name(name));
        StoredFlow { name: name.to_owned(), version, file, text, posted: None }
    }

    /// Returns the folder that a flow may read: the folder of the flow's own file, or the files that were posted with
    /// it.
    fn surroundings(&self, source: &Source, rules: CheckMode, posted: Option<Arc<PostedText>>) -> Folder {
        let file = self.folder.join(&source.name);
        let folder = Folder::of_library(file.parent().map(Path::to_path_buf).unwrap_or_default());
        let folder = folder.with_mode(rules).with_posted(self.posted.clone());
        match posted {
            Some(posted) => folder.with_files_of(posted),
            None => folder,
        }
    }

    /// Returns the size that the library would have with one more text. Fails if this size exceeds the limit of the
    /// library.
    fn size_with(&self, files: &LibraryFiles, text: &str) -> Result<Size, LibraryError> {
        let noted = self.map_io(files.size())?.with_text(text);
        // The recorded size still includes deleted versions.
        let size =
            if noted.bytes > MAX_LIBRARY_BYTES { self.map_io(files.count_size())?.with_text(text) } else { noted };
        if size.bytes > MAX_LIBRARY_BYTES { Err(LibraryError::Full) } else { Ok(size) }
    }

    fn files(&self) -> Result<Option<LibraryFiles>, LibraryError> {
        self.map_io(LibraryFiles::open(&self.folder))
    }

    fn map_io<T>(&self, result: std::io::Result<T>) -> Result<T, LibraryError> {
        result.map_err(|source| match source.get_ref().and_then(|why| why.downcast_ref::<LinkError>()) {
            Some(LinkError(file)) => LibraryError::Link(file.clone()),
            None => LibraryError::Folder { folder: self.folder.clone(), source },
        })
    }
}

/// Builds a source whose name is the file's name without its folder, since readers of diagnostics need not know the
/// folder.
fn flow_source(name: &str, ending: Ending, text: String) -> Source {
    Source { name: ending.file_name(name), text }
}

/// Returns the name in a flow's text.
fn name_in_text(text: &str) -> Result<String, LibraryError> {
    check_size(text)?;
    about(&Source { name: String::new(), text: text.to_owned() }).name.ok_or(LibraryError::NoName)
}

fn check_size(text: &str) -> Result<(), LibraryError> {
    if text.len() <= MAX_FLOW_BYTES { Ok(()) } else { Err(LibraryError::TooLarge) }
}

fn check_name(name: &str) -> Result<(), LibraryError> {
    if is_flow_name(name) { Ok(()) } else { Err(LibraryError::BadName(name.chars().take(64).collect())) }
}
