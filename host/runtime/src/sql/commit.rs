//! One commit: checks of the claims, and then all writes.
//!
//! The commit locks the rows of the top runs, and each row must have the epoch of this process's claim. A process may
//! be suspended for long while another process claims its runs. When it continues, it therefore writes nothing to these
//! runs. A process that has claimed a run sees all earlier writes to the run.

use std::collections::{BTreeMap, HashMap};

use super::{
    Shared,
    blobs::CommitBlobs,
    claims::{Fence, Key},
    connection::{Arg, Connection, SqlError, args, placeholders},
    queue::Item,
    remove::REMOVED,
    search::{self, RECORD_COLUMNS, record_values},
    side_writes,
    values::{hash, text, unwritable},
    witness::Witness,
};
use crate::{
    ports::{Entry, Record, StoredStatus},
    rows::{
        UnitPosition, checksum,
        cut::ExternalizedRow,
        search::{ErrorColumns, wait_text},
    },
};

/// The row of a run, and the end of its journal.
#[derive(Clone, Copy)]
pub(super) struct RunPosition {
    row: i64,
    place: UnitPosition,
}

/// The rows of runs that the writer has written to.
pub(super) type Rows = HashMap<Key, RunPosition>;

/// One commit of the writer.
pub(super) struct Commit<'a> {
    pub(super) shared: &'a Shared,
    pub(super) connection: &'a mut Connection,
    pub(super) rows: &'a mut Rows,
    /// True if an earlier try of this commit may have succeeded.
    pub(super) in_doubt: bool,
    /// One of the written units.
    pub(super) witness: Option<Witness>,
}

fn key(entry: &Entry) -> Key {
    (entry.tenant.clone(), entry.run.clone())
}

/// The changes of a run's row.
struct RowChange {
    /// The end of the journal before the commit.
    before: u64,
    at: RunPosition,
    standing: Option<(&'static str, Option<u64>, bool, u64)>,
    /// The text of the first item that the run waits for, if its new status is parked.
    wait: Option<String>,
    error: Option<ErrorColumns>,
}

impl RowChange {
    /// Returns the column `error_words`: see [`wait_text`].
    fn words(&self) -> Option<String> {
        self.error.as_ref().map(|error| error.words.clone()).or_else(|| self.wait.clone())
    }
}

impl Commit<'_> {
    /// Writes everything except the entries of lost runs. Returns for each entry whether it was written.
    pub(super) async fn write(&mut self, items: &[Item]) -> Result<Vec<bool>, SqlError> {
        let fences = self.fences(items);
        let written: Vec<bool> = fences.iter().map(Option::is_some).collect();
        let entries: Vec<(&Entry, &Fence)> = items
            .iter()
            .filter_map(|item| if let Item::Entry(entry) = item { Some(entry) } else { None })
            .zip(&fences)
            .filter_map(|(entry, fence)| Some((entry, fence.as_ref()?)))
            .collect();
        let known = self.known_epochs(&entries);
        if known.is_none() {
            self.lock_tops(&entries).await?;
        }
        self.find_rows(&entries).await?;
        if self.in_doubt && self.is_done(&entries).await? {
            return Ok(written);
        }
        let last = entries.last().copied();
        let entries: Vec<&Entry> = entries.into_iter().map(|(entry, _)| entry).collect();
        self.write_units(&entries, items, &known.unwrap_or_default()).await?;
        self.witness = last.and_then(|last| self.witness_of(last));
        side_writes::write(self.shared, self.connection, &entries, items).await?;
        Ok(written)
    }

    /// Returns the witness of an entry that is the last one of its run.
    fn witness_of(&self, (entry, fence): (&Entry, &Fence)) -> Option<Witness> {
        let at = self.rows.get(&key(entry))?;
        let top = fence.row.or_else(|| self.rows.get(&fence.top).map(|top| top.row))?;
        let (first_seq, checksum) = (entry.unit.first_seq, at.place.checksum);
        Some(Witness { tenant: entry.tenant.clone(), top, run: at.row, first_seq, checksum })
    }

