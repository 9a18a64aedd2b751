//! `flowcell jobs`: shows, steers and executes jobs, which act on all runs of a filter.

use std::{sync::Arc, time::Duration};

use clap::{Args, Subcommand};
use flowcell::{
    Host,
    jobs::{Job, JobCommand, JobState, operation::JobOperation, worker::JobWorker},
    tenants::{callers::Callers, operation::Operation},
};
use serde::de::DeserializeOwned;

use crate::{
    arguments::shell_word,
    cli_error::{CliError, Exit},
    options::{PackArgs, TenantArgs},
    output::{put, put_json},
    owner::{PresentOwner, block_on, require_durable, unreadable},
    session::interrupt::{Signal, Signals},
    terminal::{Terminal, inert},
};

/// The interval between two looks at a job that another process executes.
const LOOK_INTERVAL: Duration = Duration::from_millis(200);
/// The interval between two lines about the progress of a job.
const PROGRESS_INTERVAL: Duration = Duration::from_secs(2);

/// Commands for jobs.
#[derive(Subcommand)]
pub(crate) enum JobsCommand {
    /// List jobs, the latest first
    List(ListArgs),
    /// Show a job with its progress
    Show(ShowArgs),
    /// Pause a job
    Pause(JobArgs),
    /// Resume a paused job, or go on with a job that no process executes, and follow it
    Resume(JobArgs),
    /// Cancel a job; runs that it has acted on stay as they are
    Cancel(JobArgs),
}

/// Arguments of `flowcell jobs list`.
#[derive(Args)]
pub(crate) struct ListArgs {
    /// Print the list as JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    of: TenantArgs,
}

/// Arguments of `flowcell jobs show`.
#[derive(Args)]
pub(crate) struct ShowArgs {
    /// Print the job as JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    job: JobArgs,
}

/// A job of a tenant.
#[derive(Args)]
pub(crate) struct JobArgs {
    /// The id of the job
    #[arg(value_name = "JOB")]
    id: String,
    #[command(flatten)]
    of: TenantArgs,
}

pub(super) fn execute(command: JobsCommand, terminal: Terminal) -> Result<Exit, CliError> {
    match command {
        JobsCommand::List(args) => {
            let jobs: Vec<Job> = JobClient::open(&args.of)?.ask(JobOperation::List)?;
            match args.json {
                true => put_json(&jobs)?,
                false => put(&jobs.iter().map(|job| line(job) + "\n").collect::<String>())?,
            }
            Ok(Exit::Good)
        }
        JobsCommand::Show(ShowArgs { json, job: JobArgs { id, of } }) => {
            let job: Job = JobClient::open(&of)?.ask(JobOperation::Show { id })?;
            if json {
                put_json(&job)?
            } else {
                put(&details(&job))?
            }
            Ok(Exit::Good)
        }
        JobsCommand::Pause(args) => steer(args, JobCommand::Pause, terminal),
        JobsCommand::Cancel(args) => steer(args, JobCommand::Cancel, terminal),
        JobsCommand::Resume(JobArgs { id, of }) => {
            let client = JobClient::open(&of)?;
            let job: Job = client.ask(JobOperation::Steer { id, command: JobCommand::Resume })?;
            client.follow(job, false, terminal)
        }
    }
}

fn steer(args: JobArgs, command: JobCommand, terminal: Terminal) -> Result<Exit, CliError> {
    let job: Job = JobClient::open(&args.of)?.ask(JobOperation::Steer { id: args.id, command })?;
    terminal.say(&line(&job));
    Ok(Exit::Good)
}

/// Sends requests about the jobs of a tenant to the owner of the store: this process or another one.
pub(super) struct JobClient<'a> {
    owner: PresentOwner<'a>,
    of: &'a TenantArgs,
}

