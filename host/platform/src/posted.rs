//! Posted flows: the flows of tenants in the documents of a shared store.
//!
//! All processes of the store have the same posted flows. The documents of a tenant are:
//!
//! | kind, key | contents |
//! |---|---|
//! | `flow`, the flow's name | the versions of the flow, without their texts; no versions after a deletion |
//! | `flow-text`, `<name>/<number>-<digest>` | the text of a version, and the files beside it |
//!
//! The write of the first one adds the version: of several processes that post the same flow, one writes it, and the
//! others try again with the next number. The number grows with every change, also over a deletion, so a number never
//! names two texts.
//!
//! | module | contents |
//! |---|---|
//! | [`cache`] | the flows that a process knows, and the changes of other processes |

pub mod cache;
#[cfg(test)]
mod tests;

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    sync::Arc,
};

use flowcell_contract::{Tenant, text::has_deceptive};
use flowcell_runtime::ports::StoreError;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use self::cache::{ChangedFlows, PostedCache};
use crate::operate::documents::Documents;

/// Maximum size in bytes of a posted flow's text with the files beside it, as JSON.
pub const MAX_POSTED_BYTES: usize = 8 * 1024 * 1024;
/// Maximum number of files beside a posted flow.
pub const MAX_POSTED_FILES: usize = 256;
/// Maximum length in bytes of the path of a file beside a posted flow.
pub const MAX_POSTED_PATH_BYTES: usize = 255;
/// The document kind of [`Head`].
const HEAD: &str = "flow";
/// The document kind of [`PostedText`].
const TEXT: &str = "flow-text";
/// Maximum number of tries to write a flow, if other processes change it at the same time.
const MAX_WRITE_TRIES: usize = 64;
/// Upper bound of version numbers.
const LAST_VERSION: u32 = 999_999_999;

/// A version of a posted flow, without its text.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct PostedVersion {
    /// The number of the version.
    pub version: u32,
    /// The name of the flow's file, whose ending shows the format of the text.
    pub file: String,
    /// The SHA-256 of the text and the files, in hexadecimal.
    pub digest: String,
    /// The size of the text and the files in bytes.
    pub bytes: u64,
    /// The time of the post in milliseconds since 1970.
    pub created: u64,
    /// The id of the token that posted the version, `local` for a caller without one, `operator` for the command line.
    pub by: String,
}

/// The text of a posted flow, and the files beside it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct PostedText {
    pub(crate) text: String,
    /// The texts of the files beside the flow, by their paths.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) files: BTreeMap<String, String>,
}

impl From<&str> for PostedText {
    fn from(text: &str) -> PostedText {
        PostedText { text: text.to_owned(), files: BTreeMap::new() }
    }
}

impl PostedText {
    /// Returns the text of a file beside the flow.
    pub(crate) fn read(&self, path: &str) -> Option<&String> {
        self.files.get(&normal_path(path)?)
    }

    /// Returns the size of the text and the files.
    pub(crate) fn bytes(&self) -> u64 {
        self.files.iter().map(|(path, text)| path.len() + text.len()).sum::<usize>() as u64 + self.text.len() as u64
    }

    /// Returns the SHA-256 of the text and the files. The lengths separate the parts.
    fn digest(&self, file: &str) -> String {
        let mut hasher = Sha256::new();
        let files = self.files.iter().flat_map(|(path, text)| [path, text]);
        for part in [file, &self.text].into_iter().chain(files.map(String::as_str)) {
            hasher.update((part.len() as u64).to_be_bytes());
            hasher.update(part);
        }
        hex::encode(hasher.finalize())
    }
}

