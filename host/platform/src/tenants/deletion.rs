//! The removal of a tenant with everything that belongs to it.
//!
//! | step | after a crash |
//! |---|---|
//! | The record of the tenant notes what was found. From then on the tenant is refused everywhere. | the tenant is disabled, or being removed |
//! | The key of the tenant is destroyed, so that its secrets are unreadable in every copy. | the removal goes on |
//! | Its tokens, its policy, its rows, its flows and its files are removed. | the removal goes on |
//! | A tombstone gets the certificate and a salted hash of the name, and the record is removed. | the certificate can be printed again |
//!
//! The removal goes on when the same command is given again. Each step can be repeated.

use std::{
    collections::BTreeMap,
    fs, io,
    path::{Path, PathBuf},
};

use flowcell_contract::Tenant;
use flowcell_runtime::ports::Erase;
use flowcell_services::files::remove_tenant as remove_node_files;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::{
    TOKEN, TenantError, Tenants, accounts, audit,
    audit::Outcome,
    login,
    token::Token,
    token_use::{LastUse, TOKEN_USE},
};
pub use crate::operate::record::FoundData;
use crate::{
    FlowLibrary,
    drive::jobs::Jobs,
    host::erasure,
    operate::{
        policy::{OPERATORS, POLICY, Policy},
        record::{Removal, TENANT, TenantRecord},
    },
};

/// The kind of the documents that remain of removed tenants.
pub(super) const TOMBSTONE: &str = "tenant-tombstone";
/// Bytes of the salt of a tombstone's hash.
const SALT_BYTES: usize = 16;
/// Maximum number of further removals of rows, if other processes still write rows of the tenant.
const MAX_ROUNDS: usize = 10;

/// What remains of a removed tenant. It does not have the tenant's name.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Tombstone {
    salt: String,
    /// SHA-256 of the salt and the name, in hexadecimal.
    hash: String,
    certificate: Certificate,
}

/// The files of a tenant that a removal has removed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RemovedFiles {
    /// The folder with the flows of all tenants.
    pub flows_folder: PathBuf,
    /// Number of files and folders of the tenant's flows, with their versions and logs.
    pub flows: u64,
    /// The folder with the files of nodes. `None`: the process that removed the tenant has none.
    pub files_folder: Option<PathBuf>,
    /// Number of files and folders that nodes have written.
    pub files: u64,
    /// Bytes of these files.
    pub file_bytes: u64,
}

/// The head of the audit log of a removed tenant.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AuditHead {
    /// Number of entries.
    pub entries: u64,
    /// The hash of the last entry.
    pub head: String,
}

/// The certificate of a removal: what was removed, what remains, and what copies may still have.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Certificate {
    /// The id of the tombstone.
    pub id: String,
    /// The name of the tenant. The store does not keep it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tenant: Option<String>,
    /// The time when the removal began, in milliseconds since 1970.
    pub began: u64,
    /// The time when the removal ended, in milliseconds since 1970.
    pub ended: u64,
    /// The removed data of the store.
    pub removed: FoundData,
    /// The removed files.
    pub files: RemovedFiles,
    /// The rows that remain in the store. Empty unless other processes keep writing some.
    pub left: BTreeMap<String, u64>,
    /// The head of the audit log, which remains.
    pub audit: AuditHead,
    /// True if the key of the tenant was destroyed.
    pub key_destroyed: bool,
    /// True if the file of the store has no bytes of the removed rows. A database server keeps its own files.
    pub overwritten: bool,
    /// The places that may still have data of the tenant, one sentence each.
    pub copies: Vec<String>,
}

/// The answer to a request to remove a tenant.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(untagged)]
pub enum Deletion {
    /// Nothing was removed yet.
    Planned {
        /// The name of the tenant.
        tenant: String,
        /// The data that the removal would remove.
        found: FoundData,
    },
    /// The tenant was removed, now or earlier.
    Done(Box<Certificate>),
}