impl<'a> JobClient<'a> {
    /// Opens the store. If another process owns it, that process gets the requests.
    pub(super) fn open(of: &'a TenantArgs) -> Result<JobClient<'a>, CliError> {
        Ok(JobClient { owner: PresentOwner::of(require_durable(&of.store)?, PackArgs::default())?, of })
    }

    /// Sends a request, and returns its result.
    pub(super) fn ask<T: DeserializeOwned>(&self, deed: JobOperation) -> Result<T, CliError> {
        let told = self.owner.operate(&Operation::Job { tenant: self.of.tenant.clone(), request: deed })?;
        serde_json::from_str(&told.to_text())
            .map_err(|error| CliError::internal("the owner of the store sent an unexpected reply").because(&error))
    }

    /// Follows a job until it has ended or is paused, and prints it, with `json` as JSON. If no other process owns the
    /// store, this process executes the job.
    pub(super) fn follow(&self, job: Job, json: bool, terminal: Terminal) -> Result<Exit, CliError> {
        let (job, signal) = block_on(async {
            match self.owner.host() {
                Some(host) => self.execute(&host, &job.id, terminal).await,
                None => self.watch(job, terminal).await,
            }
        })??;
        if json {
            put_json(&job)?
        } else {
            put(&details(&job))?
        }
        Ok(match signal {
            Some(signal) => signal.exit(),
            None if job.state == JobState::Done && job.failed == 0 => Exit::Good,
            None => Exit::Failed,
        })
    }

    /// Returns true if this process executes the job, because no other process owns the store. A shared store has no
    /// owner.
    pub(super) fn executes(&self) -> bool {
        self.owner.host().is_some_and(|host| host.shared().is_none())
    }

    fn show(&self, id: &str) -> Result<Job, CliError> {
        self.ask(JobOperation::Show { id: id.to_owned() })
    }

    /// Executes a job in this process. A signal pauses it.
    async fn execute(&self, host: &Host, id: &str, terminal: Terminal) -> Result<(Job, Option<Signal>), CliError> {
        let mut signals = listen()?;
        let callers = Callers::of(host).map_err(|error| unreadable(&error))?;
        let worker = JobWorker::new(host.clone(), Arc::new(callers));
        let tenant = self.of.tenant();
        let mut executing = std::pin::pin!(async {
            loop {
                let job = worker.execute(&tenant, id).await;
                let job = job.map_err(|error| CliError::internal(error.to_string()))?;
                if job.state != JobState::Running {
                    return Ok::<Job, CliError>(job);
                }
                // Another process on the shared store executes the job.
                tokio::time::sleep(LOOK_INTERVAL).await;
            }
        });
        loop {
            tokio::select! {
                job = &mut executing => return Ok((job?, None)),
                Some(signal) = signals.next() => {
                    let paused: Job =
                        self.ask(JobOperation::Steer { id: id.to_owned(), command: JobCommand::Pause })?;
                    terminal.say(&format!("paused; go on with `flowcell jobs resume {}`", shell_word(&paused.id)));
                    // The present batch ends first.
                    return Ok((executing.await?, Some(signal)));
                }
                () = tokio::time::sleep(PROGRESS_INTERVAL) => self.say_progress(&self.show(id)?, terminal),
            }
        }
    }

    /// Watches a job that the owner of the store executes. After a signal the job goes on. If the owner ends and this
    /// process becomes the owner, it executes the job.
    async fn watch(&self, mut job: Job, terminal: Terminal) -> Result<(Job, Option<Signal>), CliError> {
        let mut signals = listen()?;
        let mut said = tokio::time::Instant::now();
        while job.state == JobState::Running {
            tokio::select! {
                Some(signal) = signals.next() => {
                    terminal.say(&format!(
                        "the job goes on in the process that owns the store; `flowcell jobs show {id}` shows it, and \
                         `flowcell jobs cancel {id}` cancels it", id = shell_word(&job.id)
                    ));
                    return Ok((job, Some(signal)));
                }
                () = tokio::time::sleep(LOOK_INTERVAL) => job = self.show(&job.id)?,
            }
            if let Some(host) = self.owner.host().filter(|_| job.state == JobState::Running) {
                return self.execute(&host, &job.id, terminal).await;
            }
            if said.elapsed() >= PROGRESS_INTERVAL {
                said = tokio::time::Instant::now();
                self.say_progress(&job, terminal);
            }
        }
        Ok((job, None))
    }

    fn say_progress(&self, job: &Job, terminal: Terminal) {
        if terminal.watched {
            terminal.say(&terminal.paint().faint(&line(job)));
        }
    }
}

fn listen() -> Result<Signals, CliError> {
    Signals::listen().map_err(|error| CliError::internal("cannot listen for signals").because(&error))
}

fn state(job: &Job) -> String {
    serde_json::to_value(job.state).ok().and_then(|state| state.as_str().map(str::to_owned)).unwrap_or_default()
}

/// Describes a job in one line.
fn line(job: &Job) -> String {
    let expected = if job.expected_more { format!("{}+", job.expected) } else { job.expected.to_string() };
    let reason = job.reason.as_ref().map(|reason| format!("  {}", inert(&reason.code))).unwrap_or_default();
    let skipped: u64 = job.skipped.values().sum();
    let (id, action, state) = (&job.id, job.request.action.name(), state(job));
    format!(
        "{id}  {action:7}  {state:9}  {} of {expected} matched, {} done, {skipped} skipped, {} failed{reason}",
        job.matched, job.done, job.failed
    )
}

/// Describes a job with its reasons and failures.
fn details(job: &Job) -> String {
    let mut text = line(job) + "\n";
    if let Some(reason) = &job.reason {
        text.push_str(&format!("  {}: {}\n", inert(&reason.code), inert(&reason.message)));
    }
    for (code, runs) in &job.skipped {
        text.push_str(&format!("  skipped {runs}: {}\n", inert(code)));
    }
    for failure in &job.errors {
        let (code, message) = (inert(&failure.reason.code), inert(&failure.reason.message));
        text.push_str(&format!("  failed {}: {code}: {message}\n", inert(failure.run.as_str())));
    }
    if job.failed > job.errors.len() as u64 {
        text.push_str(&format!("  failed {} more; in all:\n", job.failed - job.errors.len() as u64));
        for (code, runs) in &job.failures {
            text.push_str(&format!("    {runs}: {}\n", inert(code)));
        }
    }
    if job.more {
        let most = job.request.max_runs;
        text.push_str(&format!("  more runs match: the job has ended at its maximum of {most} runs\n"));
    }
    text
}
