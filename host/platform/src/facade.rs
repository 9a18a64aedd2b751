//! The methods of [`Host`] whose work the modules of their topics do.
//!
//! This module uses the modules of all topics, and no module uses it. So a topic such as [`files`](crate::files) has a
//! method of the host, and the host does not depend on the topic.

use std::{io::Write, ops::ControlFlow, path::Path, sync::Arc, time::Duration};

use flowcell_contract::{Digest, Json, RunId, Tenant};
use flowcell_flow::{Diagnostic, Source, graph::Graph};
use flowcell_runtime::{
    Event,
    earlier::EarlierRun,
    export::ExportError,
    fact::RunEnd,
    inputs::{TaskInputs, Window},
    ports::{LabelChange, Record, RunRow, Runs, StoreError, Swept},
};
use flowcell_services::egress::{OpenBreaker, OutboundLimits};

#[cfg(unix)]
use crate::{AskError, RunCommand, control};
use crate::{
    drive::sessions::{self, FlowSession, SessionError},
    files::{self, CopyFileError, FileError, TenantFiles},
    host::{
        Host, called,
        editing::Editing,
        error::{Error, LoadError, StartError},
        eval::{self, EvalError, Evaluated},
        events::{self, EventReader},
        folder::Folder,
        homes,
        loaded::{CheckedFlow, LoadedFlow},
        loading, outside,
        pack_changes::{HostPack, PackChanges, SkippedPack},
        pin::{self, PinnedPack},
        pushing, quota,
        retention::{self, DeleteError, LabelRunError, Removal},
        task_inputs,
    },
    operate::quota::QuotaError,
    packs::{
        Arrival, PackId, PackVersions, Trust,
        pushed::{PushError, PushedPack},
    },
    posted::cache::ChangedFlows,
    world::simulate::Simulate,
};

impl Host {
    /// Returns the same host for a caller that may not read the flows of the tenant: diagnostics do not name other flows.
    pub fn hiding_flows(mut self) -> Host {
        self.hides_flows = true;
        self
    }

    /// Limits the requests of each tenant to each origin, unless the tenant's policy has limits of its own.
    pub fn limit_requests(&self, limits: OutboundLimits) {
        outside::limit_requests(self, limits);
    }

    /// Returns the circuit breakers of this process that are not closed, of one tenant or of all: those that are open for
    /// longest come first.
    pub fn breakers(&self, only: Option<&Tenant>) -> Vec<OpenBreaker> {
        outside::breakers(self, only)
    }

    /// Loads a flow. Fails if the flow has errors. The paths of packs and files in the flow are relative to the flow's
    /// folder.
    pub fn load_flow(&self, path: impl AsRef<Path>) -> Result<LoadedFlow, LoadError> {
        loading::load_flow(self, path.as_ref())
    }

    /// Loads a flow from text. The paths of files in the flow are relative to the folder in the source's name.
    pub fn load_source(&self, source: Source) -> Result<LoadedFlow, LoadError> {
        loading::load_source(self, &source)
    }

    /// Checks a flow and returns all diagnostics. It runs nothing.
    pub fn check_flow(&self, path: impl AsRef<Path>) -> Result<CheckedFlow, Error> {
        loading::check_flow(self, path.as_ref())
    }

    /// Checks the text of a flow as [`Host::check_flow`] checks a file. The paths of packs and files in the flow are relative to
    /// the folder in the source's name. The host does not keep the result, since an editor checks many texts once.
    pub fn check_source(&self, source: &Source) -> CheckedFlow {
        loading::check_source(self, source)
    }

    /// Returns the node types and the names around a flow that is being written. Reads the folder of the flow.
    pub fn edit(&self, source: &Source) -> Editing {
        Editing::new(self, source)
    }

    /// Returns the node types and the names around a flow without a folder of its own, which [`Host::check_alone`] checks.
    pub fn edit_alone(&self, source: &Source, folder: Folder) -> Editing {
        Editing::in_folder(self, source, folder.with_posted(self.posted()))
    }

