//! Flows in the shared store: reads them beside those of the folder, and posts new versions.
//!
//! A version is posted with the files that its text names, so that every process can run it. Flows that it calls are
//! flows of the library, with versions of their own.

use std::{
    collections::{BTreeMap, VecDeque},
    path::Path,
    sync::Arc,
};

use flowcell_flow::{CheckContext, Source, script::ENDING};

use super::{
    FlowEntry, FlowFiles, FlowLibrary, FlowSource, Found, LibraryError, MAX_FLOWS, MAX_LIBRARY_BYTES,
    MAX_OLDER_VERSIONS, PostedFlow, PushError, StoredFlow, check_name,
    files::{Ending, MIN_VERSION_BYTES},
    name_in_text,
};
use crate::{
    cases::file::file_name,
    host::{
        Host,
        error::LoadError,
        folder::{Folder, is_flow_name, read_source},
        homes::called_names,
        loading,
    },
    posted::{
        Expects, Head, MAX_POSTED_BYTES, NewVersion, PostError, PostedText, PostedVersion, normal_files, normal_path,
        shown_path,
    },
};

/// Maximum number of characters of a posted flow's description in a list. A longer one is cut and ends with `…`.
const MAX_LISTED_DESCRIPTION_CHARS: usize = 1_000;

impl FlowLibrary {
    /// Adds a version to the flow that the text names, the first one if the flow does not exist. `files` are the texts
    /// of the files beside the flow, by their relative paths. Fails with files if the store is not shared.
    pub fn post(&self, host: &Host, text: &str, files: BTreeMap<String, String>) -> Result<StoredFlow, LibraryError> {
        self.post_after(host, text, files, None)
    }

    /// Posts a flow as [`FlowLibrary::post`] does. If `after` is given, fails with [`LibraryError::Moved`] if it is not the
    /// newest version of the flow, unless the newest version has the same text. 0 stands for a flow that does not exist.
    pub fn post_after(
        &self,
        host: &Host,
        text: &str,
        files: BTreeMap<String, String>,
        after: Option<u32>,
    ) -> Result<StoredFlow, LibraryError> {
        let name = name_in_text(text)?;
        if self.posted.is_some() {
            let text = PostedText { text: text.to_owned(), files: normal(files)? };
            let expects = after.map_or(Expects::Any, Expects::Version);
            return self.post_version(host, &name, Ending::of_text(&text.text), text, expects);
        }
        if !files.is_empty() {
            return Err(LibraryError::NoFiles);
        }
        if after.is_some_and(|after| after > 0) {
            let unknown = |error| match error {
                LibraryError::Unknown(name) => LibraryError::Moved { name, newest: 0 },
                error => error,
            };
            return self.append_after(host, &name, text, after).map_err(unknown);
        }
        match self.create_as(host, &name, text) {
            Err(LibraryError::Exists(_)) => self.append_after(host, &name, text, after),
            created => created,
        }
    }

    /// Posts the flow in a file, with the files that it names. Also posts the flows beside it that it calls by their
    /// names or may call as tools, and those that they call. A flow that equals its newest version stays as it is.
    /// Calls `pushed` with each of them, the called ones first. Posts nothing if one of them cannot run. Ends at the first
    /// one that is refused; those before it stay.
    pub fn push(&self, host: &Host, file: &Path, mut pushed: impl FnMut(StoredFlow)) -> Result<(), PushError> {
        let unreadable = |source| LibraryError::Folder { folder: file.to_owned(), source };
        let first = read_source(file).map_err(unreadable)?;
        let beside = FlowLibrary { folder: file.parent().map(Path::to_owned).unwrap_or_default(), ..self.clone() };
        let (mut open, mut flows) = (VecDeque::from([first]), Vec::<(String, Ending, PostedText)>::new());
        while let Some(source) = open.pop_front() {
            let ending = Ending::of_file(&source.name).unwrap_or_else(|| Ending::of_text(&source.text));
            let name = match Path::new(&source.name).file_name().and_then(|name| name.to_str()?.strip_suffix(ENDING)) {
                Some(name) => name.to_owned(),
                None => name_in_text(&source.text)?,
            };
            if flows.iter().any(|(known, ..)| *known == name) {
                continue;
            }
            let folder = Folder::of_library(beside.folder.clone()).with_posted(self.posted.clone());
            let flow = loading::load_in(host, &source, Arc::new(folder)).map_err(|error| match error {
                LoadError::Invalid(found) => LibraryError::Invalid(found),
                LoadError::Host(error) => unreadable(std::io::Error::other(error)),
            })?;
            let called = called_names(&flow).into_iter().filter(|name| is_flow_name(name));
            // A flow that is only in the store is already there.
            let here = Folder::of_library(beside.folder.clone());
            open.extend(called.filter_map(|name| here.find(&name).map(|(source, _)| source)));
            let mut files = flow.content.files.clone();
            let cases = beside.cases_beside(&file_name(&name), &source.name)?;
            files.extend(cases.map(|text| (file_name(&name), text)));
            let files = normal(files)?;
            flows.push((name, ending, PostedText { text: source.text, files }));
        }
        while let Some((name, ending, text)) = flows.pop() {
            match beside.post_checked(host, &name, ending, text, Expects::Any) {
                Ok(flow) => pushed(flow),
                Err(error) => {
                    let others = flows.into_iter().rev().map(|(name, ..)| name);
                    return Err(PushError { error, not_pushed: std::iter::once(name).chain(others).collect() });
                }
            }
        }
        Ok(())
    }

