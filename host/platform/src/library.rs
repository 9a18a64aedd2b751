//! A folder of flows, each with the versions that it had.
//!
//! | file | what it is |
//! |---|---|
//! | `<name>.json` | the newest version of a flow; `<name>.yaml` if its text is no JSON, `<name>.flow.js` if it is a script |
//! | `.versions/<name>/<n>.json` | what the flow was as version `n` |
//! | `.versions/.lock`, `.versions/.new`, `.versions/.size` | held while something changes; what is being written; bytes of all versions |
//!
//! A file that somebody puts there, or edits, is as good as one that was created: its version is the one after those that
//! are kept. A file is replaced whole or not at all, and of two that create one name one wins, also in two processes.

mod error;
mod files;
pub mod service;

use std::{
    collections::BTreeMap,
    hash::{DefaultHasher, Hash, Hasher},
    path::{Path, PathBuf},
    sync::Arc,
};

use flowcell_contract::Tenant;
use flowcell_flow::{CheckMode, Source, Start, about};

pub use self::error::LibraryError;
use self::files::{Ending, Files, LinkError, Size};
use crate::host::{
    Host,
    folder::{Folder, is_flow_name, library_of},
    loaded::LoadedFlow,
};

/// Older versions of a flow that are kept; of more the oldest go.
pub const OLDER_VERSIONS: usize = 1_000;
/// Bytes of a flow's text.
pub const FLOW_BYTES: usize = 4 * 1024 * 1024;
/// Flows of a library.
pub const FLOWS: usize = 10_000;
/// Bytes of a library's flows with all their versions, each counted as a block of a disk at least.
pub const LIBRARY_BYTES: u64 = 1 << 30;

/// The flows of a folder. It is no part of it whose folder that is.
#[derive(Clone, Debug)]
pub struct FlowLibrary {
    folder: PathBuf,
}

/// A flow as a list shows it.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct FlowEntry {
    /// Its name, which is its file's.
    pub name: String,
    /// Its newest version.
    pub version: u32,
    /// What it says of itself.
    pub description: Option<String>,
}

/// A version of a flow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredFlow {
    /// The flow's name.
    pub name: String,
    /// Which version it is.
    pub version: u32,
    /// The file of the flow, as messages show it. Older versions are shown under it too.
    pub file: PathBuf,
    /// What it says.
    pub text: String,
}

/// The newest version, and what is kept of those before.
struct Present {
    ending: Ending,
    text: String,
    version: u32,
    older: BTreeMap<u32, Ending>,
}

impl FlowLibrary {
    /// The flows of a folder, which need not be there before the first one is created.
    pub fn open(folder: impl Into<PathBuf>) -> FlowLibrary {
        FlowLibrary { folder: folder.into() }
    }

    /// The flows of a tenant in the folder of a server: those of `local` are in it, those of others in `.tenants` below it.
    pub fn of_tenant(folder: &Path, tenant: &Tenant) -> FlowLibrary {
        FlowLibrary::open(library_of(folder, tenant))
    }

    /// The folder.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// All flows, by name.
    pub fn list(&self) -> Result<Vec<FlowEntry>, LibraryError> {
        Ok(self.page(None, |_| true)?.0)
    }

    /// The flows after a name, in order, as long as `fits` says so; and whether there are more.
    pub fn page(
        &self,
        after: Option<&str>,
        mut fits: impl FnMut(&FlowEntry) -> bool,
    ) -> Result<(Vec<FlowEntry>, bool), LibraryError> {
        let Some(files) = self.files()? else { return Ok((Vec::new(), false)) };
        let names = self.io(files.names())?;
        let mut entries = Vec::new();
        for name in names.into_iter().filter(|name| after.is_none_or(|after| name.as_str() > after)) {
            let present = match self.present(&files, &name) {
                // A link that leads elsewhere keeps nobody from seeing the other flows.
                Err(error @ LibraryError::Link(_)) => {
                    tracing::warn!("the flow `{name}` is left out of the list: {error}");
                    continue;
                }
                present => present?,
            };
            // One that is deleted meanwhile is none.
            let Some(present) = present else { continue };
            let source = source(&name, present.ending, present.text);
            let entry = FlowEntry { name, version: present.version, description: about(&source).description };
            if !fits(&entry) {
                return Ok((entries, true));
            }
            entries.push(entry);
        }
        Ok((entries, false))
    }

    /// The names of all flows, in order.
    pub fn names(&self) -> Result<Vec<String>, LibraryError> {
        let Some(files) = self.files()? else { return Ok(Vec::new()) };
        Ok(self.io(files.names())?.into_iter().collect())
    }

    /// Something that changes when a flow is added, changed or removed, for those who look whether there is news.
    pub fn stamp(&self) -> Result<u64, LibraryError> {
        let Some(files) = self.files()? else { return Ok(0) };
        let mut hasher = DefaultHasher::new();
        self.io(files.times())?.hash(&mut hasher);
        Ok(hasher.finish())
    }

    /// A version of a flow, or its newest one.
    pub fn get(&self, name: &str, version: Option<u32>) -> Result<StoredFlow, LibraryError> {
        self.find(name, version).map(|(flow, _)| flow)
    }