/// Checks the files beside a flow, and returns them by their paths without `.`. The error is a sentence for people.
pub(crate) fn normal_files(files: BTreeMap<String, String>) -> Result<BTreeMap<String, String>, String> {
    if files.len() > MAX_POSTED_FILES {
        return Err(format!("a flow has at most {MAX_POSTED_FILES} files beside it, not {}", files.len()));
    }
    let mut normal = BTreeMap::new();
    for (path, text) in files {
        let shown = shown_path(&path);
        let Some(usable) = normal_path(&path) else {
            return Err(format!(
                "the path `{shown}` is not relative, leads out of the folder with `..`, or has more than \
                 {MAX_POSTED_PATH_BYTES} bytes: use a path such as `prompts/ask.md`"
            ));
        };
        if usable.split('/').any(|part| part.starts_with('.')) {
            return Err(format!("the path `{shown}` has a part that begins with `.`: use a name that is not hidden"));
        }
        if usable.contains(is_unseen) || has_deceptive(&usable) {
            return Err(format!("the path `{shown}` has characters that cannot be seen: use others"));
        }
        if normal.insert(usable, text).is_some() {
            return Err(format!("two files have the path `{shown}`"));
        }
    }
    Ok(normal)
}

/// Returns a path as messages show it.
pub(crate) fn shown_path(path: &str) -> String {
    path.chars().take(64).flat_map(char::escape_default).collect()
}

/// Returns whether a character of a path cannot be seen, or turns the direction of text around.
fn is_unseen(char: char) -> bool {
    matches!(char, '\u{61c}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{2069}')
        || matches!(char, '\u{feff}' | '\u{e0000}'..='\u{e007f}')
}

/// Returns a relative path without `.` in it, or `None` if the path could lead out of the flow's folder or is too long.
pub(crate) fn normal_path(path: &str) -> Option<String> {
    let refused = |part: &str| part.is_empty() || part == ".." || part.chars().any(|char| char.is_control());
    let parts: Vec<_> = path.split('/').filter(|part| *part != ".").collect();
    let usable = !parts.is_empty() && path.len() <= MAX_POSTED_PATH_BYTES && !path.contains('\\');
    (usable && !parts.iter().any(|part| refused(part))).then(|| parts.join("/"))
}

/// The versions of a flow.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Head {
    /// The kept versions, in ascending order. Empty after a deletion.
    pub(crate) versions: Vec<PostedVersion>,
    /// The description in the newest text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) description: Option<String>,
    /// The last number that a change has used.
    last: u32,
}

impl Head {
    /// Returns the newest version, or `None` after a deletion.
    pub(crate) fn newest(&self) -> Option<&PostedVersion> {
        self.versions.last()
    }

    /// Returns the size of all versions. Each counts as at least `least` bytes.
    pub(crate) fn bytes(&self, least: u64) -> u64 {
        self.versions.iter().map(|version| version.bytes.max(least)).sum()
    }
}

/// A text to post.
pub(crate) struct NewVersion {
    pub(crate) file: String,
    pub(crate) text: PostedText,
    pub(crate) description: Option<String>,
    pub(crate) created: u64,
    pub(crate) by: String,
}

/// The flow that a post expects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Expects {
    /// The name is free.
    Free,
    /// The flow exists.
    Flow,
    /// Either of both.
    Any,
    /// The newest version is this one. 0: the name is free.
    Version(u32),
}

/// A refused post.
#[derive(Debug)]
pub(crate) enum PostError {
    /// The name is taken.
    Exists,
    /// The flow does not exist.
    Unknown,
    /// The newest version is this one, and not the expected one. 0: the flow does not exist.
    Moved(u32),
    /// There is no number for another version.
    Full,
    /// The store does not answer, or too many processes change the flow.
    Store(StoreError),
}

impl<E: Into<StoreError>> From<E> for PostError {
    fn from(error: E) -> PostError {
        PostError::Store(error.into())
    }
}

/// The posted flows of one tenant.
#[derive(Clone)]
pub(crate) struct PostedFlows {
    cache: Arc<PostedCache>,
    tenant: Tenant,
}

impl fmt::Debug for PostedFlows {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_tuple("PostedFlows").field(&self.tenant).finish()
    }
}

impl PostedFlows {
    pub(crate) fn new(cache: Arc<PostedCache>, tenant: Tenant) -> PostedFlows {
        PostedFlows { cache, tenant }
    }

    /// Returns the existing flows by name, as this process knows them: at most [`cache::LOOK_INTERVAL`] old.
    pub(crate) fn flows(&self) -> Result<Arc<BTreeMap<String, Arc<Head>>>, StoreError> {
        self.cache.flows(&self.tenant)
    }