    /// Returns the text of the file of cases beside the flow in a file, or `None` without such a file.
    fn cases_beside(&self, stored: &str, flow: &str) -> Result<Option<String>, LibraryError> {
        let file = Path::new(flow).file_name().and_then(|file| file.to_str()).unwrap_or_default();
        let stem = file.strip_suffix(ENDING).or_else(|| file.rsplit_once('.').map(|(stem, _)| stem)).unwrap_or(file);
        let (folder, path) = (Folder::of_library(self.folder.clone()), file_name(stem));
        if folder.find_file(&path).is_none() {
            return Ok(None);
        }
        let read = folder.read(&path);
        read.map(Some)
            .map_err(|why| LibraryError::Files(format!("cannot read `{path}` to post it as `{stored}`: {why}")))
    }

    /// Returns the files beside a version of a flow, by default the newest: those that were posted with it, or for a
    /// flow of the folder those that it names, and its file of cases.
    pub fn files_of(&self, host: &Host, name: &str, version: Option<u32>) -> Result<FlowFiles, LibraryError> {
        let stored = self.get(name, version)?;
        let (source, files) = match &stored.posted {
            Some(posted) => (FlowSource::Store, self.posted_text(name, posted)?.files.clone()),
            None => {
                let flow = self.load(host, name, version)?;
                let normal = |(path, text): (&String, &String)| {
                    (normal_path(path).unwrap_or_else(|| path.clone()), text.clone())
                };
                let mut files: BTreeMap<_, _> = flow.content.files.iter().map(normal).collect();
                let cases = self.cases_beside(&file_name(name), &stored.file.display().to_string())?;
                files.extend(cases.map(|text| (file_name(name), text)));
                (FlowSource::Folder, files)
            }
        };
        Ok(FlowFiles { version: stored.version, source, files })
    }

    /// Changes the files beside a posted flow, and adds a version with the text of the newest one. `set` has the texts
    /// of files by their paths, and `remove` the paths of files that the new version does not have. Fails with
    /// [`LibraryError::Moved`] if `after` is given and not the newest version, or if another caller posts meanwhile.
    pub fn change_files(
        &self,
        host: &Host,
        name: &str,
        (set, remove): (BTreeMap<String, String>, &[String]),
        after: Option<u32>,
    ) -> Result<StoredFlow, LibraryError> {
        check_name(name)?;
        let Some(posted) = &self.posted else {
            return Err(self.get(name, None).err().unwrap_or(LibraryError::NoFiles));
        };
        self.refuse_deployed(name)?;
        let Some((version, text)) = posted.newest_now(name)? else {
            return Err(LibraryError::Unknown(name.to_owned()));
        };
        if after.is_some_and(|after| after != version.version) {
            return Err(LibraryError::Moved { name: name.to_owned(), newest: version.version });
        }
        let ending = Ending::of_file(&version.file).ok_or_else(|| LibraryError::Unknown(name.to_owned()))?;
        let mut files = text.files.clone();
        for path in remove {
            let missing = || LibraryError::Files(format!("the flow has no file `{}` to remove", shown_path(path)));
            files.remove(path).ok_or_else(missing)?;
        }
        files.extend(normal(set)?);
        let changed = PostedText { text: text.text.clone(), files: normal(files)? };
        self.post_version(host, name, ending, changed, Expects::Version(version.version))
    }

