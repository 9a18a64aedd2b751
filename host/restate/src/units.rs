//! The stored form of entries and their units.
//!
//! The text of a unit that is too large for the cluster is in blobs, in the database beside it. The text in the cluster
//! then names the blobs of its parts. The blobs are durable before the unit.

use std::sync::Arc;

use flowcell_contract::{BlobRef, Blobs, RunId, Tenant};
use flowcell_runtime::{
    fact::Write,
    ports::{Entry, Staged, StoreError, Unit},
    sql::StatusNote,
};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::{
    blobs::ClusterBlobs,
    wire::{self, StateWrite, Status, StoredUnit, Writes},
};

/// The maximum bytes of the text of a unit in the cluster.
const MAX_UNIT_BYTES: usize = 1 << 20;
/// The maximum bytes of a part of a larger one.
const PART_BYTES: usize = 8 << 20;
/// The beginning of the text of a larger unit. No unit begins so.
const BEGIN: &str = "{\"parts\":";
/// The media type of a part.
const MIME: &str = "application/json";

/// The parts of a large unit, in order.
#[derive(Serialize, Deserialize)]
struct Parts {
    parts: Vec<BlobRef>,
}

/// Returns the stored form of an entry. The caller settles the blobs before it hands the entry on.
pub(crate) fn stored(blobs: &ClusterBlobs, entry: &Entry) -> Result<StoredUnit, StoreError> {
    Ok(StoredUnit {
        run: entry.run.clone(),
        first: entry.unit.first_seq,
        next: entry.unit.next_seq(),
        unit: text(blobs, &entry.tenant, &entry.unit)?,
        record: entry.record.as_ref().map(wire::raw).transpose()?,
        status: entry.status.map(Status::from),
        note: (entry.status.is_some() || entry.record.is_some()).then(|| StatusNote::of_unit(&entry.unit)),
        writes: entry.writes.as_ref().map(writes).transpose()?,
        delivered: entry.delivered,
    })
}

fn writes(staged: &Staged) -> Result<Writes, StoreError> {
    let write = |(write, version): &(Write, u64)| {
        Ok::<_, StoreError>(StateWrite { key: write.key.clone(), value: wire::raw(&write.value)?, version: *version })
    };
    let writes = staged.writes.iter().map(write).collect::<Result<_, _>>()?;
    Ok(Writes { flow: staged.flow.clone(), writes })
}

/// Returns the text of a unit for the cluster.
fn text(blobs: &ClusterBlobs, tenant: &Tenant, unit: &Unit) -> Result<Box<RawValue>, StoreError> {
    let text = wire::raw(unit)?;
    if text.get().len() <= MAX_UNIT_BYTES {
        return Ok(text);
    }
    let parts = text.get().as_bytes().chunks(PART_BYTES);
    let parts = parts.map(|part| blobs.put(tenant, Arc::from(part), MIME)).collect();
    wire::raw(&Parts { parts })
}

/// Parses the text of a unit in the cluster.
pub(crate) fn parse(
    blobs: &ClusterBlobs,
    tenant: &Tenant,
    run: &RunId,
    text: &RawValue,
) -> Result<Arc<Unit>, StoreError> {
    let damaged = |why: String| StoreError::damaged(format!("the journal of run `{run}` is damaged: {why}"));
    if !text.get().starts_with(BEGIN) {
        let unit = wire::parse::<Unit>(text.get());
        return unit.map(Arc::new).map_err(|error| damaged(error.to_string()));
    }
    let Parts { parts } = wire::parse(text.get()).map_err(|error| damaged(error.to_string()))?;
    let mut whole = Vec::new();
    for part in parts {
        let found = blobs.get(tenant, &part).map_err(|failure| StoreError::unavailable(failure.message))?;
        whole.extend_from_slice(&found.ok_or_else(|| damaged(format!("the part `{}` is missing", part.file_id)))?);
    }
    let whole = String::from_utf8(whole).map_err(|error| damaged(error.to_string()))?;
    wire::parse(&whole).map(Arc::new).map_err(|error| damaged(error.to_string()))
}
