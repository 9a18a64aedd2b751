//! Forms: signed links by which people without a login start a flow.
//!
//! A link is a document of its tenant, and a code that is signed with a key of the tenant's data key. The code is behind
//! the `#` of the link's address. The document counts the uses, so that several processes together count each use once, and
//! its removal revokes the link. A code is not stored: who creates a link sees it once.
//!
//! | module | contents |
//! |---|---|
//! | [`code`] | the code of a link |
//! | `members` | the members of an input that a link sets |
//! | [`operation`] | users' operations: create, list, revoke |

mod code;
mod members;
pub mod operation;

use flowcell_contract::{Json, RunId, Tenant};
use flowcell_runtime::{
    FlowRunner, OpenError, RunOptions,
    ports::{Document, MaybeStoreError, StoreError},
};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use sha2::{Digest, Sha256};

pub use self::code::MAX_CODE_BYTES;
use self::members::{fixed_member, merged, with_defaults};
use crate::{
    FlowLibrary, Host, InputError, LibraryError, StartError,
    drive::supervisor::MAX_TIMER_WAIT,
    operate::{
        documents::{DocumentError, Documents, read},
        identity::AuthError,
        vault::VaultError,
    },
};

/// Maximum number of a tenant's links that have not ended and were not revoked.
pub const MAX_LINKS: usize = 1_000;
/// Maximum lifetime of a link in milliseconds: 90 days.
pub const MAX_LIFETIME_MS: u64 = 90 * DAY_MS;
/// Default lifetime of a link in milliseconds: 7 days.
pub const DEFAULT_LIFETIME_MS: u64 = 7 * DAY_MS;
/// Maximum number of runs that a link may start.
pub const MAX_USES: u32 = 100_000;
/// Maximum size in bytes of the members of an input that a link sets, as JSON text.
pub const MAX_PREFILL_BYTES: usize = 16 << 10;
/// Maximum size in bytes of the `inputSchema` of a flow with a form, as JSON text.
pub const MAX_SCHEMA_BYTES: usize = 256 << 10;
/// Maximum size in bytes of an input that a form sends, as JSON text.
pub const MAX_INPUT_BYTES: usize = 64 << 10;
/// Maximum number of links in a page of a list.
pub const MAX_PAGE: usize = 100;
const DAY_MS: u64 = 86_400_000;
/// The kind of the documents.
const LINK: &str = "form-link";
/// The kind and the key of the document that creations change, so that they count the links one after the other.
const TURN: (&str, &str) = ("form-turn", "turn");
/// Maximum number of characters of the name of a member in a message.
const MAX_SHOWN_CHARS: usize = 64;
/// The time in milliseconds for which a counted start is left to the process that has counted it. Afterwards another request
/// with the same key goes on with it, without another use.
pub const STARTING_MS: u64 = 30_000;
/// Maximum number of counted starts that the document of a link remembers, the latest ones.
pub const MAX_STARTING: usize = 64;
/// Maximum number of tries of a write while other processes change the same document.
const MAX_TRIES: usize = 64;

/// A link that starts a flow.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct FormLink {
    /// The id of the link. The runs that it starts have `form:ID` as the name of their trigger.
    pub id: String,
    /// The name of the flow.
    pub flow: String,
    /// The time of its creation, in milliseconds since 1970.
    pub created: u64,
    /// The time of its end, in milliseconds since 1970.
    pub ends: u64,
    /// The maximum number of runs.
    pub uses: u32,
    /// The number of runs that it has started.
    pub used: u32,
    /// Members of the input, which the form shows and a person may change.
    #[cfg_attr(feature = "openapi", schema(value_type = Object))]
    pub prefill: Value,
    /// The creator: the id of a token, or `operator`.
    pub by: String,
}

/// The document of a link: the link, and the latest starts that it has counted. A use and the run that it counts for change in
/// one write, so that processes that receive one request at the same moment count one use.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct StoredLink {
    #[serde(flatten)]
    link: FormLink,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    starting: Vec<Starting>,
}

/// A start that a link has counted.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Starting {
    run: RunId,
    /// The time at which a process has taken the start over.
    since: u64,
}

impl FormLink {
    /// Returns the name of the link as a trigger of runs, and as an actor of the audit log.
    pub fn name(&self) -> String {
        format!("form:{}", self.id)
    }

    /// Returns the run that a request with this key starts.
    pub fn run(&self, key: &str) -> RunId {
        let key = hex::encode(&Sha256::digest(key)[..16]);
        RunId::from(format!("form.{}.{key}", self.id))
    }
}

