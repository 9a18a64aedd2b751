//! The owner of a store: this process, or another one that accepts requests over a socket in the store's folder.

use std::{
    cell::RefCell,
    path::Path,
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use flowcell::{
    Host, InputError, Json, LoadError, MoveError, NoVersion, OpenStoreError, RetryError, RunId, StartError,
    control::{self, AskOwnerError, Driver, HandedOverRuns, Listening, OwnerReply, OwnerRequest, Reach},
    files::operation::{FileOperation, MAX_PART},
    tenants::{Tenants, operation::Operation},
};
use tokio::runtime::Runtime;

use crate::{
    arguments::shell_word,
    cli_error::{CliError, Exit},
    clock::now_ms,
    content::Content,
    options::{PackArgs, StoreArgs, StoreLocation},
    terminal::Terminal,
};

/// The time for which a command waits for an owner that does not listen: until it listens, or has ended.
const MAX_ENDING_TIME: Duration = Duration::from_secs(2);
/// The time for which a command looks for an owner that takes its request. A process that ends waits 10 s for the calls of
/// the runs that it drives.
pub(crate) const MAX_OWNER_SEARCH: Duration = Duration::from_secs(30);
/// Pause before the store is opened again.
pub(crate) const OWNER_PAUSE: Duration = Duration::from_millis(20);

/// Sends a request to the process that owns the store in a folder. Returns the id of the run that the request
/// concerns, which is empty if it concerns none. Fails if the owner refuses the request.
pub(crate) fn ask_owner(folder: &Path, ask: &OwnerRequest) -> Result<RunId, CliError> {
    let told = control::ask_owner(folder, ask).map_err(|error| unreachable(&error))?;
    let run = ask.run().cloned().unwrap_or_else(|| RunId::from(""));
    match told {
        OwnerReply::Done { run } => Ok(run),
        OwnerReply::Operated { .. } => Ok(run),
        OwnerReply::Refused { code, message } => Err(refused(&code, &message, &run)),
    }
}

/// Returns the error for an owner that has not answered.
pub(crate) fn unreachable(error: &AskOwnerError) -> CliError {
    let problem = CliError::internal("cannot reach the process that owns the store").because(error);
    match error {
        AskOwnerError::Gone(_) => problem.by_gone_owner(),
        AskOwnerError::Failed(_) => problem.note("that process may have done what the command asks for"),
    }
}

/// Executes a command again if the owner of the store has ended, or is about to, before it took the request. The command
/// then asks the next owner, or this process becomes the owner. Gives up after [`MAX_OWNER_SEARCH`].
pub(crate) fn with_present_owner<T>(command: impl FnMut() -> Result<T, CliError>) -> Result<T, CliError> {
    repeat_while(CliError::is_owner_gone, command)
}

/// Sends a request to the process that owns the store. If that process has ended, sends it to the next one, for at most
/// [`MAX_OWNER_SEARCH`].
pub(crate) fn ask_present_owner(folder: &Path, ask: &OwnerRequest) -> Result<OwnerReply, AskOwnerError> {
    repeat_while(|error| matches!(error, AskOwnerError::Gone(_)), || control::ask_owner(folder, ask))
}

fn repeat_while<T, E>(is_owner_gone: impl Fn(&E) -> bool, mut ask: impl FnMut() -> Result<T, E>) -> Result<T, E> {
    let until = Instant::now() + MAX_OWNER_SEARCH;
    loop {
        match ask() {
            Err(error) if is_owner_gone(&error) && Instant::now() < until => thread::sleep(OWNER_PAUSE),
            done => return done,
        }
    }
}

/// Makes the id of a new run. A request with an id may be sent again: the run begins once.
pub(crate) fn new_run_id() -> RunId {
    flowcell::new_run_id(now_ms())
}

pub(crate) fn refused(code: &str, message: &str, run: &RunId) -> CliError {
    let problem = CliError::by_code(code, message);
    match code {
        "gate_closed" | "run_not_active" | "not_blocked" => problem.hint(format!(
            "`flowcell runs show {}` shows the status of the run and its open questions",
            shell_word(run.as_str())
        )),
        "repeats_driven" => problem.hint(REPEAT_LATER),
        "run_not_found" => problem.hint("`flowcell runs list` lists the runs in the store"),
        "run_not_ended" => {
            problem.hint("`flowcell runs cancel RUN` cancels a run; it can be deleted once it has ended")
        }
        _ => problem,
    }
}

/// The advice to those who repeat a run that is being driven.
pub(crate) const REPEAT_LATER: &str =
    "repeat it when it has ended or is parked; `flowcell runs list` shows the status of the runs";

/// The process that owns a store.
pub(crate) enum Owner<'a> {
    /// This process, through this host.
    Here(Host),
    /// Another process, which accepts requests over the socket in this folder.
    Other(&'a Path),
}

impl<'a> Owner<'a> {
    /// Opens a store to drive runs. If another process owns the store, returns `Other`. An owner that does not listen
    /// begins or ends: this is waited for, up to [`MAX_ENDING_TIME`].
    pub(crate) fn of(place: StoreLocation<'a>, packs: &PackArgs) -> Result<Owner<'a>, CliError> {
        let until = Instant::now() + MAX_ENDING_TIME;
        loop {
            match (packs.host_at(place), place) {
                (Err(flowcell::Error::Store(OpenStoreError::Owned { .. })), StoreLocation::Folder(folder)) => {
                    if control::is_listening(folder) || Instant::now() >= until {
                        return Ok(Owner::Other(folder));
                    }
                    thread::sleep(OWNER_PAUSE);
                }
                (host, _) => return Ok(Owner::Here(host?)),
            }
        }
    }

    /// Executes an operation of operators in the process that owns the store.
    pub(crate) fn operate(&self, operation: Operation) -> Result<Json, CliError> {
        match self {
            Owner::Here(host) => {
                let done = Tenants::of(host).operate(&operation);
                done.map_err(|error| refused(error.code(), &error.to_string(), &RunId::from("")))
            }
            Owner::Other(folder) => ask_to_operate(folder, operation),
        }
    }
}

/// The owner of a store, which is found again when it has ended.
pub(crate) struct PresentOwner<'a> {
    place: StoreLocation<'a>,
    packs: PackArgs,
    owner: RefCell<Owner<'a>>,
}

impl<'a> PresentOwner<'a> {
    pub(crate) fn of(place: StoreLocation<'a>, packs: PackArgs) -> Result<PresentOwner<'a>, CliError> {
        let owner = RefCell::new(Owner::of(place, &packs)?);
        Ok(PresentOwner { place, packs, owner })
    }

    /// Returns the host of this process, if this process owns the store.
    pub(crate) fn host(&self) -> Option<Host> {
        match &*self.owner.borrow() {
            Owner::Here(host) => Some(host.clone()),
            Owner::Other(_) => None,
        }
    }

    /// Executes an operation of operators in the process that owns the store.
    pub(crate) fn operate(&self, operation: &Operation) -> Result<Json, CliError> {
        with_present_owner(|| {
            let done = self.owner.borrow().operate(operation.clone());
            if done.as_ref().is_err_and(CliError::is_owner_gone) {
                let next = Owner::of(self.place, &self.packs)?;
                *self.owner.borrow_mut() = next;
            }
            done
        })
    }
}

/// Returns the place of the store. Fails for a store in memory, which has no runs of other processes.
pub(crate) fn require_durable(store: &StoreArgs) -> Result<StoreLocation<'_>, CliError> {
    match store.place()? {
        StoreLocation::Memory => {
            Err(CliError::wrong("a store in memory has no runs of other processes").hint("remove `--store memory:`"))
        }
        place => Ok(place),
    }
}

/// Accepts requests of other processes, such as answers and new runs, until this process ends. If the socket cannot be
/// opened, prints a warning and returns.
pub(crate) fn listen(
    host: &Host,
    folder: &Path,
    owner: Arc<dyn Driver>,
    reach: Reach,
    terminal: Terminal,
) -> Option<Listening> {
    let listening = control::listen(host, folder, owner, reach);
    let warn = |error: &std::io::Error| {
        terminal.say(&format!(
            "warning: cannot open the control socket, so other terminals cannot answer or send: {error}"
        ));
    };
    listening.inspect_err(warn).ok()
}

/// Drives the run of a command, and the runs that other processes hand over meanwhile. One runtime drives them all: if
/// each run had one, its end would break what the run shares with the others, such as connections.
pub(crate) struct RunDriver {
    runtime: Runtime,
    /// `None` if the store is not in a folder.
    handed_over: Option<Arc<HandedOverRuns>>,
    listening: Option<Listening>,
}

impl RunDriver {
    /// Accepts requests of other processes from now on, if the store is in a folder.
    pub(crate) fn listen(
        host: &Host,
        store: &StoreArgs,
        packs: &PackArgs,
        terminal: Terminal,
    ) -> Result<RunDriver, CliError> {
        let StoreLocation::Folder(folder) = store.place()? else { return RunDriver::alone() };
        let runtime = new_runtime()?;
        let handed_over = HandedOverRuns::new(host.clone(), runtime.handle().clone());
        let listening = listen(host, folder, handed_over.clone(), packs.reach(), terminal);
        Ok(RunDriver { runtime, handed_over: Some(handed_over), listening })
    }

    /// Takes no requests of other processes.
    pub(crate) fn alone() -> Result<RunDriver, CliError> {
        Ok(RunDriver { runtime: new_runtime()?, handed_over: None, listening: None })
    }

    /// Drives the run of the command. Then the process is about to end: parks the runs of other processes, which continue
    /// them, and takes no more requests.
    pub(crate) fn drive<T>(self, own: impl Future<Output = T>) -> T {
        let result = self.runtime.block_on(async {
            let result = own.await;
            if let Some(handed_over) = &self.handed_over {
                handed_over.stop().await;
            }
            result
        });
        if let Some(listening) = self.listening {
            listening.end();
        }
        flowcell::end_runtime(self.runtime);
        result
    }
}

fn new_runtime() -> Result<Runtime, CliError> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.map_err(|error| CliError::internal("cannot start the runtime").because(&error))
}

