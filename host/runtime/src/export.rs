//! Writes whole runs as JSON documents, for archives or for other programs.

use std::{
    io::{self, Write},
    ops::ControlFlow,
};

use flowcell_contract::{Failure, RunId, Tenant};
use serde::Serialize;

use crate::{
    each_unit,
    inputs::{AttemptInput, Visited, each_attempt},
    limits::MAX_EXPORTED_INPUT_BYTES,
    ports::{Record, Runs, StoreError},
    publish::Projector,
    versions::RunGraphs,
    world::Flows,
};

/// The version of the form of the document, in the member `v`.
pub const EXPORT_VERSION: u32 = 1;

/// An error of [`export`].
#[derive(Debug, thiserror::Error)]
pub enum ExportError {
    /// No run has this id.
    #[error("the run `{0}` does not exist")]
    Unknown(RunId),
    /// The store could not answer, or is damaged.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The document could not be written.
    #[error("cannot write the document: {0}")]
    Write(#[from] io::Error),
}

impl From<serde_json::Error> for ExportError {
    fn from(error: serde_json::Error) -> ExportError {
        ExportError::Write(error.into())
    }
}

/// Writes all durable data of a run as one JSON document:
///
/// ```json
/// { "v": 1, "run": { "runId", "flow", "status", "created", "updated", "due"? }, "record": { "flow", "pin", … },
///   "units": [ { "first_seq", "ts", "facts": [ … ] } ], "events": [ { "seq", "type", … } ],
///   "inputs": [ { "task", "attempt", "resumes", "began", "status", "input", "config"?, "inputDigest" } ], "children": [ … ] }
/// ```
///
/// Units are as in the journal and events as published, both with their large values. Inputs are rendered again from
/// the journal, in the order of the ends of their attempts; `inputDigest` compares each with the digest in the
/// journal. The inputs have at most [`MAX_EXPORTED_INPUT_BYTES`] together: the first one that does not fit, and all
/// later ones, are left out, and `inputsLeftOut` counts them.
///
/// If the pinned flow cannot be loaded, events and inputs are missing, and `eventsMissing` has the reason. Children
/// are documents of the same form, without `v`.
pub fn export(
    reader: &dyn Runs,
    flows: &dyn Flows,
    tenant: &Tenant,
    run: &RunId,
    out: &mut dyn Write,
) -> Result<(), ExportError> {
    write!(out, "{{\"v\":{EXPORT_VERSION},")?;
    Exporter { reader, flows, tenant, out }.run(run)?;
    Ok(writeln!(out)?)
}

struct Exporter<'a> {
    reader: &'a dyn Runs,
    flows: &'a dyn Flows,
    tenant: &'a Tenant,
    out: &'a mut dyn Write,
}

