//! `flowcell reload` and SIGHUP: let a process read packs, flows, triggers, its certificate and its files of
//! notifications and of the sign-in again.

use std::{
    fmt::Write as _,
    io::{self, IsTerminal},
    sync::Arc,
};

use clap::Args;
use flowcell::{
    RunId,
    control::OwnerRequest,
    reload::{CertificateRead, NotificationsRead, Reloaded, Reloader, SignInRead},
    shape::time,
};
use rustix::process::{self, getpid, kill_process};
use tokio::signal::unix::{SignalKind, signal};

use super::packs::shown;
use crate::{
    cli_error::{CliError, Exit},
    options::{StoreArgs, StoreLocation},
    output::{put, put_json},
    owner::{ask_for_result, require_durable},
    terminal::{Terminal, counted, inert},
};

/// Arguments of `flowcell reload`.
#[derive(Args)]
pub(crate) struct ReloadArgs {
    /// Print the result as JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    store: StoreArgs,
}

pub(super) fn execute(args: &ReloadArgs) -> Result<Exit, CliError> {
    let StoreLocation::Folder(folder) = require_durable(&args.store)? else {
        return Err(CliError::wrong("the processes of a shared store cannot be asked to reload")
            .hint("send SIGHUP to each of them (`kill -HUP PID`) or `POST /v1/admin/reload`; posted flows and pushed packs need no reload"));
    };
    let result = ask_for_result(folder, &OwnerRequest::Reload, &RunId::from("")).map_err(|error| {
        error.hint("`flowcell reload` needs a process that owns the store, such as `flowcell serve`")
    })?;
    let reloaded: Reloaded = serde_json::from_str(&result.to_text()).map_err(|error| {
        CliError::internal("the process that owns the store sent an unexpected reply").because(&error)
    })?;
    match args.json {
        true => put_json(&reloaded)?,
        false => put(&describe(&reloaded))?,
    }
    if reloaded.is_good() { Ok(Exit::Good) } else { Ok(Exit::Wrong) }
}

/// Reloads the process at each SIGHUP from now on, and prints what has changed. If the terminal of the process was
/// closed, SIGHUP stops the process as SIGTERM does. Runs on the caller's tokio runtime.
pub(super) fn reload_at_hangup(reloader: Arc<Reloader>, terminal: Terminal) -> Result<(), CliError> {
    let mut hangups = signal(SignalKind::hangup())
        .map_err(|error| CliError::internal("cannot listen for signals").because(&error))?;
    let had_terminals = terminals();
    tokio::spawn(async move {
        while hangups.recv().await.is_some() {
            // A terminal that was closed is no longer a terminal.
            if had_terminals.iter().zip(terminals()).any(|(before, now)| *before && !now) {
                _ = kill_process(getpid(), process::Signal::TERM);
                return;
            }
            let reloaded = reloader.reload().await;
            let text = describe(&reloaded);
            match reloaded.is_good() {
                true => terminal.say(text.trim_end()),
                false => terminal.warn(text.trim_end()),
            }
        }
    });
    Ok(())
}

/// Returns whether standard input, output and error are terminals.
fn terminals() -> [bool; 3] {
    [io::stdin().is_terminal(), io::stdout().is_terminal(), io::stderr().is_terminal()]
}

/// Describes a reload for people, in several lines.
fn describe(reloaded: &Reloaded) -> String {
    let mut text = String::new();
    for error in &reloaded.errors {
        line(&mut text, "error", error);
    }
    if let Some(packs) = &reloaded.packs {
        let (added, replaced, gone) = (packs.added.len(), packs.replaced.len(), packs.gone.len());
        line(
            &mut text,
            "packs",
            &format!("{added} added, {replaced} replaced, {gone} gone, {} unchanged", packs.unchanged),
        );
        for (word, packs) in [("added", &packs.added), ("replaced", &packs.replaced), ("gone", &packs.gone)] {
            packs.iter().for_each(|pack| line(&mut text, &format!("  {word}"), &shown(pack)));
        }
    }
    if let Some(flows) = &reloaded.flows {
        let (added, changed, gone) = (flows.added.len(), flows.changed.len(), flows.gone.len());
        let (checked, broken) = (flows.checked, flows.broken.len());
        let unchecked = match flows.unchecked {
            0 => String::new(),
            more => format!(", {more} more not checked"),
        };
        line(
            &mut text,
            "flows",
            &format!("{added} added, {changed} changed, {gone} gone; {checked} checked, {broken} broken{unchecked}"),
        );
        for (word, files) in [("added", &flows.added), ("changed", &flows.changed), ("gone", &flows.gone)] {
            files.iter().for_each(|file| line(&mut text, &format!("  {word}"), file));
        }
        flows.broken.iter().for_each(|flow| line(&mut text, "  broken", &format!("{}: {}", flow.flow, flow.error)));
    }
    if let Some(triggers) = reloaded.triggers {
        line(&mut text, "triggers", &triggers.to_string());
    }
    if let Some(CertificateRead { replaced, valid_until }) = reloaded.certificate {
        let changed = if replaced { "replaced" } else { "unchanged" };
        line(&mut text, "certificate", &format!("{changed}, valid until {}", time(valid_until)));
    }
    if let Some(NotificationsRead { targets }) = reloaded.notifications {
        line(&mut text, "notifications", &counted(targets, "target"));
    }
    if let Some(SignInRead { issuers }) = reloaded.sign_in {
        line(&mut text, "sign-in", &counted(issuers, "issuer"));
    }
    text
}

/// Writes a word and a value, whose further lines are indented.
fn line(text: &mut String, word: &str, value: &str) {
    // Writing to a string does not fail.
    let _ = writeln!(text, "{word}: {}", inert(value));
}