pub(crate) fn block_on<T>(work: impl Future<Output = T>) -> Result<T, CliError> {
    let runtime = new_runtime()?;
    let result = runtime.block_on(work);
    flowcell::end_runtime(runtime);
    Ok(result)
}

pub(crate) fn local_tenant() -> flowcell::contract::Tenant {
    flowcell::contract::Tenant::local()
}

pub(crate) fn unreadable(error: &dyn std::fmt::Display) -> CliError {
    CliError::ending(Exit::Unreadable, format!("cannot read the store: {error}"))
}

impl From<MoveError> for CliError {
    fn from(error: MoveError) -> CliError {
        match error {
            MoveError::Prepare(error) => error.into(),
            MoveError::Refused(_) => CliError::wrong(error.to_string()),
        }
    }
}

impl From<RetryError> for CliError {
    fn from(error: RetryError) -> CliError {
        match error {
            RetryError::Start(error) => error.into(),
            RetryError::Version(NoVersion::Library(error)) => error.into(),
            RetryError::Version(NoVersion::File(LoadError::Invalid(findings))) => CliError::found(findings),
            RetryError::Version(_) => CliError::wrong(error.to_string()),
        }
    }
}

impl From<StartError> for CliError {
    fn from(error: StartError) -> CliError {
        use flowcell::{NoStart, OpenError, QuotaError};
        match &error {
            StartError::Input(input) => input_mismatch(input),
            StartError::Open(OpenError::Store(_)) => unreadable(&error),
            StartError::Open(OpenError::Unknown(_)) => {
                CliError::wrong(error.to_string()).hint("`flowcell runs list` lists the runs in the store")
            }
            StartError::Open(
                OpenError::OtherInput(_)
                | OpenError::OtherFlow(..)
                | OpenError::OtherRequest(_)
                | OpenError::OtherRepeat(_),
            ) => CliError::wrong(error.to_string()).hint("choose another `--run-id`, or omit it"),
            StartError::Open(OpenError::OtherNames(errors)) => {
                let message = "the nodes of the run cannot have these names in this version of its flow";
                errors.iter().fold(CliError::wrong(message), |error, why| error.note(why.to_string()))
            }
            StartError::Open(OpenError::NoNode(
                NoStart::OtherName { .. } | NoStart::TakenOver { .. } | NoStart::NotEnded { .. },
            )) => CliError::wrong(error.to_string()),
            StartError::Open(OpenError::NoNode(_)) => CliError::wrong(error.to_string())
                .hint("`flowcell runs show RUN` shows the nodes; choose one that is not in a body or a called flow"),
            StartError::Quota(QuotaError::Store(_)) => unreadable(&error),
            StartError::Disabled(_)
            | StartError::TenantDisabled(_)
            | StartError::Renewed(_)
            | StartError::Quota(_)
            | StartError::Open(
                OpenError::Pin(_)
                | OpenError::Driven(_)
                | OpenError::OtherNeeds(_)
                | OpenError::Labels(_)
                | OpenError::TooDeep
                | OpenError::NoOtherNames
                | OpenError::Called { .. },
            ) => CliError::wrong(error.to_string()),
        }
    }
}

