//! Talks with a run that another process drives.

use std::{
    path::Path,
    sync::{Arc, atomic::Ordering},
    thread,
};

use flowcell::{
    Json, RunId,
    control::{self, OwnerReply, OwnerRequest},
};
use futures_util::future::BoxFuture;
use tokio::sync::oneshot;

use super::{Chat, End, PendingCommand, conversation::ChatEvent};
use crate::{
    cli_error::{CliError, Exit},
    owner::{ask_present_owner, block_on, refused, unreachable},
    terminal::Terminal,
};

/// Talks with a run through the store's owner, until the run ends or the person leaves.
pub(crate) fn talk(folder: &Path, run: &RunId, terminal: Terminal) -> Result<Exit, CliError> {
    let mut events = match control::watch_owner(folder, run).map_err(|error| unreachable(&error))? {
        (OwnerReply::Done { .. } | OwnerReply::Operated { .. }, events) => events,
        (OwnerReply::Refused { code, message }, _) => return Err(refused(&code, &message, run)),
    };
    let chat = Arc::new(Chat::new(terminal));
    chat.begin(run.as_str());
    chat.present.store(false, Ordering::Release);
    let (ended, end) = oneshot::channel();
    let listener = chat.clone();
    let listen = move || {
        let complete = events.by_ref().find_map(|event| listener.process_json(&event));
        // Sending fails only if the receiver has already left.
        let _ = ended.send(complete);
    };
    let started = thread::Builder::new().name("events".into()).spawn(listen);
    started.map_err(|error| CliError::internal("cannot read the events").because(&error))?;
    let (folder, run) = (folder.to_owned(), run.clone());
    let ask = move |command| -> PendingCommand {
        let (folder, asked) = (folder.clone(), OwnerRequest::Command { run: run.clone(), command });
        Box::pin(async move {
            let told = tokio::task::spawn_blocking(move || ask_present_owner(&folder, &asked)).await;
            match told.map_err(|error| error.to_string())?.map_err(|error| error.to_string())? {
                OwnerReply::Done { .. } | OwnerReply::Operated { .. } => Ok(()),
                OwnerReply::Refused { message, .. } => Err(message),
            }
        })
    };
    let on_input_end = || -> BoxFuture<'static, bool> { Box::pin(async { true }) };
    let end = block_on(chat.converse(end, &ask, &on_input_end))??;
    chat.show(&super::Shown::EndOfSpeech);
    Ok(match end {
        End::Left => {
            terminal.say(&terminal.paint().faint("left; the run continues"));
            Exit::Good
        }
        End::Run(Ok(Some(status))) if status == "succeeded" => Exit::Good,
        End::Run(Ok(Some(status))) => {
            terminal.say(&format!("the run has ended: {status}"));
            Exit::Failed
        }
        End::Run(_) => return Err(CliError::internal("the process that drives the run no longer sends its events")),
    })
}

impl Chat {
    /// Processes an event. Returns the run's status if the run has ended.
    fn process_json(&self, event: &Json) -> Option<String> {
        let text = |name: &str| event.get(name).and_then(Json::as_str).unwrap_or_default();
        if text("type") == "watch:now" {
            self.present.store(true, Ordering::Release);
        }
        let event = ChatEvent { kind: text("type"), run: text("runId"), data: event };
        self.process(&event);
        self.state.lock().conversation.ended.then(|| text("status").to_owned())
    }
}
