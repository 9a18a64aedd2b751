//! Checks of whole stores, and copies from one kind of store to another.

mod contents;

use std::{
    io::{self, Write},
    sync::Arc,
};

use flowcell_contract::{MAX_WHOLE_BYTES, RunId, Tenant, Value};
use serde::Serialize;

use self::contents::{bytes, damage_of, piece, size};
use crate::{
    limits::MAX_READ_UNITS,
    ports::{Blobs, Document, Journal, Record, Session, StateStore, StepState, StoreError, Unit},
    rows::damaged,
};

/// The maximum number of rows of one read.
const PAGE_ROWS: usize = 500;
/// The approximate size of the rows of one write, in bytes.
const BATCH_BYTES: usize = 8 << 20;
/// The assumed size of a row without large values, in bytes.
const ROW_BYTES: usize = 4 << 10;

/// The stored row of a run.
#[derive(Clone, Debug, PartialEq)]
pub struct KeptRun {
    /// The number of the row. Runs that began earlier have smaller numbers.
    pub number: i64,
    /// The tenant of the run.
    pub tenant: Tenant,
    /// The id of the run.
    pub run: RunId,
    /// The name of the flow.
    pub flow: String,
    /// The number of runs above this one in the run tree.
    pub depth: u32,
    /// The run that called this one, if it is a child.
    pub parent: Option<RunId>,
    /// The metadata as JSON; empty if the run was removed.
    pub record: String,
    /// The status: `active`, `parked`, `succeeded`, `failed`, `cancelled` or `removed`.
    pub status: String,
    /// The time of the run's next timer (milliseconds since 1970).
    pub due: Option<u64>,
    /// True if a person has to decide something.
    pub attention: bool,
    /// The time of the run's start, in milliseconds since 1970.
    pub created: u64,
    /// The time of the last change of the run's status, in milliseconds since 1970.
    pub updated: u64,
}

impl KeptRun {
    /// Parses the metadata. Returns `None` for a removed run.
    pub(crate) fn parsed_record(&self) -> Result<Option<Record>, StoreError> {
        if self.record.is_empty() {
            return Ok(None);
        }
        serde_json::from_str(&self.record).map(Some).map_err(|error| damaged(&self.run, &error))
    }
}

/// The stored value of a flow's state.
#[derive(Clone, Debug, PartialEq)]
pub struct KeptState {
    /// The tenant of the flow.
    pub tenant: Tenant,
    /// The name of the flow.
    pub flow: String,
    /// The key of the value.
    pub key: String,
    /// The stored value.
    pub value: Value,
    /// The version of the value.
    pub version: u64,
}

/// The row of a blob without its bytes.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct KeptBlob {
    /// The tenant of the blob.
    pub tenant: Tenant,
    /// The SHA-256 of the bytes, in hexadecimal.
    pub hash: String,
    /// The media type of the blob.
    pub mime: String,
}

/// A row that a copy transfers from one store to another.
#[derive(Clone, Debug, PartialEq)]
pub enum Kept {
    /// A run, before its units and after its parent.
    Run(KeptRun),
    /// The next units of a run, in order.
    Units(Tenant, RunId, Vec<Arc<Unit>>),
    /// A value of a flow's state.
    State(KeptState),
    /// A session of an agentic flow.
    Session(Tenant, Session),
    /// A step state, after its session.
    Step(Tenant, StepState),
    /// A document, with its kind.
    Document(Tenant, String, Document),
    /// A blob with its bytes.
    Blob(KeptBlob, Arc<[u8]>),
}

/// Returns the piece of a file at an offset, nothing at the end.
pub type ReadPiece<'a> = dyn FnMut(u64) -> Result<Vec<u8>, StoreError> + 'a;

/// A store that can be checked and copied as a whole.
pub trait CopyableStore: Journal + Blobs + StateStore {
    /// Lists at most `limit` runs whose row number is greater than `after`, including runs that were removed.
    fn kept_runs(&self, after: i64, limit: usize) -> Result<Vec<KeptRun>, StoreError>;

    /// Lists the tenant, the flow and the key of at most `limit` values of state, in the order of these three parts,
    /// from the first that follows `after`.
    fn kept_keys(
        &self,
        after: &(Tenant, String, String),
        limit: usize,
    ) -> Result<Vec<(Tenant, String, String)>, StoreError>;