/// Removes a disabled tenant, or shows what the removal would remove unless it is `confirmed`. `flows` is the folder
/// with the flows of all tenants.
pub(super) fn delete(tenants: &Tenants, name: &str, flows: &Path, confirmed: bool) -> Result<Deletion, TenantError> {
    let tenant = Tenant::from(name);
    if tenant == Tenant::local() {
        return Err(TenantError::Local);
    }
    let Some((record, version)) = tenants.get::<TenantRecord>(TENANT, name)? else {
        return remove_rest(tenants, name, flows, confirmed);
    };
    if !record.disabled {
        return Err(TenantError::Enabled(name.to_owned()));
    }
    check_undriven(tenants, &tenant)?;
    let found = find(tenants, &tenant)?;
    if !confirmed {
        return Ok(Deletion::Planned { tenant: name.to_owned(), found });
    }
    let (removal, version) = match record.removal.clone() {
        Some(removal) => (removal, version),
        None => begin(tenants, &record, version, &tenant, found)?,
    };
    tenants.vault().destroy_key(&tenant)?;
    remove_documents(tenants, name)?;
    let eraser = erasure::eraser(&tenants.host);
    let left = erase_rows(tenants, &tenant, eraser)?;
    remove_jobs_and_report(tenants, &tenant)?;
    let files = remove_files(tenants, &tenant, flows)?;
    erasure::forget_in_memory(&tenants.host, &tenant);
    // A request from before may have made a new key.
    tenants.vault().destroy_key(&tenant)?;
    let purge = || {
        eraser.purge().unwrap_or_else(|error| {
            tracing::warn!("the file of the store keeps free pages: {error}");
            false
        })
    };
    let overwritten = purge();
    let certificate = certify(tenants, &removal, Rest { files, left, overwritten });
    bury(tenants, name, &certificate)?;
    tenants.note(OPERATORS, "tenant.delete", &removal.id, Outcome::Done)?;
    if !tenants.put::<TenantRecord>(TENANT, name, None, version)? {
        return Err(TenantError::Changed(name.to_owned()));
    }
    // The record of the tenant had its name until now.
    let overwritten = overwritten && purge();
    Ok(Deletion::Done(Box::new(Certificate { tenant: Some(name.to_owned()), overwritten, ..certificate })))
}

/// Fails if a process drives a run of a tenant.
fn check_undriven(tenants: &Tenants, tenant: &Tenant) -> Result<(), TenantError> {
    let here = tenants.host.hubs().count(tenant) as u64;
    match here + erasure::eraser(&tenants.host).driven_elsewhere(tenant)? {
        0 => Ok(()),
        runs => Err(TenantError::Driven(tenant.to_string(), runs)),
    }
}

fn find(tenants: &Tenants, tenant: &Tenant) -> Result<FoundData, TenantError> {
    let rows = erasure::eraser(&tenants.host).rows_of(tenant)?;
    // Tokens, accounts and jobs are documents of the operators, so they are not among the rows.
    let tokens = tenants.tokens(Some(tenant.as_str()))?.len() as u64;
    let secrets = tenants.vault().list(tenant)?.len() as u64;
    let credentials = tenants.vault().list_credentials(tenant)?.len() as u64;
    let accounts = accounts::list(tenants, Some(tenant.as_str()))?.len() as u64;
    let jobs = Jobs::of(&tenants.host.for_tenant(tenant.clone())).number()?;
    Ok(FoundData { rows, tokens, secrets, credentials, accounts, jobs })
}

/// Records that the removal has begun. Returns the start, and the new version of the record.
fn begin(
    tenants: &Tenants,
    record: &TenantRecord,
    version: u64,
    tenant: &Tenant,
    found: FoundData,
) -> Result<(Removal, u64), TenantError> {
    let name = tenant.as_str();
    tenants.note(name, "tenant.delete", name, Outcome::Done)?;
    let log = audit::verify(tenants, name, None)?;
    let removal = Removal {
        id: hex::encode(rand::random::<[u8; 8]>()),
        began: tenants.host.now(),
        found,
        has_key: tenants.vault().has_key(tenant)?,
        plain_data_keys: tenants.vault().count_plain_keys(tenant)?,
        audit_entries: log.entries,
        audit_head: log.head,
    };
    let record = TenantRecord { removal: Some(removal.clone()), ..record.clone() };
    match tenants.put(TENANT, name, Some(&record), version)? {
        true => Ok((removal, version + 1)),
        false => Err(TenantError::Changed(name.to_owned())),
    }
}

/// Removes the operators' documents about a tenant, except its record.
fn remove_documents(tenants: &Tenants, name: &str) -> Result<(), TenantError> {
    for row in tenants.tokens(Some(name))? {
        remove::<Token>(tenants, TOKEN, &row.id)?;
        tenants.uses.forget(&row.id);
        remove::<LastUse>(tenants, TOKEN_USE, &row.id)?;
    }
    accounts::remove_of(tenants, name)?;
    login::remove_codes(tenants, |code| code.is_of(name))?;
    remove::<Policy>(tenants, POLICY, name)?;
    remove_jobs_and_report(tenants, &Tenant::from(name))
}

/// Removes the jobs of a tenant, and reports to the other processes of a shared store that its posted flows are gone.
fn remove_jobs_and_report(tenants: &Tenants, tenant: &Tenant) -> Result<(), TenantError> {
    let host = tenants.host.for_tenant(tenant.clone());
    Jobs::of(&host).remove_all()?;
    Ok(host.posted().map_or(Ok(()), |posted| posted.report())?)
}