/// An error of a form.
#[derive(Debug, thiserror::Error)]
pub enum FormError {
    /// The code is not one of this store, or the link was revoked, or its tenant is disabled. The caller learns no more.
    #[error("the link is not valid, or not valid any more; ask the person who sent it for a new one")]
    Invalid,
    /// The link has ended at this time, in milliseconds since 1970.
    #[error("the link has ended; ask the person who sent it for a new one")]
    Ended(u64),
    /// The link has started all of its runs.
    #[error("the link was used as often as it may be; ask the person who sent it for a new one")]
    Used,
    /// A request with the same key has started this run with another input.
    #[error("the run `{0}` began with another input and the same `once`; send another `once` to start a further run")]
    OtherInput(RunId),
    /// A request has a wrong member.
    #[error("{0}")]
    Request(String),
    /// The members that a link sets do not fit the flow.
    #[error("`prefill` does not fit the `inputSchema` of the flow, so the link cannot start it: {}", .0.findings().join("; "))]
    Prefill(InputError),
    /// The tenant has too many links.
    #[error("the tenant has {MAX_LINKS} links that have not ended; revoke some with `flowcell forms revoke`")]
    TooMany,
    /// No link of the tenant has this id.
    #[error("the form link `{0}` does not exist")]
    Unknown(String),
    /// The flow cannot be loaded.
    #[error(transparent)]
    Flow(#[from] LibraryError),
    /// The run cannot start.
    #[error(transparent)]
    Start(#[from] StartError),
    /// The server cannot sign links.
    #[error("cannot sign links: {0}")]
    Key(#[from] VaultError),
    /// A document is damaged, or the store does not answer.
    #[error(transparent)]
    Document(#[from] DocumentError),
}

impl FormError {
    /// Returns a stable error code.
    pub fn code(&self) -> &'static str {
        match self {
            FormError::Invalid => "link_invalid",
            FormError::Ended(_) => "link_ended",
            FormError::Used => "link_used",
            FormError::OtherInput(_) => "idempotency_conflict",
            FormError::Request(_) => "bad_request",
            FormError::Prefill(error) => error.code(),
            FormError::TooMany => "too_many_links",
            FormError::Unknown(_) => "form_not_found",
            FormError::Flow(_) => "flow_not_found",
            FormError::Start(StartError::Input(error)) => error.code(),
            FormError::Start(_) => "start_refused",
            FormError::Key(error) => error.code(),
            FormError::Document(_) => "store_unavailable",
        }
    }
}

impl From<StoreError> for FormError {
    fn from(error: StoreError) -> FormError {
        FormError::Document(error.into())
    }
}

impl MaybeStoreError for FormError {
    fn store_error(&self) -> Option<&StoreError> {
        match self {
            FormError::Document(error) => error.store_error(),
            FormError::Start(error) => error.store_error(),
            FormError::Flow(error) => error.store_error(),
            _ => None,
        }
    }
}

/// A link with the form of its flow.
#[derive(Debug)]
pub struct ShownForm {
    /// The link.
    pub link: FormLink,
    /// The description of the flow.
    pub description: Option<String>,
    /// The JSON Schema of the input. The members that the link sets are its defaults.
    pub schema: Value,
}

/// A run that a form is about to start.
pub enum FormStart {
    /// An earlier request with the same key has started it.
    Known(RunId),
    /// Another process has just counted the use of the same request, and is about to start it. Beside the run is the digest of
    /// the input.
    Underway(RunId, Box<str>),
    /// The use of the link is counted. The caller admits the run, or gives the use back.
    New(Box<FlowRunner>),
}

/// Returns a key for a request that has none.
pub fn new_key() -> String {
    hex::encode(rand::random::<[u8; 16]>())
}

/// Returns the digest of an input that a form sends, in any order of its members. A run remembers it, so that a request with the
/// same key and another input is refused.
fn input_digest(input: &Value) -> Box<str> {
    let mut sorted = input.clone();
    sorted.sort_all_objects();
    hex::encode(Sha256::digest(sorted.to_string())).into()
}

/// Opens a code: checks its tenant, its signature and its end, and that the link was not revoked. `is_enabled` tells whether a
/// tenant has links now. Reads the store.
pub fn open(
    host: &Host,
    code: &str,
    is_enabled: impl FnOnce(&Tenant) -> bool,
) -> Result<(Tenant, FormLink), FormError> {
    let (tenant, id, ends) = code::open(host, code, is_enabled)?;
    if host.now() >= ends {
        return Err(FormError::Ended(ends));
    }
    let found = Forms(&host.for_tenant(tenant.clone())).find(&id)?;
    let link = found.map(|(link, _)| link).filter(|link| link.ends == ends).ok_or(FormError::Invalid)?;
    Ok((tenant, link))
}

/// The links of the host's tenant.
pub struct Forms<'a>(pub &'a Host);

impl Forms<'_> {
    fn documents(&self) -> Documents<'_> {
        Documents { store: self.0.documents(), tenant: self.0.tenant() }
    }