    /// Lists at most `limit` blobs after the blob `after`, in the order of tenants and hashes.
    fn kept_blobs(&self, after: &KeptBlob, limit: usize) -> Result<Vec<KeptBlob>, StoreError>;

    /// Lists at most `limit` sessions after the tenant and id `after`, in the order of tenants and ids.
    fn kept_sessions(&self, after: &(Tenant, String), limit: usize) -> Result<Vec<(Tenant, Session)>, StoreError>;

    /// Lists at most `limit` step states after the tenant and session `after`, in the order of tenants and sessions.
    fn kept_steps(&self, after: &(Tenant, String), limit: usize) -> Result<Vec<(Tenant, StepState)>, StoreError>;

    /// Lists at most `limit` documents with their tenants and kinds, in the order of tenant, kind and key, from the
    /// first that follows `after`.
    fn kept_documents(
        &self,
        after: &(Tenant, String, String),
        limit: usize,
    ) -> Result<Vec<(Tenant, String, Document)>, StoreError>;

    /// Pins a snapshot: all later reads of this store show its present data, without the later writes of other
    /// processes. Nothing can be inserted into it after that. If the server ends the snapshot, reads fail.
    fn pin_snapshot(&self) -> Result<(), StoreError>;

    /// Returns whether another process may write to the store now.
    fn is_in_use(&self) -> Result<bool, StoreError>;

    /// Fails if the object store that may have files of this store does not answer. What cannot be read then is not
    /// damaged.
    fn reach_files(&self) -> Result<(), StoreError>;

    /// Returns whether this store takes a blob of another store as a large file, and not as a row.
    fn is_large(&self, _: &KeptBlob, size: u64) -> bool {
        size > MAX_WHOLE_BYTES as u64
    }

    /// Stores a file of another store that is too large to be in memory. `read` returns the piece at an offset, nothing at
    /// the end. By default it fails, because the store has no such files.
    fn take_large(&self, blob: &KeptBlob, _: &mut ReadPiece<'_>) -> Result<(), StoreError> {
        Err(no_large_files(blob))
    }

    /// Inserts rows of another store, all or none. Returns when they are on stable storage.
    fn take_over(&self, kept: Vec<Kept>) -> Result<(), StoreError>;
}

/// Returns the error for a large file of a store that is copied to one without large files.
pub(crate) fn no_large_files(blob: &KeptBlob) -> StoreError {
    let message = format!(
        "the file {} of the tenant `{}` has more than {MAX_WHOLE_BYTES} bytes, and the destination has no such files: copy \
         to a folder, or give `--blobs`",
        blob.hash, blob.tenant
    );
    StoreError(message.into())
}

/// The amounts of data in a store.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Amount {
    /// Number of runs, including child runs and removed runs.
    pub runs: u64,
    /// Number of units in the journals.
    pub units: u64,
    /// Number of values of state.
    pub values: u64,
    /// Number of blobs.
    pub blobs: u64,
    /// Number of sessions of agentic flows.
    pub sessions: u64,
    /// Number of step states.
    pub steps: u64,
    /// Number of documents of operators.
    pub registered: u64,
}

/// The result of a check.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Checked {
    /// The amounts of data that were checked.
    pub amount: Amount,
    /// The damages, one sentence each.
    pub damage: Vec<String>,
}

/// Checks everything in a store. Fails only if the store does not answer.
pub fn check(store: &dyn CopyableStore) -> Result<Checked, StoreError> {
    let mut checked = Checked::default();
    each_run(store, |run| {
        checked.amount.runs += 1;
        if run.status == "removed" {
            return Ok(());
        }
        let found = store.find(&run.tenant, &run.run).map(drop);
        let read = found.and_then(|()| {
            each_page(store, &run, |page| {
                checked.amount.units += page.len() as u64;
                Ok(())
            })
        });
        checked.damage.extend(read.err().map(|error| error.to_string()));
        Ok(())
    })?;
    each_key(store, |(tenant, flow, key)| {
        checked.amount.values += 1;
        checked.damage.extend(StateStore::get(store, tenant, flow, key).err().map(|error| error.to_string()));
        Ok(())
    })?;
    each_blob(store, |blob| {
        checked.amount.blobs += 1;
        checked.damage.extend(damage_of(store, blob)?);
        Ok(())
    })?;
    each_session(store, |_, _| {
        checked.amount.sessions += 1;
        Ok(())
    })?;
    let looked = each_step(store, |_, _| {
        checked.amount.steps += 1;
        Ok(())
    });
    checked.damage.extend(looked.err().map(|error| format!("the states of steps: {error}")));
    let looked = each_document(store, |_, _, _| {
        checked.amount.registered += 1;
        Ok(())
    });
    checked.damage.extend(looked.err().map(|error| format!("the registry: {error}")));
    Ok(checked)
}

