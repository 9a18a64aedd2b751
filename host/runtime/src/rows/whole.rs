//! Whole stores: looked through, and copied from one kind to another.

use std::sync::Arc;

use flowcell_contract::{BlobRef, RunId, Tenant, Value};
use serde::Serialize;

use crate::{
    limits::READ_UNITS,
    memory::blob_ref,
    ports::{Blobs, Journal, Registered, Session, StateStore, StepState, StoreError, Unit},
};

/// Rows that are read at a time.
const PAGE: usize = 500;
/// Bytes of blobs, about, that are written at a time.
const BATCH_BYTES: usize = 8 << 20;

/// The row of a run, as it is kept.
#[derive(Clone, Debug, PartialEq)]
pub struct KeptRun {
    /// The row's number; rows are numbered in the order in which the runs began.
    pub number: i64,
    /// Whose run.
    pub tenant: Tenant,
    /// Which run.
    pub run: RunId,
    /// Of which flow.
    pub flow: String,
    /// How many runs are above this one.
    pub depth: u32,
    /// The run that called this one.
    pub parent: Option<RunId>,
    /// What is known of it beside its facts, as JSON; empty if it was removed.
    pub record: String,
    /// `active`, `parked`, `succeeded`, `failed`, `cancelled` or `removed`.
    pub standing: String,
    /// When its next timer is due.
    pub due: Option<u64>,
    /// Somebody has to decide something.
    pub attention: bool,
    /// When it began, in milliseconds since 1970.
    pub created: u64,
    /// When its status changed last.
    pub updated: u64,
}

/// A value of a flow's state, as it is kept.
#[derive(Clone, Debug, PartialEq)]
pub struct KeptState {
    /// Whose.
    pub tenant: Tenant,
    /// Of which flow.
    pub flow: String,
    /// Its key.
    pub key: String,
    /// The value.
    pub value: Value,
    /// Its version.
    pub version: u64,
}

/// What is known of a blob without its bytes.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct KeptBlob {
    /// Whose.
    pub tenant: Tenant,
    /// The SHA-256, in hexadecimal.
    pub hash: String,
    /// Its media type.
    pub mime: String,
}

/// Something that a store takes over from another.
#[derive(Clone, Debug, PartialEq)]
pub enum Kept {
    /// A run, before its units and after its parent.
    Run(KeptRun),
    /// The next units of a run, in order.
    Units(Tenant, RunId, Vec<Arc<Unit>>),
    /// A value of a flow's state.
    State(KeptState),
    /// A session.
    Session(Tenant, Session),
    /// The state of a step, after its session.
    Step(Tenant, StepState),
    /// Something that is registered, and of which kind.
    Registered(Tenant, String, Registered),
    /// A blob.
    Blob(KeptBlob, Arc<[u8]>),
}

/// A store as a whole.
pub trait Whole: Journal + Blobs + StateStore {
    /// The runs after a number, and at most `limit`: those that were removed too.
    fn kept_runs(&self, after: i64, limit: usize) -> Result<Vec<KeptRun>, StoreError>;

    /// Tenant, flow and key of all state after these, in their order, and at most `limit`.
    fn kept_keys(
        &self,
        after: &(Tenant, String, String),
        limit: usize,
    ) -> Result<Vec<(Tenant, String, String)>, StoreError>;

    /// The blobs after one, in the order of tenants and hashes, and at most `limit`.
    fn kept_blobs(&self, after: &KeptBlob, limit: usize) -> Result<Vec<KeptBlob>, StoreError>;

    /// The sessions after one, in the order of tenants and ids, and at most `limit`.
    fn kept_sessions(&self, after: &(Tenant, String), limit: usize) -> Result<Vec<(Tenant, Session)>, StoreError>;

    /// The states of steps after that of a session, in the order of tenants and sessions, and at most `limit`.
    fn kept_steps(&self, after: &(Tenant, String), limit: usize) -> Result<Vec<(Tenant, StepState)>, StoreError>;

    /// What is registered after this, in the order of tenants, kinds and keys, and at most `limit`.
    fn kept_registry(
        &self,
        after: &(Tenant, String, String),
        limit: usize,
    ) -> Result<Vec<(Tenant, String, Registered)>, StoreError>;