    /// Returns the fence of each entry that may be written, and `None` for refused entries. If an entry with state
    /// writes is refused, the runs that may have read these writes are lost, too.
    fn fences(&self, items: &[Item]) -> Vec<Option<Fence>> {
        let claims = &self.shared.claims;
        if claims.since_renewal() > self.shared.options.lease {
            claims.lose_all();
        }
        let entries = || items.iter().filter_map(|item| if let Item::Entry(entry) = item { Some(entry) } else { None });
        let fence = |entry: &Entry| claims.fence(&key(entry), &entry.durable);
        loop {
            let fences: Vec<_> = entries().map(fence).collect();
            let refused = entries().zip(&fences).filter(|(_, fence)| fence.is_none());
            let staged = refused.filter_map(|(entry, _)| Some((&entry.tenant, &entry.writes.as_ref()?.flow)));
            let lost = staged.filter(|(tenant, flow)| self.shared.drop_staged(tenant, flow)).count();
            if lost == 0 {
                return fences;
            }
        }
    }

    /// Returns the epochs of this process's claims, by the row numbers of the top runs. The statement that updates the
    /// ends of the journals can compare these epochs, so that the commit needs no statement of its own for them. This
    /// requires that the commit appends to the top run of each tree, and that this process knows the end of that run's
    /// journal. Otherwise the function returns `None`.
    fn known_epochs(&self, entries: &[(&Entry, &Fence)]) -> Option<BTreeMap<i64, i64>> {
        if self.in_doubt || !self.shared.claims.fences() {
            return None;
        }
        let appended = |top: &Key| entries.iter().any(|(entry, _)| (&entry.tenant, &entry.run) == (&top.0, &top.1));
        let known = |fence: &Fence| {
            let row = fence.row.filter(|_| self.rows.contains_key(&fence.top) && appended(&fence.top))?;
            Some((row, fence.epoch))
        };
        entries.iter().map(|(_, fence)| known(fence)).collect()
    }

    /// Locks the rows of the top runs, and compares their epochs.
    async fn lock_tops(&mut self, entries: &[(&Entry, &Fence)]) -> Result<(), SqlError> {
        let tops: BTreeMap<i64, &Fence> = entries.iter().filter_map(|(_, fence)| Some((fence.row?, *fence))).collect();
        if tops.is_empty() {
            return Ok(());
        }
        let sql = format!(
            "SELECT id, epoch, next_seq, tail FROM flowcell_runs WHERE id IN ({}) ORDER BY id FOR UPDATE",
            placeholders(tops.len())
        );
        let found = self.connection.rows(&sql, tops.keys().map(|row| Arg::from(*row)).collect()).await?;
        let mut holding = HashMap::new();
        for row in found {
            let place = UnitPosition { next_seq: row.number(2)?, checksum: row.number(3)? as u32 };
            holding.insert(row.int(0)?, (row.int(1)?, place));
        }
        let mut lost = false;
        for (id, fence) in tops {
            match holding.get(&id) {
                Some((epoch, place)) if *epoch == fence.epoch || !self.shared.claims.fences() => {
                    self.rows.insert(fence.top.clone(), RunPosition { row: id, place: *place });
                }
                _ => {
                    self.shared.claims.lose(&fence.top);
                    lost = true;
                }
            }
        }
        if lost { Err(SqlError::Again) } else { Ok(()) }
    }

    /// Finds the rows of unknown runs, and inserts those of new runs, parents first.
    async fn find_rows(&mut self, entries: &[(&Entry, &Fence)]) -> Result<(), SqlError> {
        let mut unknown: Vec<(&Entry, &Fence)> = Vec::new();
        for (entry, fence) in entries {
            let key = key(entry);
            let mut listed = unknown.iter().map(|(entry, _)| *entry);
            if !self.rows.contains_key(&key) && !listed.any(|other| (&other.tenant, &other.run) == (&key.0, &key.1)) {
                unknown.push((entry, fence));
            }
        }
        while !unknown.is_empty() {
            let above = |record: &Record, entry: &Entry| {
                let parent = record.parent.clone().map(|parent| (entry.tenant.clone(), parent));
                parent.is_none_or(|parent| self.rows.contains_key(&parent))
            };
            let now = |entry: &Entry| entry.new_record().is_none_or(|record| above(record, entry));
            let (ready, later): (Vec<_>, Vec<_>) = unknown.into_iter().partition(|(entry, _)| now(entry));
            match ready.is_empty() {
                true => self.find_parents(&later).await?,
                false => self.insert_rows(&ready).await?,
            }
            unknown = later;
        }
        Ok(())
    }