    /// Checks a flow without a folder of its own, such as one from the network: see [`Folder::nowhere`] and
    /// [`Folder::nowhere_beside`].
    pub fn check_alone(&self, source: &Source, folder: Folder) -> CheckedFlow {
        loading::check_alone(self, source, folder.with_posted(self.posted()))
    }

    /// Returns the result of an earlier check of the same flow, if that check looked up nothing outside of the flow's
    /// text. Otherwise returns `None`. Reads no files.
    pub fn checked_before(&self, source: &Source, folder: &Folder) -> Option<CheckedFlow> {
        loading::checked_before(self, source, folder)
    }

    /// Returns the same flow with its home. The home pins every flow that a run can call by a literal name or as a
    /// tool, directly or through other flows. The method reads files, checks flows, and blocks its thread.
    pub fn with_home(&self, flow: LoadedFlow) -> LoadedFlow {
        homes::with_home(self, flow)
    }

    /// Returns the warnings of a run's pinned flow. The list is empty if the store does not have the run.
    pub fn warnings_of(&self, run: &RunId) -> Vec<Diagnostic> {
        pin::warnings_of(self, run)
    }

    /// Looks for posted and deleted flows, and returns the tenants whose flows have changed since the last call. Blocks
    /// its thread. A store that is not shared has no posted flows.
    pub fn take_changed_flows(&self) -> Result<ChangedFlows, StoreError> {
        self.posted().map_or_else(|| Ok(ChangedFlows::default()), |posted| posted.take_changed())
    }

    /// Returns the packs whose node types every flow may use, sorted by name and version, without the built-in ones.
    pub fn packs(&self) -> Vec<HostPack> {
        pushing::packs(self)
    }

    /// Returns the packs of the shared store that this process does not use, with the reasons.
    pub fn skipped_packs(&self) -> Vec<SkippedPack> {
        pushing::skipped(self)
    }

    /// Looks for packs that operators have pushed to the shared store or removed from it. New runs use the packs that are
    /// there now. Blocks its thread. A store that is not shared has no packs.
    pub fn look_for_packs(&self) -> Result<PackChanges, StoreError> {
        pushing::look(self)
    }

    /// Pushes a pack to the shared store, for all of its processes. Its signer must be in `trust`. Returns when the pack is
    /// on stable storage. Other bytes under the same name and version are refused.
    pub fn push_pack(&self, arrival: Arrival, trust: &Trust) -> Result<(PackId, PushedPack), PushError> {
        pushing::push(self, arrival, trust)
    }

    /// Removes packs from the shared store, and returns their names and versions. Runs that have begun keep them.
    pub fn remove_packs(&self, packs: &PackVersions) -> Result<Vec<PackId>, PushError> {
        pushing::remove(self, packs)
    }

    /// Reads the packs, the lock and the trusted signers again. New runs use the packs that are there now, and runs that
    /// have begun keep theirs. If a pack cannot be used, returns the error, and the packs stay as they are. Blocks its
    /// thread.
    pub fn reload_packs(&self) -> Result<PackChanges, Error> {
        loading::reload_packs(self)
    }

    /// Returns the README of a pack of this host. Returns `None` if it has none, or once a run has used the pack.
    pub fn pack_readme(&self, pack: &Digest) -> Option<String> {
        loading::pack_readme(self, pack)
    }

    /// Returns the size of the component of a pack in bytes. Returns `None` if this host does not have the pack.
    pub fn pack_size(&self, pack: &Digest) -> Option<usize> {
        loading::pack_size(self, pack)
    }

    /// Checks whether the tenant may start another run now. Counts no run as started; [`Host::runner`] does.
    pub fn check_quota(&self) -> Result<(), QuotaError> {
        quota::check(self)
    }