    /// The versions of a flow that are there, in order.
    pub fn versions(&self, name: &str) -> Result<Vec<u32>, LibraryError> {
        let (_, present) = self.found(name)?;
        let older = present.older.into_keys().filter(|version| *version < present.version);
        Ok(older.chain([present.version]).collect())
    }

    /// Adds a flow under the name that its text gives it. One that has no errors, and whose name is free.
    pub fn create(&self, host: &Host, text: &str) -> Result<StoredFlow, LibraryError> {
        self.create_as(host, &own_name(text)?, text)
    }

    /// Adds a flow under a name. If its text gives it one, that is the same.
    pub fn create_as(&self, host: &Host, name: &str, text: &str) -> Result<StoredFlow, LibraryError> {
        self.add(host, name, Ending::of(text), text)
    }

    /// Adds a script as a flow under a name.
    pub fn create_script(&self, host: &Host, name: &str, text: &str) -> Result<StoredFlow, LibraryError> {
        self.add(host, name, Ending::Script, text)
    }

    fn add(&self, host: &Host, name: &str, ending: Ending, text: &str) -> Result<StoredFlow, LibraryError> {
        self.check(host, name, ending, text)?;
        let files = self.io(Files::create(&self.folder))?;
        let _lock = self.io(files.lock())?;
        if self.io(files.newest(name))?.is_some() {
            return Err(LibraryError::Exists(name.to_owned()));
        }
        if self.io(files.names())?.len() >= FLOWS {
            return Err(LibraryError::Full);
        }
        let size = self.size_with(&files, text)?;
        // What a deletion has left when its process died.
        self.io(files.forget(name))?;
        self.io(files.write(name, ending, text))?;
        self.io(files.note(size))?;
        Ok(self.stored(name, 1, ending, text.to_owned()))
    }

    /// Makes this the newest version of the flow that its text names. A text that is the newest already stays that.
    pub fn append(&self, host: &Host, text: &str) -> Result<StoredFlow, LibraryError> {
        self.append_as(host, &own_name(text)?, text)
    }

    /// Makes this the newest version of a flow. If its text gives it a name, that is the same.
    pub fn append_as(&self, host: &Host, name: &str, text: &str) -> Result<StoredFlow, LibraryError> {
        let ending = Ending::of(text);
        self.check(host, name, ending, text)?;
        let unknown = || LibraryError::Unknown(name.to_owned());
        let files = self.files()?.ok_or_else(unknown)?;
        let _lock = self.io(files.lock())?;
        let mut before = self.present(&files, name)?.ok_or_else(unknown)?;
        if before.text == text && before.ending == ending {
            return Ok(self.stored(name, before.version, ending, before.text));
        }
        let size = self.size_with(&files, text)?;
        // A process that dies between the two writes leaves a newest version that is kept as an older one too.
        if !before.older.contains_key(&before.version) {
            self.io(files.keep(name, before.version, before.ending, &before.text))?;
            before.older.insert(before.version, before.ending);
        }
        self.io(files.write(name, ending, text))?;
        if before.ending != ending {
            self.io(files.remove(name, before.ending))?;
        }
        self.io(files.note(size))?;
        let too_many = before.older.len().saturating_sub(OLDER_VERSIONS);
        for (version, ending) in before.older.iter().take(too_many) {
            self.io(files.drop_kept(name, *version, *ending))?;
        }
        Ok(self.stored(name, before.version + 1, ending, text.to_owned()))
    }

    /// Removes a flow with all its versions. Runs of it go on, as they have pinned what they need.
    pub fn delete(&self, name: &str) -> Result<(), LibraryError> {
        let (files, _) = self.found(name)?;
        let _lock = self.io(files.lock())?;
        while let Some((ending, _)) = self.io(files.newest(name))? {
            self.io(files.remove(name, ending))?;
        }
        self.io(files.forget(name))
    }

    /// Checks a version of a flow, or its newest one, for a host to run it. It is kept: what breaks only rules that are
    /// newer than it is runs, with warnings.
    pub fn load(&self, host: &Host, name: &str, version: Option<u32>) -> Result<LoadedFlow, LibraryError> {
        let source = match version {
            Some(_) => {
                let (stored, ending) = self.find(name, version)?;
                source(name, ending, stored.text)
            }
            None => self.newest(name)?.ok_or_else(|| LibraryError::Unknown(name.to_owned()))?,
        };
        let checked =
            host.check_in(&source, Arc::new(self.surroundings(&source, CheckMode::Stored)), &Start::default());
        checked.flow.ok_or(LibraryError::Invalid(checked.diagnostics))
    }

    /// The newest version of a flow, if the host has checked it before and nothing has to be looked at to know that it may
    /// still be run. It takes no longer than reading its file.
    pub fn checked_before(&self, host: &Host, name: &str) -> Result<Option<LoadedFlow>, LibraryError> {
        let Some(source) = self.newest(name)? else { return Ok(None) };
        let checked = host.checked_before(&source, &self.surroundings(&source, CheckMode::Stored));
        Ok(checked.and_then(|checked| checked.flow))
    }

