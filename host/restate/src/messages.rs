//! Messages from the inbox to the drivers of this process.

use std::{
    sync::{Arc, Weak},
    time::Duration,
};

use flowcell_runtime::{
    FlowRunner, HubError, OpenError, RunOptions, World,
    ports::{StoreError, StoreErrorKind},
    remote,
};
use tokio::runtime::Handle;

use crate::{tree::Tree, wire::Mail};

/// The first pause and the longest pause between two tries to deliver a message.
const RETRY_PAUSES: (Duration, Duration) = (Duration::from_millis(2), Duration::from_millis(200));

/// Returns the stored form of an outcome.
pub(crate) fn outcome(outcome: &Result<(), HubError>) -> String {
    serde_json::to_string(outcome).unwrap_or_default()
}

/// Delivers the messages of a tree on a thread that may wait.
pub(crate) fn begin(runtime: &Handle, world: Weak<World>, tree: Arc<Tree>) {
    let on = runtime.clone();
    drop(runtime.spawn_blocking(move || on.block_on(deliver_all(world, tree))));
}

/// Delivers the messages of a tree, one after another, while this process has its invocation.
async fn deliver_all(world: Weak<World>, tree: Arc<Tree>) {
    let mut pause = RETRY_PAUSES.0;
    loop {
        let world = world.upgrade();
        let next = {
            let mut state = tree.lock();
            let next = state.session.and(world).zip(state.mail.front().cloned());
            state.is_delivering = next.is_some();
            next
        };
        let Some((world, mail)) = next else { return };
        let number = mail.number;
        let Some(told) = deliver(&world, &tree, mail).await else {
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(RETRY_PAUSES.1);
            continue;
        };
        pause = RETRY_PAUSES.0;
        let mut state = tree.lock();
        let was_waiting = state.mail.iter().any(|mail| mail.number == number);
        state.mail.retain(|mail| mail.number != number);
        // The commit of the unit that a message caused has its outcome, too.
        if was_waiting {
            state.outcomes.push((number, outcome(&told)));
        }
        drop(state);
        tree.changed.notify_one();
    }
}

/// Delivers a message to the driver of its run, or records it in a run without a driver. Returns `None` if the driver is
/// about to start or to stop, or if the store does not answer at present.
async fn deliver(world: &Arc<World>, tree: &Tree, mail: Mail) -> Option<Result<(), HubError>> {
    let Mail { number, post } = mail;
    let command = match remote::parse(&post.request) {
        Ok(command) => command,
        Err(error) => return Some(Err(HubError::AnswerRefused(error.to_string()))),
    };
    if let Some(hub) = world.hubs.get(&tree.key.0, &post.run) {
        return match hub.deliver(number, command).await {
            // The driver stops at this moment.
            Err(HubError::RunEnded) => None,
            told => Some(told),
        };
    }
    match FlowRunner::resume(world.clone(), post.run, RunOptions::default()) {
        Ok(runner) => Some(runner.send_message(command, Some(number)).await),
        Err(OpenError::Driven(_)) => None,
        Err(OpenError::Store(error)) if is_temporary(&error) => None,
        Err(OpenError::Unknown(_)) => Some(Err(HubError::RunEnded)),
        Err(error) => Some(Err(HubError::AnswerRefused(error.to_string()))),
    }
}

/// Returns true if the same work may succeed later.
fn is_temporary(error: &StoreError) -> bool {
    matches!(error.kind(), StoreErrorKind::Outage | StoreErrorKind::Unavailable | StoreErrorKind::Conflict)
}