    /// Reports to the other processes that flows of the tenant have changed.
    pub(crate) fn report(&self) -> Result<(), StoreError> {
        self.cache.report(&self.tenant)
    }

    /// Returns the versions of a flow, or `None` if the flow does not exist.
    pub(crate) fn head(&self, name: &str) -> Result<Option<Arc<Head>>, StoreError> {
        Ok(self.flows()?.get(name).cloned())
    }

    /// Returns the newest version of a flow with its text, or `None` if the flow does not exist.
    pub(crate) fn newest(&self, name: &str) -> Result<Option<(PostedVersion, Arc<PostedText>)>, StoreError> {
        let Some(head) = self.head(name)? else { return Ok(None) };
        let Some(version) = head.newest() else { return Ok(None) };
        Ok(self.text(name, version)?.map(|text| (version.clone(), text)))
    }

    /// Returns the text of a version. Returns `None` if the flow was deleted meanwhile. A text that does not match its
    /// digest is an error.
    pub(crate) fn text(&self, name: &str, version: &PostedVersion) -> Result<Option<Arc<PostedText>>, StoreError> {
        let key = text_key(name, version);
        if let Some(known) = self.cache.text(&self.tenant, &key) {
            return Ok(Some(known));
        }
        let Some((text, _)) = self.documents().get::<PostedText>(TEXT, &key)? else { return Ok(None) };
        if text.digest(&version.file) != version.digest {
            let message = format!("the text of version {} of the flow `{name}` is damaged", version.version);
            return Err(StoreError::damaged(message));
        }
        let text = Arc::new(text);
        self.cache.remember_text(&self.tenant, key, &text);
        Ok(Some(text))
    }

    /// Returns the newest version of a flow with its text, as the store has it now. Returns `None` if the flow does not
    /// exist.
    pub(crate) fn newest_now(&self, name: &str) -> Result<Option<(PostedVersion, Arc<PostedText>)>, StoreError> {
        let (head, _) = self.documents().get::<Head>(HEAD, name)?.unwrap_or_default();
        let Some(version) = head.newest() else { return Ok(None) };
        Ok(self.text(name, version)?.map(|text| (version.clone(), text)))
    }

    /// Adds a version to a flow, and returns it. A text that equals the newest version adds none. `most` is the
    /// maximum number of older versions: if there are more, removes the oldest ones.
    pub(crate) fn post(
        &self,
        name: &str,
        new: &NewVersion,
        expects: Expects,
        most: usize,
    ) -> Result<PostedVersion, PostError> {
        let digest = new.text.digest(&new.file);
        for _ in 0..MAX_WRITE_TRIES {
            let (mut head, seen) = self.documents().get::<Head>(HEAD, name)?.unwrap_or_default();
            match (head.newest(), expects) {
                (Some(newest), Expects::Flow | Expects::Any | Expects::Version(_)) if newest.digest == digest => {
                    let newest = newest.clone();
                    // The process that has added the version may have died before it reported the change.
                    self.cache.report(&self.tenant)?;
                    return Ok(newest);
                }
                (Some(_), Expects::Free) => return Err(PostError::Exists),
                (None, Expects::Flow) => return Err(PostError::Unknown),
                (newest, Expects::Version(expected)) if newest.map_or(0, |newest| newest.version) != expected => {
                    return Err(PostError::Moved(newest.map_or(0, |newest| newest.version)));
                }
                _ => {}
            }
            if head.last >= LAST_VERSION {
                return Err(PostError::Full);
            }
            head.last += 1;
            let version = PostedVersion {
                version: head.last,
                file: new.file.clone(),
                digest: digest.clone(),
                bytes: new.text.bytes(),
                created: new.created,
                by: new.by.clone(),
            };
            self.documents().put(TEXT, &text_key(name, &version), Some(&new.text), 0)?;
            head.versions.push(version.clone());
            head.description.clone_from(&new.description);
            let removed: Vec<_> = head.versions.drain(..head.versions.len().saturating_sub(most + 1)).collect();
            if self.documents().put(HEAD, name, Some(&head), seen)? || self.has(name, &version)? {
                self.remove_texts(name, &removed);
                self.cache.report(&self.tenant)?;
                return Ok(version);
            }
            self.remove_texts(name, &[version]);
        }
        Err(PostError::Store(busy(name)))
    }