fn remove<T: Serialize + serde::de::DeserializeOwned>(
    tenants: &Tenants,
    kind: &str,
    key: &str,
) -> Result<(), TenantError> {
    match tenants.get::<T>(kind, key)? {
        Some((_, version)) if !tenants.put::<T>(kind, key, None, version)? => Err(TenantError::Changed(key.to_owned())),
        _ => Ok(()),
    }
}

/// Removes all rows of a tenant. Returns those that remain because other processes have written them meanwhile.
fn erase_rows(tenants: &Tenants, tenant: &Tenant, eraser: &dyn Erase) -> Result<BTreeMap<String, u64>, TenantError> {
    let mut left = BTreeMap::new();
    for _ in 0..MAX_ROUNDS {
        check_undriven(tenants, tenant)?;
        while eraser.erase_some(tenant)? > 0 {}
        left = eraser.rows_of(tenant)?;
        if left.is_empty() {
            break;
        }
    }
    Ok(left)
}

fn remove_files(tenants: &Tenants, tenant: &Tenant, flows: &Path) -> Result<RemovedFiles, TenantError> {
    let failed = |folder: &Path| {
        let folder = folder.display().to_string();
        move |error: io::Error| TenantError::Folder(folder, error)
    };
    let library = FlowLibrary::of_tenant(flows, tenant);
    let own = library.folder().parent().unwrap_or(library.folder());
    let mut removed = RemovedFiles {
        flows_folder: flows.to_owned(),
        flows: remove_folder(own).map_err(failed(own))?,
        ..RemovedFiles::default()
    };
    if let Some(folder) = erasure::files_folder(&tenants.host) {
        let files = remove_node_files(folder, tenant).map_err(failed(folder))?;
        (removed.files, removed.file_bytes) = (files.entries, files.bytes);
        removed.files_folder = Some(folder.to_owned());
    }
    Ok(removed)
}

/// Removes a folder with everything in it, without following links. Returns the number of its files and folders.
fn remove_folder(folder: &Path) -> io::Result<u64> {
    let count = match count_entries(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(0),
        count => count?,
    };
    fs::remove_dir_all(folder)?;
    folder.parent().map_or(Ok(()), |above| fs::File::open(above)?.sync_all())?;
    Ok(count)
}

fn count_entries(folder: &Path) -> io::Result<u64> {
    let mut count = 0;
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        count += 1;
        // The type of an entry does not follow links.
        if entry.file_type()?.is_dir() {
            count += count_entries(&entry.path())?;
        }
    }
    Ok(count)
}

/// The results of the steps of a removal.
struct Rest {
    files: RemovedFiles,
    left: BTreeMap<String, u64>,
    overwritten: bool,
}

fn certify(tenants: &Tenants, removal: &Removal, rest: Rest) -> Certificate {
    let copies = copies(tenants, removal, &rest);
    let Rest { files, left, overwritten } = rest;
    Certificate {
        id: removal.id.clone(),
        tenant: None,
        began: removal.began,
        ended: tenants.host.now(),
        removed: removal.found.clone(),
        files,
        left,
        audit: AuditHead { entries: removal.audit_entries, head: removal.audit_head.clone() },
        key_destroyed: removal.has_key,
        overwritten,
        copies,
    }
}

/// Returns the places that may still have data of a removed tenant.
fn copies(tenants: &Tenants, removal: &Removal, rest: &Rest) -> Vec<String> {
    let mut copies = vec!["backups and other copies of the store from before the removal have its rows".to_owned()];
    let shared = tenants.host.shared().is_some();
    if removal.found.secrets > 0 || removal.found.credentials > 0 || removal.plain_data_keys > 0 || removal.has_key {
        copies.push(match (removal.has_key, removal.plain_data_keys) {
            (true, 0) => {
                "secrets and credentials in such copies cannot be decrypted without a copy of the tenant's destroyed \
                 key, except in copies from before the tenant had a key of its own"
            }
            _ => {
                "secrets and credentials in such copies can be decrypted with the key of the store: encrypt those of \
                 the other tenants with a new key (`flowcell secret rotate-key`), and destroy the old key and its copies"
            }
        }
        .to_owned());
    }
    match (shared, rest.overwritten) {
        (true, _) => copies.push(
            "the database server may keep removed rows in dead rows, undo logs, its write-ahead or binary log, \
             replicas and its own backups, until it discards them"
                .to_owned(),
        ),
        (false, false) => copies.push(
            "free pages and the write-ahead log of the store's file may have bytes of removed rows until `flowcell \
             store compact` succeeds while no other process reads the store"
                .to_owned(),
        ),
        (false, true) => {}
    }
    copies.push("the disk and snapshots of its file system may keep blocks that were overwritten or freed".to_owned());
    if rest.files.flows == 0 {
        copies.push(format!(
            "{} has no flows of the tenant: if a server has another `--flows`, give the command again with it, on each \
             machine",
            rest.files.flows_folder.display()
        ));
    }
    if rest.files.files_folder.is_none() {
        copies.push(
            "this process has no `--files` folder: if nodes wrote files into one, give the command again with it"
                .to_owned(),
        );
    }
    if shared {
        copies.push(
            "a request that another process admitted before the tenant was disabled may still write rows: the same \
             command removes them, and so does the next pass of retention of a server, about every 10 minutes"
                .to_owned(),
        );
    }
    copies.push("logs and telemetry of processes name the tenant, its flows and its runs, without contents".to_owned());
    copies.push("running processes may have values in memory and metrics until they end".to_owned());
    copies.push("compiled code of the tenant's packs stays in the cache folder, under hashes".to_owned());
    copies.push("servers, models and receivers that its runs have called keep what they were sent".to_owned());
    copies
}