impl Exporter<'_> {
    /// Writes the members of the document of a run, and the brace that closes the document.
    fn run(&mut self, run: &RunId) -> Result<(), ExportError> {
        let unknown = || ExportError::Unknown(run.clone());
        // The record is read last: it then has the graphs of all units before `end`, also if the run moves meanwhile.
        let (row, end) = self.reader.run(self.tenant, run)?.ok_or_else(unknown)?;
        let record = self.reader.find(self.tenant, run)?.ok_or_else(unknown)?;
        self.write_member("\"run\"", &row)?;
        self.write_member(",\"record\"", &record)?;
        self.write_units(run, end)?;
        let graphs = RunGraphs::load(&record, |pin| self.flows.pinned(pin));
        self.write_events(run, &graphs, end)?;
        self.write_inputs(run, &record, &graphs, end)?;
        self.write_children(run)?;
        Ok(self.out.write_all(b"}")?)
    }

    fn write_member(&mut self, name: &str, value: &impl Serialize) -> Result<(), ExportError> {
        write!(self.out, "{name}:")?;
        Ok(serde_json::to_writer(&mut *self.out, value)?)
    }

    fn write_units(&mut self, run: &RunId, end: u64) -> Result<(), ExportError> {
        let (reader, tenant) = (self.reader, self.tenant);
        self.list("units", |items| {
            each_unit(reader, tenant, run, |unit| {
                if unit.first_seq < end {
                    items.add(&*unit);
                }
            })
        })
    }

    fn write_events(&mut self, run: &RunId, graphs: &Result<RunGraphs, Failure>, end: u64) -> Result<(), ExportError> {
        let (reader, tenant) = (self.reader, self.tenant);
        let graph = graphs.as_ref().ok().map(RunGraphs::last);
        let mut projector = graph.map(|graph| Projector::new(tenant.clone(), run.clone(), graph.clone()));
        self.list("events", |items| {
            let Some(projector) = &mut projector else { return Ok(()) };
            each_unit(reader, tenant, run, |unit| {
                let events = if unit.first_seq < end { projector.project(&unit) } else { Vec::new() };
                events.iter().for_each(|event| items.add(event));
            })
        })?;
        match graphs {
            Ok(_) => Ok(()),
            Err(failure) => self.write_member(",\"eventsMissing\"", &failure.to_string()),
        }
    }

    fn write_inputs(
        &mut self,
        run: &RunId,
        record: &Record,
        graphs: &Result<RunGraphs, Failure>,
        end: u64,
    ) -> Result<(), ExportError> {
        let (reader, tenant) = (self.reader, self.tenant);
        let (mut room, mut left_out) = (MAX_EXPORTED_INPUT_BYTES, 0_u64);
        self.list("inputs", |items| {
            let Ok(graphs) = graphs else { return Ok(()) };
            let mut visit = |visited: &Visited<'_>| {
                // Rendering takes time too: an input with shared parts may be many times as large as the journal.
                if room == 0 {
                    left_out += 1;
                    return ControlFlow::Continue(());
                }
                let attempt = AttemptInput::new(visited, visited.render());
                match room.checked_sub(attempt.bytes()) {
                    Some(rest) => {
                        room = rest;
                        items.add(&OfTask { task: visited.address(), attempt });
                    }
                    None => (room, left_out) = (0, left_out + 1),
                }
                ControlFlow::Continue(())
            };
            each_attempt(reader, graphs, record, (tenant, run), (None, end), &mut visit)
        })?;
        match left_out {
            0 => Ok(()),
            left_out => self.write_member(",\"inputsLeftOut\"", &left_out),
        }
    }

    fn write_children(&mut self, run: &RunId) -> Result<(), ExportError> {
        self.out.write_all(b",\"children\":[")?;
        for (index, child) in self.reader.children(self.tenant, run)?.iter().enumerate() {
            self.out.write_all(if index == 0 { b"{" } else { b",{" })?;
            self.run(child)?;
        }
        Ok(self.out.write_all(b"]")?)
    }

    fn list(
        &mut self,
        name: &str,
        fill: impl FnOnce(&mut Items<'_>) -> Result<(), StoreError>,
    ) -> Result<(), ExportError> {
        write!(self.out, ",\"{name}\":[")?;
        let mut items = Items { out: &mut *self.out, first: true, written: Ok(()) };
        fill(&mut items)?;
        items.written?;
        Ok(self.out.write_all(b"]")?)
    }
}

/// The input of an attempt, with the address of its task.
#[derive(Serialize)]
struct OfTask {
    task: String,
    #[serde(flatten)]
    attempt: AttemptInput,
}

/// Writes the items of a list, separated by commas.
struct Items<'a> {
    out: &'a mut dyn Write,
    first: bool,
    /// The first failure. After it, no more items are written.
    written: Result<(), io::Error>,
}

impl Items<'_> {
    fn add(&mut self, item: &impl Serialize) {
        if self.written.is_ok() {
            self.written = self.write(item);
        }
    }

    fn write(&mut self, item: &impl Serialize) -> Result<(), io::Error> {
        if !std::mem::take(&mut self.first) {
            self.out.write_all(b",")?;
        }
        Ok(serde_json::to_writer(&mut *self.out, item)?)
    }
}