    /// Visits the kept versions of all posted flows, by name and number, also of those that flows of the folder hide. A
    /// version that is removed meanwhile is left out. Fails if the text of another one is missing or damaged. A store that is
    /// not shared has none.
    pub fn each_posted<E: From<LibraryError>>(
        &self,
        mut visit: impl FnMut(&PostedFlow<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        let Some(posted) = &self.posted else { return Ok(()) };
        for (name, head) in posted.flows().map_err(LibraryError::from)?.iter() {
            for version in &head.versions {
                let Some(text) = posted.text(name, version).map_err(LibraryError::from)? else {
                    posted.require_removed(name, version).map_err(LibraryError::from)?;
                    continue;
                };
                visit(&PostedFlow { name, version, text: &text.text, files: &text.files })?;
            }
        }
        Ok(())
    }

    /// Returns the records of a flow's versions, in ascending order. A flow of the folder has none.
    pub fn history(&self, name: &str) -> Result<Vec<PostedVersion>, LibraryError> {
        check_name(name)?;
        Ok(self.posted_head(name)?.map(|head| head.versions.clone()).unwrap_or_default())
    }

    /// Posts a version, unless the folder has a flow of this name.
    pub(super) fn post_version(
        &self,
        host: &Host,
        name: &str,
        ending: Ending,
        text: PostedText,
        expects: Expects,
    ) -> Result<StoredFlow, LibraryError> {
        check_name(name)?;
        self.refuse_deployed(name)?;
        self.post_checked(host, name, ending, text, expects)
    }

    fn post_checked(
        &self,
        host: &Host,
        name: &str,
        ending: Ending,
        text: PostedText,
        expects: Expects,
    ) -> Result<StoredFlow, LibraryError> {
        let posted = self.posted.as_ref().ok_or(LibraryError::NotShared)?;
        let size = serde_json::to_vec(&text).unwrap_or_default().len();
        if size > MAX_POSTED_BYTES {
            return Err(LibraryError::Files(format!(
                "the flow `{name}` has {size} bytes as JSON with the files beside it, more than {MAX_POSTED_BYTES}"
            )));
        }
        let text = Arc::new(text);
        let description = self.check(host, name, ending, &text.text, Some(text.clone()))?;
        let flows = posted.flows()?;
        if !has_room(&flows, name, &text) {
            return Err(LibraryError::Full);
        }
        let file = ending.file_name(name);
        let (created, by) = (host.now(), self.author.clone());
        let description = description.map(|text| match text.char_indices().nth(MAX_LISTED_DESCRIPTION_CHARS) {
            Some((end, _)) => format!("{}…", &text[..end]),
            None => text,
        });
        let new = NewVersion { file, text: PostedText::clone(&text), description, created, by };
        let version = posted.post(name, &new, expects, MAX_OLDER_VERSIONS).map_err(|error| match error {
            PostError::Exists => LibraryError::Exists(name.to_owned()),
            PostError::Unknown => LibraryError::Unknown(name.to_owned()),
            PostError::Moved(newest) => LibraryError::Moved { name: name.to_owned(), newest },
            PostError::Full => LibraryError::Full,
            PostError::Store(error) => LibraryError::Store(error),
        })?;
        Ok(to_posted(name, version, &text))
    }

    /// Fails if the folder has a flow of this name. The folder is the operator's, and posts do not change it.
    pub(super) fn refuse_deployed(&self, name: &str) -> Result<(), LibraryError> {
        match self.in_folder(name)? {
            Some(ending) => Err(LibraryError::Deployed { name: name.to_owned(), file: ending.file_name(name) }),
            None => Ok(()),
        }
    }

    fn in_folder(&self, name: &str) -> Result<Option<Ending>, LibraryError> {
        let newest = self.files()?.map_or(Ok(None), |files| self.map_io(files.newest(name)))?;
        Ok(newest.map(|(ending, _)| ending))
    }

    /// Returns the versions of a posted flow. Returns `None` if there is none, or if the folder's flow hides it.
    pub(super) fn posted_head(&self, name: &str) -> Result<Option<Arc<Head>>, LibraryError> {
        check_name(name)?;
        let Some(posted) = &self.posted else { return Ok(None) };
        if self.in_folder(name)?.is_some() { Ok(None) } else { Ok(posted.head(name)?) }
    }

    /// Returns the entry of a posted flow in a list, also if the folder's flow hides it.
    pub(super) fn posted_entry(&self, name: &str) -> Result<Option<FlowEntry>, LibraryError> {
        let Some(posted) = &self.posted else { return Ok(None) };
        let head = posted.head(name)?;
        Ok(head.as_ref().and_then(|head| {
            let (name, description) = (name.to_owned(), head.description.clone());
            let version = head.newest()?.version;
            Some(FlowEntry { name, version, description, source: FlowSource::Store, hidden_version: None })
        }))
    }

    /// Returns the newest version of a posted flow.
    pub(super) fn newest_posted(&self, name: &str) -> Result<Option<Found>, LibraryError> {
        let Some(posted) = &self.posted else { return Ok(None) };
        Ok(posted.newest(name)?.map(|(version, text)| {
            let source = Source { name: version.file, text: text.text.clone() };
            Found { source, version: version.version, posted: Some(text) }
        }))
    }

    /// Returns a version of a posted flow. Default: the newest one.
    pub(super) fn find_posted(
        &self,
        name: &str,
        head: &Head,
        version: Option<u32>,
    ) -> Result<(StoredFlow, Ending), LibraryError> {
        let unknown = || LibraryError::Unknown(name.to_owned());
        let newest = head.newest().ok_or_else(unknown)?;
        let wanted = version.unwrap_or(newest.version);
        let found = head.versions.iter().find(|known| known.version == wanted);
        let missing = LibraryError::UnknownVersion { name: name.to_owned(), version: wanted, newest: newest.version };
        let found = found.ok_or(missing)?;
        let ending = Ending::of_file(&found.file).ok_or_else(unknown)?;
        Ok((to_posted(name, found.clone(), self.posted_text(name, found)?.as_ref()), ending))
    }

    /// Returns the text and the files of a posted version.
    pub(super) fn posted_text(&self, name: &str, version: &PostedVersion) -> Result<Arc<PostedText>, LibraryError> {
        let unknown = || LibraryError::Unknown(name.to_owned());
        self.posted.as_ref().ok_or_else(unknown)?.text(name, version)?.ok_or_else(unknown)
    }
}

fn to_posted(name: &str, version: PostedVersion, text: &PostedText) -> StoredFlow {
    let (name, file) = (name.to_owned(), version.file.clone().into());
    StoredFlow { name, version: version.version, file, text: text.text.clone(), posted: Some(version) }
}

/// Returns whether the library has room for another version of a flow, with the files beside it.
fn has_room(flows: &BTreeMap<String, Arc<Head>>, name: &str, text: &PostedText) -> bool {
    let bytes = flows.values().map(|head| head.bytes(MIN_VERSION_BYTES)).sum::<u64>();
    let is_new = !flows.contains_key(name);
    (!is_new || flows.len() < MAX_FLOWS) && bytes.saturating_add(text.bytes()) <= MAX_LIBRARY_BYTES
}

/// Checks the files beside a flow, and returns them by their paths without `.`.
fn normal(files: BTreeMap<String, String>) -> Result<BTreeMap<String, String>, LibraryError> {
    normal_files(files).map_err(LibraryError::Files)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_files_beside_a_flow_need_room_in_the_library() {
        let version = |bytes| PostedVersion {
            version: 1,
            file: "a.yaml".into(),
            digest: String::new(),
            bytes,
            created: 0,
            by: String::new(),
        };
        let head = |bytes| {
            let mut head = Head::default();
            head.versions.push(version(bytes));
            Arc::new(head)
        };
        let with_file = |bytes: usize| PostedText {
            text: "flow".into(),
            files: BTreeMap::from([("a.md".to_owned(), "x".repeat(bytes))]),
        };
        let flows = BTreeMap::from([("a".to_owned(), head(MAX_LIBRARY_BYTES - 10_000))]);
        assert!(has_room(&flows, "a", &with_file(9_000)) && has_room(&flows, "b", &with_file(9_000)));
        assert!(!has_room(&flows, "a", &with_file(10_000)) && !has_room(&flows, "b", &with_file(10_000)));
        let many: BTreeMap<_, _> = (0..MAX_FLOWS).map(|at| (format!("f{at}"), head(1))).collect();
        assert!(has_room(&many, "f0", &with_file(1)) && !has_room(&many, "other", &with_file(1)));
    }
}