    /// Finds the rows of parents that this writer has not written to, or has forgotten.
    async fn find_parents(&mut self, runs: &[(&Entry, &Fence)]) -> Result<(), SqlError> {
        let mut found = false;
        for (entry, _) in runs {
            let Some(parent) = entry.new_record().and_then(|record| record.parent.clone()) else { continue };
            let sql = "SELECT id, next_seq, tail FROM flowcell_runs WHERE tenant = ? AND hash = ?";
            let row = self.connection.row(sql, args![entry.tenant.as_str(), hash(parent.as_str())]).await?;
            if let Some(row) = row {
                let place = UnitPosition { next_seq: row.number(1)?, checksum: row.number(2)? as u32 };
                self.rows.insert((entry.tenant.clone(), parent), RunPosition { row: row.int(0)?, place });
                found = true;
            }
        }
        if found { Ok(()) } else { Err(SqlError::Permanent("a run's parent is unknown".into())) }
    }

    async fn insert_rows(&mut self, runs: &[(&Entry, &Fence)]) -> Result<(), SqlError> {
        let mut rows = Vec::new();
        for (entry, fence) in runs {
            if let Some(record) = entry.new_record() {
                self.lock_repeated(entry, fence, record).await?;
                rows.push(self.new_row(entry, fence, record)?);
            }
        }
        let into = format!(
            "flowcell_runs (tenant, hash, run, flow, depth, parent, top, record, standing, due, attention, next_seq, tail, \
             created, updated, owner, epoch, claims, {RECORD_COLUMNS})"
        );
        let after = self.connection.dialect().or_leave("tenant, hash");
        self.connection.insert(&into, rows, &after).await?;
        for (entry, fence) in runs {
            let sql = "SELECT id, epoch, owner, next_seq, tail FROM flowcell_runs WHERE tenant = ? AND hash = ?";
            let found = self.connection.row(sql, args![entry.tenant.as_str(), hash(entry.run.as_str())]).await?;
            let is_top = fence.row.is_none() && fence.top.1 == entry.run;
            let Some(row) = found else {
                self.shared.claims.lose(&fence.top);
                return Err(SqlError::Again);
            };
            let taken = is_top && (row.int(1)?, row.int(2)?) != (fence.epoch, self.shared.claims.owner());
            if taken && self.shared.claims.fences() {
                self.shared.claims.lose(&fence.top);
                return Err(SqlError::Again);
            }
            let place = UnitPosition { next_seq: row.number(3)?, checksum: row.number(4)? as u32 };
            self.rows.insert(key(entry), RunPosition { row: row.int(0)?, place });
        }
        let labelled = runs.iter().filter_map(|(entry, _)| {
            let id = self.rows.get(&key(entry))?.row;
            entry.new_record().map(|record| (id, &entry.tenant, entry.unit.ts, record))
        });
        search::write_labels(self.connection, labelled.collect::<Vec<_>>()).await
    }

    /// Locks the run that a new top run repeats, so that it is not removed meanwhile. If it was removed, the new run
    /// cannot begin.
    async fn lock_repeated(&mut self, entry: &Entry, fence: &Fence, record: &Record) -> Result<(), SqlError> {
        let Some(repeated) = record.repeats.as_ref().filter(|_| record.depth == 0) else { return Ok(()) };
        let sql = "SELECT standing FROM flowcell_runs WHERE tenant = ? AND hash = ? FOR UPDATE";
        let found = self.connection.row(sql, args![entry.tenant.as_str(), hash(repeated.as_str())]).await?;
        if found.map(|row| row.text(0)).transpose()?.as_deref() == Some(REMOVED) && self.shared.claims.fences() {
            tracing::warn!(run = %entry.run, "the run does not begin: the run `{repeated}`, which it repeats, was removed");
            self.shared.claims.lose(&fence.top);
            return Err(SqlError::Again);
        }
        Ok(())
    }