    /// Whether another process may write to it now.
    fn is_in_use(&self) -> Result<bool, StoreError>;

    /// Takes over what another store has kept: all of it or nothing, and on stable storage when this returns.
    fn take_over(&self, kept: Vec<Kept>) -> Result<(), StoreError>;
}

/// How much there is in a store.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Amount {
    /// Runs, those below others and those that were removed included.
    pub runs: u64,
    /// Units of their journals.
    pub units: u64,
    /// Values of state.
    pub values: u64,
    /// Blobs.
    pub blobs: u64,
    /// Sessions of steps.
    pub sessions: u64,
    /// States of steps.
    pub steps: u64,
    /// What operators keep.
    pub registered: u64,
}

/// What looking through a store has found.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Checked {
    /// How much was looked at.
    pub amount: Amount,
    /// What is not as it was written, each in a sentence.
    pub damage: Vec<String>,
}

/// Looks through everything in a store. It fails only if the store does not answer at all.
pub fn check(store: &dyn Whole) -> Result<Checked, StoreError> {
    let mut checked = Checked::default();
    each_run(store, |run| {
        checked.amount.runs += 1;
        if run.standing == "removed" {
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
        let whole = bytes(store, blob)?.is_some_and(|bytes| *blob_ref(&bytes, "").file_id == *blob.hash);
        checked.damage.extend((!whole).then(|| format!("the blob {} has another content", blob.hash)));
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
    let looked = each_registered(store, |_, _, _| {
        checked.amount.registered += 1;
        Ok(())
    });
    checked.damage.extend(looked.err().map(|error| format!("the registry: {error}")));
    Ok(checked)
}

/// Copies everything from one store to another, which must be empty. Refused while another process may write to either.
/// What was copied before a failure is left; the copy is begun again in an empty store.
pub fn copy(from: &dyn Whole, to: &dyn Whole) -> Result<Amount, StoreError> {
    for store in [from, to] {
        if store.is_in_use()? {
            return Err(StoreError("another process uses the store: end it first".into()));
        }
    }
    let nothing = KeptBlob { tenant: Tenant::from(""), hash: String::new(), mime: String::new() };
    if !to.kept_runs(0, 1)?.is_empty() || !to.kept_blobs(&nothing, 1)?.is_empty() {
        return Err(StoreError("the store that is copied to is not empty".into()));
    }
    let mut amount = Amount::default();
    copy_blobs(from, to, &mut amount)?;
    each_run(from, |run| {
        amount.runs += 1;
        to.take_over(vec![Kept::Run(run.clone())])?;
        each_page(from, &run, |page| {
            amount.units += page.len() as u64;
            to.take_over(vec![Kept::Units(run.tenant.clone(), run.run.clone(), page)])
        })
    })?;
    each_key(from, |(tenant, flow, key)| {
        amount.values += 1;
        let Some((value, version)) = StateStore::get(from, tenant, flow, key)? else { return Ok(()) };
        let (tenant, flow, key) = (tenant.clone(), flow.clone(), key.clone());
        to.take_over(vec![Kept::State(KeptState { tenant, flow, key, value, version })])
    })?;
    each_session(from, |tenant, session| {
        amount.sessions += 1;
        to.take_over(vec![Kept::Session(tenant, session)])
    })?;
    each_step(from, |tenant, step| {
        amount.steps += 1;
        to.take_over(vec![Kept::Step(tenant, step)])
    })?;
    each_registered(from, |tenant, kind, registered| {
        amount.registered += 1;
        to.take_over(vec![Kept::Registered(tenant, kind, registered)])
    })?;
    Ok(amount)
}

fn copy_blobs(from: &dyn Whole, to: &dyn Whole, amount: &mut Amount) -> Result<(), StoreError> {
    let (mut batch, mut size) = (Vec::new(), 0);
    each_blob(from, |blob| {
        let Some(bytes) = bytes(from, blob)? else { return Ok(()) };
        amount.blobs += 1;
        size += bytes.len();
        batch.push(Kept::Blob(blob.clone(), bytes));
        if size > BATCH_BYTES {
            size = 0;
            to.take_over(std::mem::take(&mut batch))?;
        }
        Ok(())
    })?;
    if batch.is_empty() { Ok(()) } else { to.take_over(batch) }
}

fn bytes(store: &dyn Whole, blob: &KeptBlob) -> Result<Option<Arc<[u8]>>, StoreError> {
    let named = BlobRef { file_id: blob.hash.as_str().into(), size: 0, mime: blob.mime.as_str().into() };
    Blobs::get(store, &blob.tenant, &named).map_err(|failure| StoreError(failure.message.to_string().into()))
}

fn each_run(store: &dyn Whole, mut visit: impl FnMut(KeptRun) -> Result<(), StoreError>) -> Result<(), StoreError> {
    let mut after = 0;
    loop {
        let page = store.kept_runs(after, PAGE)?;
        let Some(last) = page.last() else { return Ok(()) };
        after = last.number;
        page.into_iter().try_for_each(&mut visit)?;
    }
}

fn each_page(
    store: &dyn Whole,
    run: &KeptRun,
    mut visit: impl FnMut(Vec<Arc<Unit>>) -> Result<(), StoreError>,
) -> Result<(), StoreError> {
    let mut from = 0;
    loop {
        let page = store.read(&run.tenant, &run.run, from, READ_UNITS)?;
        let Some(last) = page.last() else { return Ok(()) };
        from = last.next_seq();
        visit(page)?;
    }
}

fn each_key(
    store: &dyn Whole,
    mut visit: impl FnMut(&(Tenant, String, String)) -> Result<(), StoreError>,
) -> Result<(), StoreError> {
    let mut after = (Tenant::from(""), String::new(), String::new());
    loop {
        let page = store.kept_keys(&after, PAGE)?;
        let Some(last) = page.last() else { return Ok(()) };
        after = last.clone();
        page.iter().try_for_each(&mut visit)?;
    }
}

fn each_blob(store: &dyn Whole, mut visit: impl FnMut(&KeptBlob) -> Result<(), StoreError>) -> Result<(), StoreError> {
    let mut after = KeptBlob { tenant: Tenant::from(""), hash: String::new(), mime: String::new() };
    loop {
        let page = store.kept_blobs(&after, PAGE)?;
        let Some(last) = page.last() else { return Ok(()) };
        after = last.clone();
        page.iter().try_for_each(&mut visit)?;
    }
}

fn each_session(
    store: &dyn Whole,
    mut visit: impl FnMut(Tenant, Session) -> Result<(), StoreError>,
) -> Result<(), StoreError> {
    let mut after = (Tenant::from(""), String::new());
    loop {
        let page = store.kept_sessions(&after, PAGE)?;
        let Some((tenant, last)) = page.last() else { return Ok(()) };
        after = (tenant.clone(), last.id.clone());
        page.into_iter().try_for_each(|(tenant, session)| visit(tenant, session))?;
    }
}

fn each_step(
    store: &dyn Whole,
    mut visit: impl FnMut(Tenant, StepState) -> Result<(), StoreError>,
) -> Result<(), StoreError> {
    let mut after = (Tenant::from(""), String::new());
    loop {
        let page = store.kept_steps(&after, PAGE)?;
        let Some((tenant, last)) = page.last() else { return Ok(()) };
        after = (tenant.clone(), last.session.clone());
        page.into_iter().try_for_each(|(tenant, step)| visit(tenant, step))?;
    }
}

fn each_registered(
    store: &dyn Whole,
    mut visit: impl FnMut(Tenant, String, Registered) -> Result<(), StoreError>,
) -> Result<(), StoreError> {
    let mut after = (Tenant::from(""), String::new(), String::new());
    loop {
        let page = store.kept_registry(&after, PAGE)?;
        let Some((tenant, kind, last)) = page.last() else { return Ok(()) };
        after = (tenant.clone(), kind.clone(), last.key.clone());
        page.into_iter().try_for_each(|(tenant, kind, registered)| visit(tenant, kind, registered))?;
    }
}