/// The reason why a store was not copied.
#[derive(Debug, thiserror::Error)]
pub enum CopyError {
    /// Another process may write to the store to copy, or to the destination.
    #[error("another process uses the {0}; stop it first")]
    InUse(&'static str),
    /// The destination has data.
    #[error("the destination store is not empty")]
    NotEmpty,
    /// A store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Copies everything from one store to an empty one. Fails while another process may write to either. After a failure
/// the target keeps the rows so far, and the copy has to start again with an empty store.
pub fn copy(from: &dyn CopyableStore, to: &dyn CopyableStore) -> Result<Amount, CopyError> {
    for (store, name) in [(from, "store to copy"), (to, "destination store")] {
        if store.is_in_use()? {
            return Err(CopyError::InUse(name));
        }
    }
    match is_empty(to)? {
        true => Ok(copy_all(from, to)?),
        false => Err(CopyError::NotEmpty),
    }
}

fn is_empty(store: &dyn CopyableStore) -> Result<bool, StoreError> {
    let no_blob = KeptBlob { tenant: Tenant::from(""), hash: String::new(), mime: String::new() };
    let nothing = || (Tenant::from(""), String::new(), String::new());
    Ok(store.kept_runs(0, 1)?.is_empty()
        && store.kept_blobs(&no_blob, 1)?.is_empty()
        && store.kept_keys(&nothing(), 1)?.is_empty()
        && store.kept_documents(&nothing(), 1)?.is_empty())
}

/// Copies the present data of a store to an empty one, while other processes write to the first. Nothing can be
/// inserted into `from` after that.
pub fn back_up(from: &dyn CopyableStore, to: &dyn CopyableStore) -> Result<Amount, StoreError> {
    from.pin_snapshot()?;
    copy_all(from, to)
}

fn copy_all(from: &dyn CopyableStore, to: &dyn CopyableStore) -> Result<Amount, StoreError> {
    let mut amount = Amount::default();
    let mut batch = Batch { to, rows: Vec::new(), bytes: 0 };
    each_blob(from, |blob| {
        let Some(size) = size(from, blob)? else { return Ok(()) };
        amount.blobs += 1;
        if to.is_large(blob, size) {
            return to.take_large(blob, &mut |offset| piece(from, blob, offset));
        }
        let Some(bytes) = bytes(from, blob)? else { return Ok(()) };
        let size = bytes.len();
        batch.add(Kept::Blob(blob.clone(), bytes), size)
    })?;
    each_run(from, |run| {
        amount.runs += 1;
        batch.add(Kept::Run(run.clone()), run.record.len())?;
        each_page(from, &run, |page| {
            amount.units += page.len() as u64;
            let size = size_of(&page);
            batch.add(Kept::Units(run.tenant.clone(), run.run.clone(), page), size)
        })
    })?;
    each_key(from, |(tenant, flow, key)| {
        amount.values += 1;
        let Some((value, version)) = StateStore::get(from, tenant, flow, key)? else { return Ok(()) };
        let (tenant, flow, key, size) = (tenant.clone(), flow.clone(), key.clone(), value.text().len());
        batch.add(Kept::State(KeptState { tenant, flow, key, value, version }), size)
    })?;
    each_session(from, |tenant, session| {
        amount.sessions += 1;
        batch.add(Kept::Session(tenant, session), ROW_BYTES)
    })?;
    each_step(from, |tenant, step| {
        amount.steps += 1;
        batch.add(Kept::Step(tenant, step), ROW_BYTES)
    })?;
    each_document(from, |tenant, kind, document| {
        amount.registered += 1;
        batch.add(Kept::Document(tenant, kind, document), ROW_BYTES)
    })?;
    batch.write()?;
    Ok(amount)
}

/// Rows that are inserted together, because each insertion waits for the disk.
struct Batch<'a> {
    to: &'a dyn CopyableStore,
    rows: Vec<Kept>,
    bytes: usize,
}

impl Batch<'_> {
    /// Adds a row of this approximate size. Inserts all rows when they are many or large.
    fn add(&mut self, row: Kept, bytes: usize) -> Result<(), StoreError> {
        self.rows.push(row);
        self.bytes += bytes;
        if self.bytes > BATCH_BYTES || self.rows.len() >= PAGE_ROWS { self.write() } else { Ok(()) }
    }