    fn find(&self, id: &str) -> Result<Option<(FormLink, u64)>, FormError> {
        Ok(self.documents().get(LINK, id)?)
    }

    /// Returns at most [`MAX_PAGE`] links with ids after `after`, in the order of their ids, and the id after which further
    /// ones follow.
    pub fn page(&self, after: &str) -> Result<(Vec<FormLink>, Option<String>), FormError> {
        let found = self.raw_page(after)?;
        let next = if found.len() == MAX_PAGE { found.last().map(|last| last.key.clone()) } else { None };
        let links = found.iter().map(read).collect::<Result<_, _>>()?;
        Ok((links, next))
    }

    fn raw_page(&self, after: &str) -> Result<Vec<Document>, FormError> {
        Ok(self.0.documents().list(self.0.tenant(), LINK, after, MAX_PAGE)?)
    }

    /// Removes the links that have ended, and counts the others up to [`MAX_LINKS`].
    fn count(&self) -> Result<usize, FormError> {
        let (mut count, mut after) = (0, String::new());
        loop {
            let page = self.raw_page(&after)?;
            let Some(last) = page.last() else { return Ok(count) };
            after = last.key.clone();
            for found in &page {
                let link: FormLink = read(found)?;
                if link.ends > self.0.now() {
                    count += 1;
                } else {
                    // Another process may have removed it.
                    self.documents().put::<FormLink>(LINK, &found.key, None, found.version)?;
                }
            }
            if count >= MAX_LINKS {
                return Ok(count);
            }
        }
    }

    /// Returns the flow of a link with its form. The flow must exist, be able to run, and have a schema that is not too
    /// large.
    pub fn shown(&self, library: &FlowLibrary, link: FormLink) -> Result<ShownForm, FormError> {
        let flow = library.load(self.0, &link.flow, None)?;
        let schema = flow.graph().input_schema.clone().unwrap_or_default();
        if schema.to_string().len() > MAX_SCHEMA_BYTES {
            let why = format!(
                "the `inputSchema` of the flow is larger than {} KiB; a form cannot show it",
                MAX_SCHEMA_BYTES >> 10
            );
            return Err(FormError::Request(why));
        }
        let schema = with_defaults(schema, &link.prefill);
        Ok(ShownForm { description: flow.graph().description.clone(), schema, link })
    }

    /// Checks that the members that a link sets fit its flow. Other members may follow from a person.
    fn check_prefill(&self, library: &FlowLibrary, link: &FormLink) -> Result<(), FormError> {
        let flow = library.load(self.0, &link.flow, None)?;
        if fixed_member(flow.graph().input_schema.as_ref(), &Value::Null, &link.prefill).is_some() {
            let why = "`trigger`: a flow knows its trigger by it, so a link may not set it; leave it out";
            return Err(FormError::Prefill(InputError::Unfit { findings: vec![why.to_owned()] }));
        }
        self.0.computing(flow.graph(), || flow.check_part(&link.prefill)).map_err(FormError::Prefill)
    }