/// Stores the tombstone of a removed tenant, unless an interrupted removal has stored it.
fn bury(tenants: &Tenants, name: &str, certificate: &Certificate) -> Result<(), TenantError> {
    let salt = hex::encode(rand::random::<[u8; SALT_BYTES]>());
    let tombstone = Tombstone { hash: hash(&salt, name), salt, certificate: certificate.clone() };
    let seen = tenants.get::<Tombstone>(TOMBSTONE, &certificate.id)?.map_or(0, |(_, version)| version);
    match tenants.put(TOMBSTONE, &certificate.id, Some(&tombstone), seen)? {
        true => Ok(()),
        false => Err(TenantError::Changed(certificate.id.clone())),
    }
}

fn hash(salt: &str, name: &str) -> String {
    let mut hasher = Sha256::new();
    hasher.update(salt);
    hasher.update(name);
    hex::encode(hasher.finalize())
}

/// Returns the certificate of the last removed tenant with this name.
pub(super) fn certificate_of(tenants: &Tenants, name: &str) -> Result<Option<Certificate>, TenantError> {
    let all = tenants.all::<Tombstone>(TOMBSTONE)?.into_iter().map(|(_, tombstone)| tombstone);
    let of_name = all.filter(|tombstone| hash(&tombstone.salt, name) == tombstone.hash);
    Ok(of_name.map(|tombstone| tombstone.certificate).max_by_key(|certificate| certificate.ended))
}

/// Removes rows that were written for a tenant after its removal, and files in folders that the removal did not have.
/// Returns its certificate.
fn remove_rest(tenants: &Tenants, name: &str, flows: &Path, confirmed: bool) -> Result<Deletion, TenantError> {
    let mut certificate = certificate_of(tenants, name)?.ok_or_else(|| TenantError::Unknown(name.to_owned()))?;
    let tenant = Tenant::from(name);
    check_undriven(tenants, &tenant)?;
    let eraser = erasure::eraser(&tenants.host);
    let left = match confirmed {
        true => erase_rows(tenants, &tenant, eraser)?,
        false => eraser.rows_of(&tenant)?,
    };
    if confirmed {
        remove_jobs_and_report(tenants, &tenant)?;
        let files = remove_files(tenants, &tenant, flows)?;
        if files.flows > 0 || files.files > 0 {
            certificate.files = files;
            bury(tenants, name, &certificate)?;
        }
    }
    Ok(Deletion::Done(Box::new(Certificate { tenant: Some(name.to_owned()), left, ..certificate })))
}

/// Removes rows that other processes of a shared store have written for removed tenants after their removal. A store
/// with one owner refuses such rows.
pub(super) fn remove_strays(tenants: &Tenants) -> Result<(), TenantError> {
    if tenants.host.shared().is_none() {
        return Ok(());
    }
    let eraser = erasure::eraser(&tenants.host);
    let mut last = Tenant::from(OPERATORS);
    while let Some(tenant) = eraser.next_tenant(&last)? {
        let name = tenant.as_str();
        let is_known = tenant == Tenant::local() || tenants.get::<TenantRecord>(TENANT, name)?.is_some();
        if !is_known && certificate_of(tenants, name)?.is_some() {
            match erase_rows(tenants, &tenant, eraser) {
                Ok(_) => tracing::info!(target: "flowcell::tenants", "removed rows of a removed tenant"),
                Err(error) => tracing::warn!("cannot remove rows of a removed tenant: {error}"),
            }
        }
        last = tenant;
    }
    Ok(())
}