    fn newest(&self, name: &str) -> Result<Option<Source>, LibraryError> {
        check_name(name)?;
        let Some(files) = self.files()? else { return Ok(None) };
        let newest = self.io(files.newest(name))?;
        Ok(newest.map(|(ending, text)| source(name, ending, text)))
    }

    fn find(&self, name: &str, version: Option<u32>) -> Result<(StoredFlow, Ending), LibraryError> {
        let (files, present) = self.found(name)?;
        let wanted = version.unwrap_or(present.version);
        if wanted == present.version {
            return Ok((self.stored(name, wanted, present.ending, present.text), present.ending));
        }
        let missing =
            || LibraryError::UnknownVersion { name: name.to_owned(), version: wanted, newest: present.version };
        let ending = *present.older.get(&wanted).ok_or_else(missing)?;
        let text = self.io(files.kept(name, wanted, ending))?.ok_or_else(missing)?;
        Ok((self.stored(name, wanted, ending, text), ending))
    }

    fn found(&self, name: &str) -> Result<(Files, Present), LibraryError> {
        check_name(name)?;
        let unknown = || LibraryError::Unknown(name.to_owned());
        let files = self.files()?.ok_or_else(unknown)?;
        let present = self.present(&files, name)?.ok_or_else(unknown)?;
        Ok((files, present))
    }

    /// What is there of a flow. It is read again if another process has changed it meanwhile, as readers hold no lock.
    fn present(&self, files: &Files, name: &str) -> Result<Option<Present>, LibraryError> {
        loop {
            let older = self.io(files.older(name))?;
            let Some((ending, text)) = self.io(files.newest(name))? else { return Ok(None) };
            let version = match older.last_key_value() {
                None => 1,
                Some((last, kept)) if self.io(files.kept(name, *last, *kept))?.as_ref() == Some(&text) => *last,
                Some((last, _)) => last + 1,
            };
            if self.io(files.older(name))? == older {
                return Ok(Some(Present { ending, text, version, older }));
            }
        }
    }

    /// Checks that the text of a file that ends so is a flow of this name without errors.
    fn check(&self, host: &Host, name: &str, ending: Ending, text: &str) -> Result<(), LibraryError> {
        check_name(name)?;
        check_size(text)?;
        let source = source(name, ending, text.to_owned());
        let said = about(&source).name.filter(|said| said != name);
        let checked =
            host.check_in(&source, Arc::new(self.surroundings(&source, CheckMode::Adding)), &Start::default());
        match (checked.flow, said) {
            (None, _) => Err(LibraryError::Invalid(checked.diagnostics)),
            (Some(_), Some(said)) => Err(LibraryError::OtherName { name: name.to_owned(), said }),
            (Some(_), None) => Ok(()),
        }
    }

    fn stored(&self, name: &str, version: u32, ending: Ending, text: String) -> StoredFlow {
        StoredFlow { name: name.to_owned(), version, file: self.folder.join(ending.file(name)), text }
    }

    /// What a flow may read: the files beside it.
    fn surroundings(&self, source: &Source, rules: CheckMode) -> Folder {
        let file = self.folder.join(&source.name);
        Folder::library(file.parent().map(Path::to_path_buf).unwrap_or_default()).with_mode(rules)
    }

    /// Returns the size of the library with another text, if it may have that.
    fn size_with(&self, files: &Files, text: &str) -> Result<Size, LibraryError> {
        let noted = self.io(files.size())?.with(text);
        // What was deleted meanwhile is not noted.
        let size = if noted.bytes > LIBRARY_BYTES { self.io(files.count())?.with(text) } else { noted };
        if size.bytes > LIBRARY_BYTES { Err(LibraryError::Full) } else { Ok(size) }
    }

    fn files(&self) -> Result<Option<Files>, LibraryError> {
        self.io(Files::open(&self.folder))
    }

    fn io<T>(&self, result: std::io::Result<T>) -> Result<T, LibraryError> {
        result.map_err(|source| match source.get_ref().and_then(|why| why.downcast_ref::<LinkError>()) {
            Some(LinkError(file)) => LibraryError::Link(file.clone()),
            None => LibraryError::Folder { folder: self.folder.clone(), source },
        })
    }
}

/// A flow's text under the plain name of its file: where the folder is, is nothing for who reads findings.
fn source(name: &str, ending: Ending, text: String) -> Source {
    Source { name: ending.file(name), text }
}

/// The name that a text gives its flow.
fn own_name(text: &str) -> Result<String, LibraryError> {
    check_size(text)?;
    about(&Source { name: String::new(), text: text.to_owned() }).name.ok_or(LibraryError::NoName)
}

fn check_size(text: &str) -> Result<(), LibraryError> {
    if text.len() <= FLOW_BYTES { Ok(()) } else { Err(LibraryError::TooLarge) }
}

fn check_name(name: &str) -> Result<(), LibraryError> {
    if is_flow_name(name) { Ok(()) } else { Err(LibraryError::BadName(name.chars().take(64).collect())) }
}