    /// Prepares the run of a form, and counts the use. The members of `input` take precedence over those of the link. A
    /// request with the same `key` and the same `input` starts one run. One with another input fails. It may block for
    /// about 2 s.
    pub fn start(
        &self,
        library: &FlowLibrary,
        link: &FormLink,
        input: Value,
        key: &str,
    ) -> Result<FormStart, FormError> {
        let run = link.run(key);
        if input.to_string().len() > MAX_INPUT_BYTES {
            return Err(FormError::Request(format!(
                "the input of a form may have at most {} KiB",
                MAX_INPUT_BYTES >> 10
            )));
        }
        let digest = input_digest(&input);
        if self.has_begun(&run, &digest)? {
            return Ok(FormStart::Known(run));
        }
        // A request that has used the link up may come a second time.
        if link.used >= link.uses && !self.is_starting(&link.id, &run)? {
            return Err(FormError::Used);
        }
        self.0.check_quota_for(Some(&run)).map_err(StartError::from)?;
        let flow = library.load(self.0, &link.flow, None)?;
        if let Some(place) = fixed_member(flow.graph().input_schema.as_ref(), &link.prefill, &input) {
            let place: String = place.chars().take(MAX_SHOWN_CHARS).flat_map(char::escape_debug).collect();
            return Err(FormError::Request(format!("the form has no field `{place}`; leave it out")));
        }
        let input = merged(link.prefill.clone(), input);
        let options = RunOptions {
            run_id: Some(run.clone()),
            input: Json::from(input),
            without_events: true,
            request: Some(digest.clone()),
            trigger: Some(link.name().into()),
            patience: Some(MAX_TIMER_WAIT),
            ..RunOptions::default()
        };
        // The input is checked before the use counts.
        let runner = self.0.runner(&flow, options).map_err(|error| match error {
            // Another process has begun the run meanwhile.
            StartError::Open(OpenError::OtherRequest(run)) => FormError::OtherInput(run),
            error => error.into(),
        })?;
        if !runner.is_new() {
            return Ok(FormStart::Known(run));
        }
        match self.count_use(&link.id, &run)? {
            true => Ok(FormStart::New(Box::new(runner))),
            false => Ok(FormStart::Underway(run, digest)),
        }
    }

    fn stored(&self, id: &str) -> Result<(StoredLink, u64), FormError> {
        self.documents().get(LINK, id)?.ok_or(FormError::Invalid)
    }

    /// Returns whether the link has counted the request with this key, so that the same form is no further use.
    pub fn has_counted(&self, link: &FormLink, key: &str) -> Result<bool, FormError> {
        let run = link.run(key);
        Ok(self.0.knows(&run)? || self.is_starting(&link.id, &run)?)
    }

    fn is_starting(&self, id: &str, run: &RunId) -> Result<bool, FormError> {
        Ok(self.stored(id)?.0.starting.iter().any(|starting| starting.run == *run))
    }

    /// Returns whether a run of a form has begun. Fails if it began with an input of another digest. The digest of a run that
    /// was removed is unknown, and counts as the same.
    pub fn has_begun(&self, run: &RunId, digest: &str) -> Result<bool, FormError> {
        if !self.0.knows(run)? {
            return Ok(false);
        }
        match self.0.record(run) {
            Ok(Some(record)) if record.request.as_deref().is_some_and(|own| own != digest) => {
                Err(FormError::OtherInput(run.clone()))
            }
            _ => Ok(true),
        }
    }

    /// Gives the use of a run back that was not admitted.
    pub fn give_back(&self, link: &FormLink, run: &RunId) -> Result<(), FormError> {
        for _ in 0..MAX_TRIES {
            let (mut stored, version) = self.stored(&link.id)?;
            let Some(at) = stored.starting.iter().position(|starting| starting.run == *run) else { return Ok(()) };
            stored.starting.remove(at);
            stored.link.used = stored.link.used.saturating_sub(1);
            if self.documents().put(LINK, &link.id, Some(&stored), version)? {
                return Ok(());
            }
        }
        Err(DocumentError::Changed(link.id.clone()).into())
    }

    /// Counts the use of a run. Of several callers at the same time with other runs, each counts. Of those with the same run,
    /// one counts, and the others get false. A start that no process has begun for [`STARTING_MS`] is taken over.
    fn count_use(&self, id: &str, run: &RunId) -> Result<bool, FormError> {
        for _ in 0..MAX_TRIES {
            let (mut stored, version) = self.stored(id)?;
            let (now, link) = (self.0.now(), &mut stored.link);
            if now >= link.ends {
                return Err(FormError::Ended(link.ends));
            }
            match stored.starting.iter_mut().find(|starting| starting.run == *run) {
                Some(starting) if now < starting.since.saturating_add(STARTING_MS) => return Ok(false),
                Some(starting) => starting.since = now,
                None if link.used >= link.uses => return Err(FormError::Used),
                None => {
                    link.used += 1;
                    stored.starting.push(Starting { run: run.clone(), since: now });
                    let excess = stored.starting.len().saturating_sub(MAX_STARTING);
                    stored.starting.drain(..excess);
                }
            }
            if self.documents().put(LINK, id, Some(&stored), version)? {
                return Ok(true);
            }
        }
        Err(DocumentError::Changed(id.to_owned()).into())
    }
}

impl From<AuthError> for FormError {
    fn from(error: AuthError) -> FormError {
        match error {
            AuthError::Unavailable => StoreError::unavailable("the tenants cannot be read").into(),
            AuthError::Missing | AuthError::Unknown => FormError::Invalid,
        }
    }
}

#[cfg(test)]
mod tests;