pub(crate) fn operate(operation: Operation, store: &StoreArgs) -> Result<Json, CliError> {
    operate_with(&PackArgs::default(), operation, store)
}

/// Executes an operation of operators, such as a change of tenants, in this process. If another process owns the
/// store, sends the operation to that process.
pub(crate) fn operate_with(args: &PackArgs, operation: Operation, store: &StoreArgs) -> Result<Json, CliError> {
    let place = require_durable(store)?;
    with_present_owner(|| Owner::of(place, args)?.operate(operation.clone()))
}

/// Disables a tenant and cancels its runs, in this process or in the one that owns the store.
pub(crate) fn stop_tenant(name: &str, store: &StoreArgs) -> Result<Json, CliError> {
    let place = require_durable(store)?;
    with_present_owner(|| match Owner::of(place, &PackArgs::default())? {
        Owner::Here(host) => {
            let stopped = block_on(control::stop_tenant(&host, name))?;
            let stopped = stopped.map_err(|error| refused(error.code(), &error.to_string(), &RunId::from("")))?;
            let stopped = serde_json::to_value(&stopped).map(Json::from);
            stopped.map_err(|error| CliError::internal(error.to_string()))
        }
        Owner::Other(folder) => {
            ask_for_result(folder, &OwnerRequest::StopTenant { name: name.to_owned() }, &RunId::from(""))
        }
    })
}