    fn new_row(&self, entry: &Entry, fence: &Fence, record: &Record) -> Result<Vec<Arg>, SqlError> {
        let of = |run: &Key| self.rows.get(run).map(|at| at.row);
        let parent = record.parent.as_ref().and_then(|parent| of(&(entry.tenant.clone(), parent.clone())));
        let top = parent.and(fence.row.or_else(|| of(&fence.top)));
        let (owner, epoch) = if top.is_none() { (Some(self.shared.claims.owner()), fence.epoch) } else { (None, 0) };
        let mut row = args![
            entry.tenant.as_str(),
            hash(entry.run.as_str()),
            entry.run.as_str(),
            &*record.flow,
            i64::from(record.depth),
            Arg::Int(parent),
            Arg::Int(top),
            text(record)?,
            Arg::Word("active"),
            Arg::Int(None),
            0_i64,
            0_i64,
            0_i64,
            entry.unit.ts,
            entry.unit.ts,
            Arg::Int(owner),
            epoch,
            // Older versions read this column.
            0_i64,
        ];
        row.extend(record_values(record));
        Ok(row)
    }

    /// Returns whether the database already has the first entry. In that case it has all entries, because a commit is
    /// all or nothing.
    async fn is_done(&mut self, entries: &[(&Entry, &Fence)]) -> Result<bool, SqlError> {
        let Some((entry, fence)) = entries.first().copied() else { return Ok(false) };
        let Some(at) = self.rows.get(&key(entry)) else { return Ok(false) };
        let sql = "SELECT ts, body, checksum FROM flowcell_units WHERE run = ? AND first_seq = ?";
        let Some(row) = self.connection.row(sql, args![at.row, entry.unit.first_seq]).await? else { return Ok(false) };
        let body = ExternalizedRow::of_facts(text(&entry.unit.facts)?).map_err(unwritable)?.text;
        let done = row.number(0)? == entry.unit.ts && row.text(1)? == body;
        if done {
            let checksum = row.number(2)? as u32;
            self.witness = self.witness_of((entry, fence)).map(|witness| Witness { checksum, ..witness });
            // The ends of the journals are read again.
            self.rows.clear();
        }
        Ok(done)
    }

    async fn write_units(
        &mut self,
        entries: &[&Entry],
        items: &[Item],
        epochs: &BTreeMap<i64, i64>,
    ) -> Result<(), SqlError> {
        let mut changes: BTreeMap<i64, RowChange> = BTreeMap::new();
        let mut ends: HashMap<Key, RunPosition> = HashMap::new();
        let (mut units, mut blobs) = (Vec::new(), CommitBlobs::of(items));
        for entry in entries {
            let run = key(entry);
            let at = *ends.get(&run).or_else(|| self.rows.get(&run)).ok_or(SqlError::Again)?;
            let unit = &entry.unit;
            if at.place.next_seq != unit.first_seq && self.shared.claims.fences() {
                self.shared.claims.lose(&self.shared.claims.top(&run));
                return Err(SqlError::Again);
            }
            if let Some(record) = entry.changed_record() {
                search::change_record(self.connection, at.row, record).await?;
            }
            let body = ExternalizedRow::of_facts(text(&unit.facts)?).map_err(unwritable)?;
            let sum = checksum(at.place.checksum, unit.first_seq, unit.ts, &body.text, body.cuts.as_deref());
            blobs.add(&entry.tenant, body.blobs);
            let facts = unit.facts.len() as u64;
            units.push(args![at.row, unit.first_seq, facts, unit.ts, body.text, body.cuts, u64::from(sum)]);
            let after = RunPosition { row: at.row, place: UnitPosition { next_seq: unit.next_seq(), checksum: sum } };
            ends.insert(run, after);
            let before = at.place.next_seq;
            let change = changes.entry(at.row).or_insert(RowChange {
                before,
                at: after,
                standing: None,
                wait: None,
                error: None,
            });
            change.at = after;
            if entry.status.is_some() {
                change.error = ErrorColumns::of_facts(&unit.facts);
            }
            if let Some((name, due, attention)) = entry.status.map(StoredStatus::columns) {
                change.standing = Some((name, due, attention, unit.ts));
                change.wait = wait_text(&unit.facts);
            }
        }
        blobs.write(self.shared, self.connection).await?;
        self.connection.insert("flowcell_units (run, first_seq, facts, ts, body, cuts, checksum)", units, "").await?;
        self.update_ends(changes, epochs).await?;
        self.rows.extend(ends);
        Ok(())
    }