    /// Checks whether a run may start or continue. `None` means a new run. A run that the store already has may always
    /// continue.
    pub fn check_quota_for(&self, run: Option<&RunId>) -> Result<(), QuotaError> {
        quota::check_for(self, run)
    }

    /// Sends a command to a run. If this process drives the run, the run's hub handles the command. If another process
    /// drives it, that process receives the command through the store. Otherwise the command is recorded for the next
    /// driver.
    #[cfg(unix)]
    pub async fn ask(&self, run: &RunId, command: RunCommand) -> Result<(), AskError> {
        control::send_command(self, run, command).await
    }

    /// Loads an agentic flow to run it under a prefix.
    pub fn flow_session(&self, path: impl AsRef<Path>, prefix: &str) -> Result<FlowSession, SessionError> {
        sessions::load(self, path.as_ref(), prefix)
    }

    /// Returns the capabilities and services that were simulated when a run began, unless the simulation of this host
    /// [includes](Simulate::includes) them. Otherwise returns `None`.
    pub fn simulated_of(&self, run: &RunId) -> Option<Simulate> {
        called::simulated_of(self, run)
    }

    /// Returns the checked flow of a stored run, in the version that the run uses. After a move to another version it
    /// also has the nodes of the versions before, outside of the flow itself.
    pub fn graph_of_run(&self, run: &RunId) -> Result<Arc<Graph>, StartError> {
        events::graph_of(self, run)
    }

    /// Returns the end of a run with its outputs, or `None` if the run has not ended. `next` is the number of the run's
    /// last event plus one.
    pub fn end_of(&self, run: &RunId, next: u64) -> Result<Option<RunEnd>, StartError> {
        events::end_of(self, run, next)
    }

    /// Returns a run as it was before the event with the number `end`. `row` and `record` are those of now.
    pub fn run_before(&self, row: RunRow, record: &Record, end: u64) -> Result<EarlierRun, StartError> {
        events::run_before(self, row, record, end)
    }

    /// Returns the whole input of a run, with the defaults of its flow. Returns `None` if the store does not have the run.
    pub fn input_of(&self, run: &RunId) -> Result<Option<Json>, StartError> {
        events::input_of(self, run)
    }

    /// Returns the packs that a run is pinned to, sorted by name.
    pub fn packs_of(&self, run: &RunId) -> Result<Vec<PinnedPack>, StartError> {
        pin::packs_of(self, run)
    }

    /// Returns whether a node of the flow of a run can run agents.
    pub(crate) fn has_agents(&self, run: &RunId) -> Result<bool, StartError> {
        pin::has_agents(self, run)
    }

    /// Visits the events of a stored run in order, beginning with the event number `from`, until the visitor breaks.
    pub fn each_event(
        &self,
        run: &RunId,
        from: u64,
        visit: impl FnMut(Event) -> ControlFlow<()>,
    ) -> Result<(), StartError> {
        events::each(self, run, from, visit)
    }

    /// Opens the events of a stored run.
    pub fn events(&self, run: &RunId) -> Result<EventReader, StartError> {
        events::open(self, run)
    }

    /// Reads the inputs of a run's task by its address, such as `pay` or `process[3].pay`. The address `review/pay`
    /// names a task in the child run that `review` called last. `runs` is needed to find child runs. For a task without
    /// attempts, the result has no node type. The `end` of the window is an event of `run`: of a child run, the events
    /// until then count.
    pub fn task_inputs(
        &self,
        runs: Option<&dyn Runs>,
        run: &RunId,
        address: &str,
        window: Window,
    ) -> Result<TaskInputs, StartError> {
        task_inputs::read(self, runs, run, address, window)
    }

    /// Evaluates an expression with an input, as the outputs of a flow would before its first task. Without a flow it knows
    /// `flow.input` and the facts about a run.
    pub fn eval(&self, flow: Option<&LoadedFlow>, input: Json, expression: &str) -> Result<Evaluated, EvalError> {
        eval::alone(self, flow, input, expression)
    }