fn ask_to_operate(folder: &Path, operation: Operation) -> Result<Json, CliError> {
    ask_for_result(folder, &OwnerRequest::Operate { operation }, &RunId::from(""))
}

/// Sends a request about a run to the process that owns the store, and returns the result.
pub(crate) fn ask_for_result(folder: &Path, ask: &OwnerRequest, run: &RunId) -> Result<Json, CliError> {
    match control::ask_owner(folder, ask).map_err(|error| unreachable(&error))? {
        OwnerReply::Operated { result } => Ok(result),
        OwnerReply::Done { .. } => Err(CliError::internal("the process that owns the store sent an unexpected reply")),
        OwnerReply::Refused { code, message } => Err(refused(&code, &message, run)),
    }
}

/// The name, the media type and the metadata of a file to store.
pub(crate) struct FileAbout {
    pub(crate) name: String,
    pub(crate) mime: Option<String>,
    pub(crate) metadata: Json,
}

/// Stores a file of a tenant. Returns the file value that flows receive. A small file is stored at once, a large one in
/// parts.
pub(crate) fn put(
    store: &StoreArgs,
    tenant: &str,
    FileAbout { name, mime, metadata }: FileAbout,
    mut content: Content,
) -> Result<Json, CliError> {
    let owner = PresentOwner::of(require_durable(store)?, PackArgs::default())?;
    let operate = |deed| owner.operate(&Operation::File { tenant: tenant.to_owned(), deed });
    let mut part = content.part(MAX_PART)?;
    if part.len() < MAX_PART {
        return operate(FileOperation::Put { name, mime, metadata, content: STANDARD.encode(part) });
    }
    let begun = operate(FileOperation::Begin)?;
    let upload = begun.get("upload").and_then(Json::as_str).unwrap_or_default().to_owned();
    while !part.is_empty() {
        operate(FileOperation::Append { upload: upload.clone(), content: STANDARD.encode(&part) })?;
        part = content.part(MAX_PART)?;
    }
    operate(FileOperation::PutUpload { upload, name, mime, metadata })
}

/// Reads a file of a tenant in parts. Passes each part to `write`.
pub(crate) fn get(
    store: &StoreArgs,
    tenant: &str,
    id: &str,
    mut write: impl FnMut(&[u8]) -> Result<(), CliError>,
) -> Result<(), CliError> {
    let owner = PresentOwner::of(require_durable(store)?, PackArgs::default())?;
    let damaged = || CliError::internal("the process that owns the store sent an unexpected reply");
    let mut offset = 0;
    loop {
        let deed = FileOperation::Read { id: id.to_owned(), offset };
        let told = owner.operate(&Operation::File { tenant: tenant.to_owned(), deed })?;
        let content = told.get("content").and_then(Json::as_str).ok_or_else(damaged)?;
        let part = STANDARD.decode(content).map_err(|_| damaged())?;
        if part.is_empty() {
            return Ok(());
        }
        write(&part)?;
        offset += part.len() as u64;
    }
}

/// Returns the error for an input that does not fit the flow's schema, with each mismatch as a cause.
pub(crate) fn input_mismatch(error: &InputError) -> CliError {
    let InputError::Unfit { findings } = error else { return CliError::wrong(error.to_string()) };
    let problem = CliError::wrong("the input does not fit the flow's `inputSchema`");
    let problem = findings.iter().fold(problem, |problem, finding| problem.cause(finding));
    let is_file = findings.iter().any(|finding| finding.contains(r#"{"kind":"file""#));
    problem.hint(match is_file {
        true => {
            "`-i key=@PATH` passes a file value; pass its JSON with `-i key=\"$(cat PATH)\"` or `--input-file FILE`"
        }
        false => "pass members of the input with `-i key=value` or `--input-file FILE`",
    })
}