    fn write(&mut self) -> Result<(), StoreError> {
        self.bytes = 0;
        let rows = std::mem::take(&mut self.rows);
        if rows.is_empty() { Ok(()) } else { self.to.take_over(rows) }
    }
}

/// Returns the size of units as JSON text, in bytes.
fn size_of(units: &[Arc<Unit>]) -> usize {
    let mut counted = Counter(0);
    // Units that are no JSON are refused when they are inserted.
    let _ = units.iter().try_for_each(|unit| serde_json::to_writer(&mut counted, &unit.facts));
    counted.0
}

/// Counts bytes, and drops them.
struct Counter(usize);

impl Write for Counter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0 += bytes.len();
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn each_run(
    store: &dyn CopyableStore,
    mut visit: impl FnMut(KeptRun) -> Result<(), StoreError>,
) -> Result<(), StoreError> {
    let mut after = 0;
    loop {
        let page = store.kept_runs(after, PAGE_ROWS)?;
        let Some(last) = page.last() else { return Ok(()) };
        after = last.number;
        page.into_iter().try_for_each(&mut visit)?;
    }
}

fn each_page(
    store: &dyn CopyableStore,
    run: &KeptRun,
    mut visit: impl FnMut(Vec<Arc<Unit>>) -> Result<(), StoreError>,
) -> Result<(), StoreError> {
    let mut from = 0;
    loop {
        let page = store.read(&run.tenant, &run.run, from, MAX_READ_UNITS)?;
        let Some(last) = page.last() else { return Ok(()) };
        from = last.next_seq();
        visit(page)?;
    }
}

fn each_key(
    store: &dyn CopyableStore,
    mut visit: impl FnMut(&(Tenant, String, String)) -> Result<(), StoreError>,
) -> Result<(), StoreError> {
    let mut after = (Tenant::from(""), String::new(), String::new());
    loop {
        let page = store.kept_keys(&after, PAGE_ROWS)?;
        let Some(last) = page.last() else { return Ok(()) };
        after = last.clone();
        page.iter().try_for_each(&mut visit)?;
    }
}

fn each_blob(
    store: &dyn CopyableStore,
    mut visit: impl FnMut(&KeptBlob) -> Result<(), StoreError>,
) -> Result<(), StoreError> {
    let mut after = KeptBlob { tenant: Tenant::from(""), hash: String::new(), mime: String::new() };
    loop {
        let page = store.kept_blobs(&after, PAGE_ROWS)?;
        let Some(last) = page.last() else { return Ok(()) };
        after = last.clone();
        page.iter().try_for_each(&mut visit)?;
    }
}

fn each_session(
    store: &dyn CopyableStore,
    mut visit: impl FnMut(Tenant, Session) -> Result<(), StoreError>,
) -> Result<(), StoreError> {
    let mut after = (Tenant::from(""), String::new());
    loop {
        let page = store.kept_sessions(&after, PAGE_ROWS)?;
        let Some((tenant, last)) = page.last() else { return Ok(()) };
        after = (tenant.clone(), last.id.clone());
        page.into_iter().try_for_each(|(tenant, session)| visit(tenant, session))?;
    }
}

fn each_step(
    store: &dyn CopyableStore,
    mut visit: impl FnMut(Tenant, StepState) -> Result<(), StoreError>,
) -> Result<(), StoreError> {
    let mut after = (Tenant::from(""), String::new());
    loop {
        let page = store.kept_steps(&after, PAGE_ROWS)?;
        let Some((tenant, last)) = page.last() else { return Ok(()) };
        after = (tenant.clone(), last.session.clone());
        page.into_iter().try_for_each(|(tenant, step)| visit(tenant, step))?;
    }
}

fn each_document(
    store: &dyn CopyableStore,
    mut visit: impl FnMut(Tenant, String, Document) -> Result<(), StoreError>,
) -> Result<(), StoreError> {
    let mut after = (Tenant::from(""), String::new(), String::new());
    loop {
        let page = store.kept_documents(&after, PAGE_ROWS)?;
        let Some((tenant, kind, last)) = page.last() else { return Ok(()) };
        after = (tenant.clone(), kind.clone(), last.key.clone());
        page.into_iter().try_for_each(|(tenant, kind, document)| visit(tenant, kind, document))?;
    }
}
