//! The host's side of one running instance: the interfaces that the guest sees, and its resource usage.

use std::{
    collections::{HashMap, HashSet},
    sync::{Arc, OnceLock},
    time::{Duration, Instant},
};

use flowcell_contract::{Attempt, BlobRef, BuiltIn, Call, Calls, Failure, Json, PIECE_BYTES, Value};
use wasmtime::component::ResourceTable;
use wasmtime_wasi::{WasiCtx, WasiCtxView, WasiView};
use wasmtime_wasi_http::WasiHttpCtx;

use crate::{
    Limits,
    cost::{Cost, Measured},
    failure::{Stop, to_guest},
    text::printable,
};

mod agent;
pub(crate) mod capability;
mod context;
pub(crate) mod denial;
mod deterministic;
mod file_writer;
mod files;
pub(crate) mod meter;
mod outside;
pub(crate) mod ported;
mod reply;
mod services;
pub(crate) mod stdio;
mod streams;

use capability::Answer;
use deterministic::Clock;
use file_writer::WrittenFiles;
use meter::{Meter, SharedMemory};
use ported::{Folders, Requests};
use stdio::Stdio;
use streams::Streams;

/// The data of a wasmtime store, one for each attempt.
pub(crate) struct Sandbox {
    pub(crate) attempt: Attempt,
    pub(crate) meter: Meter,
    pub(crate) stdio: Stdio,
    /// The measurement of the attempt, if it is measured.
    pub(crate) measured: Option<Measured>,
    calls: Arc<dyn Calls>,
    /// The ids of HTTP requests that the guest started and that have not ended.
    open_http_calls: HashSet<u32>,
    /// The service calls that the guest started and that have not ended: the id of each call, and the guest's own id.
    open_service_calls: HashMap<u32, String>,
    /// HTTP answers that `next-event` has announced and the guest has not read yet.
    replies: HashMap<u32, Value>,
    /// The file value that the guest read last, the number of the piece, and its bytes.
    open_piece: Option<(BlobRef, u64, Vec<u8>)>,
    written_files: WrittenFiles,
    streams: Streams,
    clock: Clock,
    task: OnceLock<Value>,
    wasi: WasiCtx,
    http: WasiHttpCtx,
    requests: Requests,
    folders: Folders,
    table: ResourceTable,
}

impl Sandbox {
    pub(crate) fn new(attempt: Attempt, calls: Arc<dyn Calls>, limits: &Limits, memory: SharedMemory) -> Sandbox {
        let stdio = Stdio::new(limits);
        let clock = Clock::new(attempt.now_ms);
        let wasi = deterministic::context(&attempt, &clock, &stdio, limits);
        let mut table = ResourceTable::new();
        table.set_max_capacity(limits.handles);
        let meter = Meter::new(limits, attempt.tenant.clone(), memory);
        let requests = Requests::new(calls.clone(), clock.clone());
        Sandbox {
            attempt,
            meter,
            stdio,
            measured: None,
            calls,
            open_http_calls: HashSet::new(),
            open_service_calls: HashMap::new(),
            replies: HashMap::new(),
            open_piece: None,
            written_files: WrittenFiles::default(),
            streams: Streams::default(),
            clock,
            task: OnceLock::new(),
            wasi,
            http: WasiHttpCtx::new(),
            requests,
            folders: Folders::default(),
            table,
        }
    }

    /// Returns a piece of a file, which may be empty.
    fn open_piece(&mut self, file: &BlobRef, number: u64) -> Result<&[u8], Failure> {
        let bytes = match self.open_piece.take() {
            Some((open, at, bytes)) if open == *file && at == number => bytes,
            _ => self.calls.read_part(file, number.saturating_mul(PIECE_BYTES as u64), PIECE_BYTES)?,
        };
        Ok(&self.open_piece.insert((file.clone(), number, bytes)).2)
    }

    /// Returns the current time if the attempt is measured.
    pub(crate) fn stopwatch(&self) -> Option<Instant> {
        self.measured.is_some().then(Instant::now)
    }

    /// Sets a part of the cost to the time since [`Sandbox::stopwatch`] was called.
    pub(crate) fn count_time(&mut self, since: Option<Instant>, part: impl FnOnce(&mut Cost) -> &mut Duration) {
        if let (Some(since), Some(measured)) = (since, &mut self.measured) {
            *part(&mut measured.cost) = since.elapsed();
        }
    }

    /// Makes one call. Before the call, forwards the guest's earlier output and writes the files that the guest has
    /// closed.
    async fn call(
        &mut self,
        capability: BuiltIn,
        function: &str,
        args: Json,
    ) -> wasmtime::Result<Result<Value, Failure>> {
        self.meter.count_call()?;
        self.forward_output(false).await;
        ported::write_back(self).await.map_err(|failure| wasmtime::Error::new(Stop(failure)))?;
        Ok(self.send(capability, function, args).await)
    }

    /// Answers a call with a failure, without making it.
    fn refuse<T>(&mut self, failure: Failure) -> Answer<T> {
        self.meter.count_call()?;
        Ok(Err(to_guest(failure)))
    }

    /// Sets the guest's clock to the time of the last event that it received.
    fn update_clock(&self) {
        if let Some(now) = self.calls.now_ms() {
            self.clock.show(now);
        }
    }

    async fn send(&mut self, capability: BuiltIn, function: &str, args: Json) -> Result<Value, Failure> {
        let call = Call { interface: capability.name().into(), function: function.into(), args: args.into() };
        self.calls.call(call).await
    }

    /// Forwards the guest's output to standard output and standard error as log lines. If `end` is true, a last line
    /// without a line break is forwarded, too.
    pub(crate) async fn forward_output(&mut self, end: bool) {
        for (level, line) in self.stdio.take_lines(end) {
            self.log(level, line).await;
        }
    }

    async fn log(&mut self, level: &str, message: String) {
        let Some(message) = self.meter.admit_log(message) else { return };
        let args = Json::object([("level", Json::from(level)), ("message", Json::from(printable(message)))]);
        // Logs are inert: a node's outcome must not depend on whether a line arrives.
        if let Err(failure) = self.send(BuiltIn::Log, "log", args).await {
            tracing::debug!("cannot record a log line: {failure}");
        }
    }
}

impl WasiView for Sandbox {
    fn ctx(&mut self) -> WasiCtxView<'_> {
        WasiCtxView { ctx: &mut self.wasi, table: &mut self.table }
    }
}