    /// Fails if the flow still has this version, whose text was not found.
    pub(crate) fn require_removed(&self, name: &str, version: &PostedVersion) -> Result<(), StoreError> {
        match self.has(name, version)? {
            true => Err(StoreError::damaged(format!("the text of version {} of `{name}` is missing", version.version))),
            false => Ok(()),
        }
    }

    /// Returns whether the flow has this version. Callers ask after a write whose result is unclear: another process
    /// may have posted the same text first, or the answer of the store was lost.
    fn has(&self, name: &str, version: &PostedVersion) -> Result<bool, StoreError> {
        let (head, _) = self.documents().get::<Head>(HEAD, name)?.unwrap_or_default();
        let same = |found: &PostedVersion| found.version == version.version && found.digest == version.digest;
        Ok(head.versions.iter().any(same))
    }

    /// Removes a flow with all versions. Returns false if it does not exist.
    pub(crate) fn delete(&self, name: &str, most_names: usize) -> Result<bool, StoreError> {
        for _ in 0..MAX_WRITE_TRIES {
            let Some((head, seen)) = self.documents().get::<Head>(HEAD, name)? else { return Ok(false) };
            if head.versions.is_empty() {
                return Ok(false);
            }
            let deleted = Head { last: head.last + 1, ..Head::default() };
            if self.documents().put(HEAD, name, Some(&deleted), seen)? {
                self.remove_texts(name, &head.versions);
                self.forget_deleted(name, most_names)?;
                self.cache.report(&self.tenant)?;
                return Ok(true);
            }
        }
        Err(busy(name))
    }

    /// Removes the texts of versions. A text that stays, because the store does not answer, is never read.
    fn remove_texts(&self, name: &str, versions: &[PostedVersion]) {
        for version in versions {
            let key = text_key(name, version);
            if let Err(error) = self.documents().put::<PostedText>(TEXT, &key, None, 1) {
                tracing::warn!(tenant = %self.tenant, "cannot remove the text `{key}`: {error}");
            }
        }
    }

    /// Removes the record of a deleted flow other than `name`, if there are more than `most` of them.
    fn forget_deleted(&self, name: &str, most: usize) -> Result<(), StoreError> {
        let all: Vec<(String, Head)> = self.documents().all(HEAD)?;
        let deleted: BTreeSet<_> =
            all.into_iter().filter(|(_, head)| head.versions.is_empty()).map(|(name, _)| name).collect();
        let Some(other) = deleted.iter().find(|other| *other != name).filter(|_| deleted.len() > most) else {
            return Ok(());
        };
        if let Some((head, seen)) = self.documents().get::<Head>(HEAD, other)?
            && head.versions.is_empty()
        {
            self.documents().put::<Head>(HEAD, other, None, seen)?;
        }
        Ok(())
    }

    /// Looks for changes of other processes now, and returns the tenants whose flows have changed since the last call.
    pub(crate) fn take_changed(&self) -> Result<ChangedFlows, StoreError> {
        self.cache.take_changed()
    }

    /// Returns the number of the last change of each existing flow.
    pub(crate) fn stamp(&self) -> Result<BTreeMap<String, u32>, StoreError> {
        Ok(self.flows()?.iter().map(|(name, head)| (name.clone(), head.last)).collect())
    }

    fn documents(&self) -> Documents<'_> {
        Documents { store: self.cache.documents(), tenant: &self.tenant }
    }
}

/// Returns the key of a version's text.
fn text_key(name: &str, version: &PostedVersion) -> String {
    let digest = version.digest.get(..32).unwrap_or(&version.digest);
    format!("{name}/{:09}-{digest}", version.version)
}

fn busy(name: &str) -> StoreError {
    StoreError::conflict(format!("too many callers change the flow `{name}` at the same time; try again"))
}
