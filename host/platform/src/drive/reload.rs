//! Reads packs, flows, triggers, the certificate and the files of notifications and of the sign-in again while a process
//! runs.
//!
//! Packs are read again only here. Flows of the folder are read again at each start of a run, and triggers every few
//! seconds; a reload also reads them at once, checks the flows, and says what has changed. A server looks at the files
//! of its certificate every few seconds, too.

use std::{
    collections::{BTreeMap, BTreeSet},
    error::Error,
    path::Path,
    sync::Arc,
    time::SystemTime,
};

use flowcell_contract::Tenant;
use futures_util::future::BoxFuture;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

use super::triggers::Triggers;
use crate::{FlowLibrary, Host, LibraryError, host::pack_changes::PackChanges, posted::cache::LOOK_INTERVAL};

/// Maximum number of flows that one reload checks.
pub const MAX_CHECKED_FLOWS: usize = 1_000;

/// The result of a reload.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct Reloaded {
    /// The changes of packs. `None` if a pack cannot be used; all packs are then as before.
    pub packs: Option<PackChanges>,
    /// The changes of the flows of `local`. `None` if the process has no folder of flows, or cannot read it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub flows: Option<FlowChanges>,
    /// The number of triggers of all tenants. `None` if the process starts no triggers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub triggers: Option<usize>,
    /// The certificate of the server. `None` if the process has none, or cannot use the files.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub certificate: Option<CertificateRead>,
    /// The targets of notifications. `None` if the process has no file of them, or cannot use it; the earlier targets then
    /// stay in force.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub notifications: Option<NotificationsRead>,
    /// The issuers of the sign-in. `None` if the process has no file of them, or cannot use it; the earlier issuers then stay
    /// in force.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sign_in: Option<SignInRead>,
    /// The reasons why packs, flows, the certificate or a file of the operator could not be read, as sentences.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub errors: Vec<String>,
}

/// The changes of flows since they were last read.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct FlowChanges {
    /// The new files of flows in the folder.
    pub added: Vec<String>,
    /// The files of flows in the folder with another size or time of modification.
    pub changed: Vec<String>,
    /// The files of flows that are gone.
    pub gone: Vec<String>,
    /// The number of flows that were checked with the present packs, in the folder and posted ones.
    pub checked: usize,
    /// The number of flows beyond [`MAX_CHECKED_FLOWS`], which were not checked.
    pub unchecked: usize,
    /// The flows that cannot run.
    pub broken: Vec<BrokenFlow>,
}

/// A flow that cannot run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct BrokenFlow {
    /// The name of the flow.
    pub flow: String,
    /// The errors of its check.
    pub error: String,
}

/// A server's certificate after its files were read again.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct CertificateRead {
    /// True if the files have another certificate or key than before.
    pub replaced: bool,
    /// The end of its validity, in milliseconds since 1970.
    pub valid_until: u64,
}

/// The file of notifications after it was read again.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct NotificationsRead {
    /// The number of targets.
    pub targets: usize,
}

/// The file of the sign-in after it was read again.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct SignInRead {
    /// The number of issuers.
    pub issuers: usize,
}

/// Reads the file of the sign-in and its secrets again. The error is a sentence.
pub type ReadSignIn = Arc<dyn Fn() -> BoxFuture<'static, Result<SignInRead, String>> + Send + Sync>;

/// Reads the file of notifications and its secrets again. The error is a sentence.
pub type ReadNotifications = Arc<dyn Fn() -> BoxFuture<'static, Result<NotificationsRead, String>> + Send + Sync>;

/// Reads the certificate of a server and its key again. The error is a sentence.
pub type ReadCertificate = Arc<dyn Fn() -> Result<CertificateRead, String> + Send + Sync>;

impl Reloaded {
    /// Returns whether everything could be read, and no flow is broken.
    pub fn is_good(&self) -> bool {
        self.errors.is_empty() && self.flows.as_ref().is_none_or(|flows| flows.broken.is_empty())
    }

