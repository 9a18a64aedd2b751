//! Commands to runs that another process drives.

use flowcell_contract::{RunId, Tenant};

use crate::{
    command::{HubError, RunCommand, Stored},
    ports::{Inbox, Message, StoreError},
    world::random,
};

/// Creates the id of a message that is sent once.
pub fn new_message_id() -> String {
    format!("{:016x}{:016x}", random(), random())
}

/// Reads the command of a message to a run.
pub fn parse(request: &str) -> Result<RunCommand, serde_json::Error> {
    serde_json::from_str::<Stored>(request).map(|stored| stored.0)
}

/// Sends a command to a run that another process drives, and waits for the outcome, at most
/// [`INBOX_PATIENCE_MS`](crate::limits::INBOX_PATIENCE_MS). The run applies a message with the same id once; an id
/// has at most 255 bytes.
pub async fn ask(
    inbox: &dyn Inbox,
    tenant: &Tenant,
    run: &RunId,
    id: &str,
    command: &RunCommand,
) -> Result<Result<(), HubError>, StoreError> {
    let unreadable = |error: serde_json::Error| StoreError(error.to_string().into());
    let request = serde_json::to_string(&Stored(command.clone())).map_err(unreadable)?;
    let message = Message { id: id.to_owned(), request };
    let outcome = inbox.send(tenant, run, message).await?;
    serde_json::from_str(&outcome).map_err(unreadable)
}