    /// Evaluates an expression with the values that the input of a task had in a stored run, in its latest attempt. Without
    /// an address it has the values of the outputs at the end of the run. `runs` is needed to find child runs.
    pub fn eval_in_run(
        &self,
        runs: Option<&dyn Runs>,
        run: &RunId,
        address: Option<&str>,
        expression: &str,
    ) -> Result<Evaluated, EvalError> {
        eval::in_run(self, runs, run, address, expression)
    }

    /// Returns the child runs of a run.
    pub fn called_by(&self, run: &RunId) -> Result<Vec<RunId>, StartError> {
        retention::called_by(self, run)
    }

    /// Deletes ended runs with their child runs, and reserves their ids, in one transaction: if one of them cannot be
    /// deleted, deletes none. Returns when the deletion is on stable storage. [`Host::sweep`] then removes the blobs
    /// that only these runs referred to.
    pub fn delete_runs(&self, runs: &[RunId]) -> Result<(), DeleteError> {
        retention::delete_runs(self, runs)
    }

    /// Sets and removes labels of a run, also while it is driven and after its end. Returns when the change is on stable
    /// storage.
    pub fn label_run(&self, run: &RunId, change: &LabelChange) -> Result<(), LabelRunError> {
        retention::label_run(self, run, change)
    }

    /// Records that runs are removed at `now`, in milliseconds since 1970, whose blobs need a sweep. A process that
    /// applies the rules of retention does the sweep later.
    pub fn mark_unswept(&self, now: u64) -> Result<(), StoreError> {
        retention::mark_unswept(self, now)
    }

    /// Removes the runs that ended longer ago than `age`, and those that are not among the `keep` runs that ended last.
    /// A limit that is `None` does not apply. Spares runs that a run without an end repeats. Returns when the
    /// removal is on stable storage. The blobs of these runs stay until a call of [`Host::sweep`].
    pub fn collect(&self, age: Option<Duration>, keep: Option<u64>) -> Result<Removal, StartError> {
        retention::collect(self, age, keep)
    }

    /// Removes unreferenced blobs: large values, and packs that runs have pinned. Returns when the sweep and all
    /// earlier removals of [`Host::collect`] are done.
    pub fn sweep(&self) -> Result<Swept, StartError> {
        retention::sweep(self)
    }

    /// Writes a run and its child runs as one JSON document.
    pub fn export(&self, reader: &dyn Runs, run: &RunId, out: &mut dyn Write) -> Result<(), ExportError> {
        retention::export_run(self, reader, run, out)
    }

    /// Returns the files of the tenant.
    pub fn files(&self) -> TenantFiles<'_> {
        TenantFiles::of(self)
    }

    /// Stores bytes for a new run, and returns the file value. The file does not appear in the tenant's list of
    /// files.
    pub fn keep_file(&self, name: &str, bytes: Vec<u8>) -> Result<Json, FileError> {
        files::keep(self, name, bytes)
    }

    /// Begins a file whose content arrives in parts. [`Upload::keep`](files::Upload::keep) stores it.
    pub fn begin_file(&self) -> Result<files::Upload, FileError> {
        files::Upload::begin(self)
    }

    /// Returns at most `length` bytes of a file value from `offset` on: none at and after the end.
    pub fn read_file(&self, value: &Json, offset: u64, length: usize) -> Result<Vec<u8>, FileError> {
        files::read_part(self, value, offset, length)
    }

    /// Writes the content of a file value, such as one in a run's output. Returns its size in bytes.
    pub fn copy_file(&self, value: &Json, out: &mut dyn Write) -> Result<u64, CopyFileError> {
        files::copy(self, value, out)
    }

    /// Returns the bytes of a file value, such as one in a run's output. A file of more than 32 MiB is only read in
    /// parts.
    pub fn file_bytes(&self, value: &Json) -> Result<Arc<[u8]>, FileError> {
        files::bytes(self, value)
    }
}
