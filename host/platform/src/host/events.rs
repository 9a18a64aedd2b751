//! Reads the events of runs from the store.

use std::{collections::VecDeque, ops::ControlFlow, sync::Arc};

use flowcell_contract::{Json, RunId};
use flowcell_flow::graph::Graph;
use flowcell_runtime::{
    Event, OpenError,
    earlier::EarlierRun,
    fact::{Fact, RunEnd},
    limits::MAX_READ_UNITS,
    ports::{MaybeStoreError, Record, RunRow, Unit},
    publish::Projector,
};

use super::{Host, pin};
use crate::host::error::StartError;

/// The events of a run that count when it is shown as it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Until {
    /// The events before the one with this number. A large number: all events.
    Event(u64),
    /// The events before this time, in milliseconds since 1970.
    Time(u64),
}

impl Until {
    /// Returns whether the event with this number and time counts.
    pub(crate) fn counts(self, seq: u64, ts: u64) -> bool {
        match self {
            Until::Event(end) => seq < end,
            Until::Time(until) => ts < until,
        }
    }
}

/// Reads the events of one run in order, from its first fact on.
pub struct EventReader {
    host: Host,
    run: RunId,
    projector: Projector,
    /// The number of the first fact that was not yet converted to events.
    at: u64,
    /// Units that were read from the store and not yet converted to events.
    units: VecDeque<Arc<Unit>>,
    /// Maximum number of units that are read at a time. 1 after damage was found, so that all units before it are read.
    page: usize,
    /// Events of the last unit that the caller has not taken.
    events: VecDeque<Event>,
}

/// Performs [`Host::end_of`].
pub(crate) fn end_of(host: &Host, run: &RunId, next: u64) -> Result<Option<RunEnd>, StartError> {
    let units = host.shared.journal.read(&host.tenant, run, next.saturating_sub(1), MAX_READ_UNITS);
    let units = units.map_err(OpenError::Store)?;
    let mut facts = units.iter().flat_map(|unit| &unit.facts).rev();
    Ok(facts.find_map(|fact| match fact {
        Fact::RunEnded { end } => Some(RunEnd::clone(end)),
        _ => None,
    }))
}

/// Performs [`Host::input_of`].
pub(crate) fn input_of(host: &Host, run: &RunId) -> Result<Option<Json>, StartError> {
    let units = host.shared.journal.read(&host.tenant, run, 0, 1).map_err(OpenError::Store)?;
    Ok(units.iter().flat_map(|unit| &unit.facts).find_map(|fact| match fact {
        Fact::RunStarted { input, .. } => Some(input.clone()),
        _ => None,
    }))
}

/// Performs [`Host::graph_of_run`].
pub(crate) fn graph_of(host: &Host, run: &RunId) -> Result<Arc<Graph>, StartError> {
    let record = host.record(run).map_err(OpenError::Store)?;
    let record = record.ok_or_else(|| OpenError::Unknown(run.clone()))?;
    Ok(pin::graphs_of(host, &record).map_err(OpenError::Pin)?.last().clone())
}

/// Performs [`Host::each_event`].
pub(crate) fn each(
    host: &Host,
    run: &RunId,
    from: u64,
    mut visit: impl FnMut(Event) -> ControlFlow<()>,
) -> Result<(), StartError> {
    let mut events = open(host, run)?;
    while let Some(event) = events.next(from)? {
        if visit(event).is_break() {
            break;
        }
    }
    Ok(())
}

/// Visits the events of a run that count. Returns the time of the first one that does not count, or `None` if all count.
pub(crate) fn each_until(
    host: &Host,
    run: &RunId,
    until: Until,
    mut visit: impl FnMut(&Event),
) -> Result<Option<u64>, StartError> {
    let mut cut_at = None;
    each(host, run, 0, |event| {
        if !until.counts(event.seq, event.ts) {
            cut_at = Some(event.ts);
            return ControlFlow::Break(());
        }
        visit(&event);
        ControlFlow::Continue(())
    })?;
    Ok(cut_at)
}

/// Returns the number of events of a run that count, and the time of the first one that does not count.
pub(crate) fn count_until(host: &Host, run: &RunId, until: Until) -> Result<(u64, Option<u64>), StartError> {
    let mut from = 0;
    loop {
        let units = host.shared.journal.read(&host.tenant, run, from, MAX_READ_UNITS).map_err(OpenError::Store)?;
        let Some(end) = units.last().map(|unit| unit.next_seq()) else { return Ok((from, None)) };
        for unit in &units {
            let counted =
                (unit.first_seq..unit.next_seq()).take_while(|seq| until.counts(*seq, unit.ts)).count() as u64;
            if unit.first_seq + counted < unit.next_seq() {
                return Ok((unit.first_seq + counted, Some(unit.ts)));
            }
        }
        from = end;
    }
}

/// Performs [`Host::run_before`].
pub(crate) fn run_before(host: &Host, row: RunRow, record: &Record, end: u64) -> Result<EarlierRun, StartError> {
    let run = row.run_id.clone();
    let earlier = EarlierRun::read(&*host.shared.journal, (&host.tenant, &run), (row, record), end);
    Ok(earlier.map_err(OpenError::Store)?)
}

/// Performs [`Host::events`].
pub(crate) fn open(host: &Host, run: &RunId) -> Result<EventReader, StartError> {
    let projector = Projector::new(host.tenant.clone(), run.clone(), graph_of(host, run)?);
    let (units, events) = (VecDeque::new(), VecDeque::new());
    let page = MAX_READ_UNITS;
    Ok(EventReader { host: host.clone(), run: run.clone(), projector, at: 0, units, page, events })
}

impl EventReader {
    /// Returns the next event with a number of at least `from`. It returns `None` if the store has no more events yet.
    pub fn next(&mut self, from: u64) -> Result<Option<Event>, StartError> {
        loop {
            while let Some(event) = self.events.pop_front() {
                if event.seq >= from {
                    return Ok(Some(event));
                }
            }
            let Some(unit) = self.next_unit()? else { return Ok(None) };
            self.at = unit.next_seq();
            if unit.facts.iter().any(|fact| matches!(fact, Fact::Migrated { .. })) {
                // The store has written the record with the unit.
                self.projector.set_graph(graph_of(&self.host, &self.run)?);
            }
            match self.at <= from {
                true => self.projector.pass_over(&unit),
                false => self.events.extend(self.projector.project(&unit)),
            }
        }
    }

    fn next_unit(&mut self) -> Result<Option<Arc<Unit>>, StartError> {
        if self.units.is_empty() {
            let read = |page| self.host.shared.journal.read(&self.host.tenant, &self.run, self.at, page);
            let mut units = read(self.page);
            if units.as_ref().is_err_and(|error| error.damage().is_some()) && self.page > 1 {
                self.page = 1;
                units = read(self.page);
            }
            self.units = units.map_err(OpenError::Store)?.into();
        }
        Ok(self.units.pop_front())
    }

    /// Returns an event to the reader. The next call of [`EventReader::next`] returns this event again.
    pub fn put_back(&mut self, event: Event) {
        self.events.push_front(event);
    }

    /// Drops the units that were read ahead. The reader reads them again on demand.
    pub fn drop_read_ahead(&mut self) {
        self.units.clear();
    }
}