    /// Updates the ends of the journals and the statuses of the runs, if the trees have the given epochs.
    async fn update_ends(
        &mut self,
        changes: BTreeMap<i64, RowChange>,
        epochs: &BTreeMap<i64, i64>,
    ) -> Result<(), SqlError> {
        if changes.is_empty() {
            return Ok(());
        }
        let cases = |count: usize| "WHEN ? THEN ? ".repeat(count);
        let all = cases(changes.len());
        let mut sets = vec![format!("next_seq = CASE id {all}END"), format!("tail = CASE id {all}END")];
        let mut args: Vec<Arg> = Vec::new();
        args.extend(changes.iter().flat_map(|(id, change)| args![*id, change.at.place.next_seq]));
        args.extend(changes.iter().flat_map(|(id, change)| args![*id, u64::from(change.at.place.checksum)]));
        let standings: Vec<_> = changes.iter().filter_map(|(id, change)| Some((*id, change.standing?))).collect();
        if !standings.is_empty() {
            let some = cases(standings.len());
            // A run that goes on after it was parked for a quota has no error any more.
            for column in ["standing", "due", "attention", "updated", "error", "error_words"] {
                sets.push(format!("{column} = CASE id {some}ELSE {column} END"));
            }
            args.extend(standings.iter().flat_map(|(id, standing)| args![*id, Arg::Word(standing.0)]));
            args.extend(standings.iter().flat_map(|(id, standing)| args![*id, standing.1]));
            args.extend(standings.iter().flat_map(|(id, standing)| args![*id, i64::from(standing.2)]));
            args.extend(standings.iter().flat_map(|(id, standing)| args![*id, standing.3]));
            let code = |id: &i64| changes[id].error.as_ref().map(|error| error.code.clone());
            args.extend(standings.iter().flat_map(|(id, _)| args![*id, code(id)]));
            args.extend(standings.iter().flat_map(|(id, _)| args![*id, changes[id].words()]));
        }
        let errors: Vec<_> = changes.iter().filter_map(|(id, change)| Some((*id, change.error.as_ref()?))).collect();
        if !errors.is_empty() {
            let some = cases(errors.len());
            sets.push(format!("failed_node = CASE id {some}ELSE failed_node END"));
            args.extend(errors.iter().flat_map(|(id, error)| args![*id, error.node.clone()]));
        }
        let ids = placeholders(changes.len());
        args.extend(changes.keys().map(|id| Arg::from(*id)));
        let mut conditions = format!("id IN ({ids}) AND standing <> 'removed'");
        if !epochs.is_empty() {
            let some = cases(epochs.len());
            conditions.push_str(&format!(" AND epoch = CASE id {some}ELSE epoch END AND next_seq = CASE id {all}END"));
            args.extend(epochs.iter().flat_map(|(id, epoch)| args![*id, *epoch]));
            args.extend(changes.iter().flat_map(|(id, change)| args![*id, change.before]));
        }
        let sql = format!("UPDATE flowcell_runs SET {} WHERE {conditions}", sets.join(", "));
        let noted = self.connection.run(&sql, args).await?;
        // The remembered rows are out of date, and are read again.
        if epochs.is_empty() || noted == changes.len() as u64 { Ok(()) } else { Err(SqlError::Again) }
    }
}

/// Records the rows of new top runs in the claims.
pub(super) fn record_new_rows(shared: &Shared, rows: &Rows, items: &[Item]) {
    for item in items {
        if let Item::Entry(entry) = item
            && entry.new_record().is_some_and(|record| record.parent.is_none())
            && let Some(at) = rows.get(&key(entry))
        {
            shared.claims.set_row(&key(entry), at.row);
        }
    }
}