    /// Logs what could not be read or is broken, as warnings, and the changes.
    pub fn log(&self) {
        for error in &self.errors {
            tracing::warn!("a reload found an error: {error}");
        }
        for BrokenFlow { flow, error } in self.flows.iter().flat_map(|flows| &flows.broken) {
            tracing::warn!("a reload found that the flow `{flow}` cannot run: {error}");
        }
        if let Some(packs) = &self.packs {
            log_packs(packs);
        }
    }
}

/// Reloads a process.
pub struct Reloader {
    host: Host,
    served: Option<ServedFlows>,
    read_certificate: Option<ReadCertificate>,
    read_notifications: Option<ReadNotifications>,
    read_sign_in: Option<ReadSignIn>,
    /// Held during a reload, so that one runs at a time.
    turn: tokio::sync::Mutex<()>,
}

/// The flows and triggers of a server.
struct ServedFlows {
    /// The flows of `local`.
    library: FlowLibrary,
    triggers: Arc<Triggers>,
    /// The files of flows when they were last read.
    seen: Arc<Mutex<BTreeSet<FlowFile>>>,
}

/// A file of a flow, with its size and time of modification.
type FlowFile = (String, u64, SystemTime);

impl Reloader {
    /// Creates a reloader for a process that has only packs.
    pub fn new(host: Host) -> Reloader {
        Reloader {
            host: host.for_tenant(Tenant::local()),
            served: None,
            read_certificate: None,
            read_notifications: None,
            read_sign_in: None,
            turn: Default::default(),
        }
    }

    /// Returns a reloader that also reads the flows of `local` in a server's folder, and the triggers of all tenants.
    pub fn with_flows(self, folder: &Path, triggers: Arc<Triggers>) -> Reloader {
        let library = FlowLibrary::of_host(folder, &self.host);
        // A folder that cannot be read has no files now; the next reload reports why.
        let seen = Arc::new(Mutex::new(library.file_times().unwrap_or_default()));
        Reloader { served: Some(ServedFlows { library, triggers, seen }), ..self }
    }

    /// Returns a reloader that also reads the certificate of a server.
    pub fn with_certificate(self, read: ReadCertificate) -> Reloader {
        Reloader { read_certificate: Some(read), ..self }
    }

    /// Returns a reloader that also reads the file of notifications.
    pub fn with_notifications(self, read: ReadNotifications) -> Reloader {
        Reloader { read_notifications: Some(read), ..self }
    }

    /// Returns a reloader that also reads the file of the sign-in.
    pub fn with_sign_in(self, read: ReadSignIn) -> Reloader {
        Reloader { read_sign_in: Some(read), ..self }
    }

    /// Reads everything again. If packs cannot be used, the earlier ones stay in use, and flows
    /// and triggers are still read. Several reloads run one after the other.
    pub async fn reload(&self) -> Reloaded {
        ReloadTurn { reloader: self, _turn: self.turn.lock().await }.reload().await
    }

    /// Returns the turn to reload. Returns `None` while another reload is under way.
    pub fn try_turn(&self) -> Option<ReloadTurn<'_>> {
        Some(ReloadTurn { reloader: self, _turn: self.turn.try_lock().ok()? })
    }

    async fn read_all(&self) -> Reloaded {
        let mut reloaded = Reloaded::default();
        let host = self.host.clone();
        match unblocked(move || host.reload_packs().map_err(|error| pack_error(&error))).await {
            Ok(packs) => reloaded.packs = Some(packs),
            Err(error) => reloaded.errors.push(error),
        }
        if let Some(ServedFlows { library, triggers, seen }) = &self.served {
            let (host, library, seen) = (self.host.clone(), library.clone(), seen.clone());
            match unblocked(move || read_flows(&host, &library, &seen).map_err(|error| error.to_string())).await {
                Ok(flows) => reloaded.flows = Some(flows),
                Err(error) => reloaded.errors.push(error),
            }
            reloaded.triggers = Some(triggers.reread().await);
        }
        if let Some(read) = self.read_certificate.clone() {
            match unblocked(move || read()).await {
                Ok(certificate) => reloaded.certificate = Some(certificate),
                Err(error) => reloaded.errors.push(error),
            }
        }
        if let Some(read) = &self.read_notifications {
            match read().await {
                Ok(notifications) => reloaded.notifications = Some(notifications),
                Err(error) => reloaded.errors.push(error),
            }
        }
        if let Some(read) = &self.read_sign_in {
            match read().await {
                Ok(sign_in) => reloaded.sign_in = Some(sign_in),
                Err(error) => reloaded.errors.push(error),
            }
        }
        reloaded
    }
}

/// The turn to reload a process. No other reload runs meanwhile.
pub struct ReloadTurn<'a> {
    reloader: &'a Reloader,
    _turn: tokio::sync::MutexGuard<'a, ()>,
}

impl ReloadTurn<'_> {
    /// Reads everything again, as [`Reloader::reload`].
    pub async fn reload(self) -> Reloaded {
        self.reloader.read_all().await
    }
}

impl Reloader {
    /// Looks for packs that operators push to the shared store or remove from it, once in each [`LOOK_INTERVAL`], until the
    /// caller drops the future. Returns at once if the store is not shared.
    pub async fn follow_shared_packs(&self) {
        let mut answers = true;
        while self.host.shared().is_some() {
            tokio::time::sleep(LOOK_INTERVAL).await;
            let host = self.host.clone();
            // A look that has panicked finds nothing.
            let Ok(looked) = tokio::task::spawn_blocking(move || host.look_for_packs()).await else { continue };
            match &looked {
                Ok(changes) if changes.is_empty() => {}
                Ok(changes) => log_packs(changes),
                Err(error) if answers && !error.is_outage() => {
                    tracing::warn!("cannot look for packs of the shared store; the known ones stay in use: {error}");
                }
                Err(_) => {}
            }
            answers = looked.is_ok();
        }
    }
}

fn log_packs(changes: &PackChanges) {
    let (added, replaced, gone) = (changes.added.len(), changes.replaced.len(), changes.gone.len());
    tracing::info!(added, replaced, gone, "the packs were read again");
}

/// Runs work on a thread that it may block.
async fn unblocked<T: Send + 'static>(work: impl FnOnce() -> Result<T, String> + Send + 'static) -> Result<T, String> {
    tokio::task::spawn_blocking(work).await.map_err(|error| error.to_string()).flatten()
}

/// Compares the files of flows with those that were read before, and checks the flows.
fn read_flows(
    host: &Host,
    library: &FlowLibrary,
    seen: &Mutex<BTreeSet<FlowFile>>,
) -> Result<FlowChanges, LibraryError> {
    let (files, names) = (library.file_times()?, library.names()?);
    let mut changes = FlowChanges::default();
    let before = std::mem::replace(&mut *seen.lock(), files.clone());
    let of = |files: &BTreeSet<FlowFile>| -> BTreeMap<String, (u64, SystemTime)> {
        files.iter().map(|(file, size, time)| (file.clone(), (*size, *time))).collect()
    };
    let (before, after) = (of(&before), of(&files));
    for (file, state) in &after {
        match before.get(file) {
            None => changes.added.push(file.clone()),
            Some(known) if known != state => changes.changed.push(file.clone()),
            Some(_) => {}
        }
    }
    changes.gone = before.keys().filter(|file| !after.contains_key(*file)).cloned().collect();
    changes.checked = names.len().min(MAX_CHECKED_FLOWS);
    changes.unchecked = names.len() - changes.checked;
    for flow in names.into_iter().take(MAX_CHECKED_FLOWS) {
        match library.load(host, &flow, None) {
            // A flow that is deleted meanwhile is not broken.
            Ok(_) | Err(LibraryError::Unknown(_)) => {}
            Err(error @ LibraryError::Store(_)) => return Err(error),
            Err(error) => changes.broken.push(BrokenFlow { flow, error: error.to_string() }),
        }
    }
    Ok(changes)
}

/// Returns an error of packs as a sentence, with its causes and advice.
fn pack_error(error: &crate::Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        let cause_text = cause.to_string();
        if !text.contains(&cause_text) {
            text = format!("{text}: {cause_text}");
        }
        next = cause.source();
    }
    let help = match error {
        crate::Error::Installed(error) => error.help(),
        _ => None,
    };
    let help = help.map(|help| format!("; {help}")).unwrap_or_default();
    format!("{text}{help}; the packs are as before")
}
