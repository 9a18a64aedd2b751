//! The inbox: messages to runs that another process drives.
//!
//! The sender chooses the id of a message, and the store keeps a message with the same id once for a run. The process
//! that drives the run delivers the message. The commit of the unit that the message causes also records its delivery,
//! so a crash neither loses the message nor delivers it twice.

use std::{
    cell::RefCell,
    collections::{HashMap, HashSet},
    rc::Rc,
    sync::{Arc, Weak},
    time::{Duration, Instant},
};

use flowcell_contract::{RunId, Tenant};
use futures_util::future::BoxFuture;
use tokio::task::LocalSet;

use super::{
    Shared, SharedStore,
    connection::{Connection, SqlError, args},
    values::{hash, text, unwritable},
    worker::Worker,
    writer,
};
use crate::{
    command::{HubError, RunCommand, Stored},
    limits::{INBOX_PATIENCE_MS, INBOX_POLL_MS},
    ports::{Inbox, Message, StoreError},
    run::{FlowRunner, OpenError, RunOptions},
    world::World,
};

/// The channel by which PostgreSQL announces messages.
const CHANNEL: &str = "flowcell_inbox";
/// Maximum number of messages of one read.
const PAGE: u64 = 64;
/// The outcome of a message.
type Outcome = Result<(), HubError>;

/// A message without an outcome.
struct Waiting {
    number: u64,
    tenant: Tenant,
    run: RunId,
    command: RunCommand,
    /// True if this process drives the run.
    mine: bool,
}

impl Inbox for SharedStore {
    fn is_shared(&self) -> bool {
        true
    }

    fn send(&self, tenant: &Tenant, run: &RunId, message: Message) -> BoxFuture<'static, Result<String, StoreError>> {
        let (tenant, run) = (tenant.clone(), run.clone());
        let answer = self.worker.begin(async move |shared: &Arc<Shared>| {
            let began = Instant::now();
            writer::write(shared, async |connection| post(connection, &tenant, &run, &message).await).await?;
            let look = async |connection: &mut Connection| outcome(connection, &tenant, &run, &message.id).await;
            loop {
                if let Some(outcome) = writer::read(shared, look).await? {
                    return Ok(outcome);
                }
                if began.elapsed() > Duration::from_millis(INBOX_PATIENCE_MS) {
                    return Err(SqlError::Transient("the message is stored, but no process has read it yet".into()));
                }
                tokio::time::sleep(Duration::from_millis(INBOX_POLL_MS / 4)).await;
            }
        });
        Box::pin(async move { Ok(answer.await.map_err(|_| StoreError::unavailable("the store is closed"))??) })
    }
}

/// The tenants whose messages this process delivers. All of them share one task and one connection: a connection for each
/// tenant would leave none for the rest of the store.
#[derive(Default)]
pub(super) struct Served {
    /// The worlds of each tenant, as long as their owners keep them.
    worlds: HashMap<Tenant, Vec<Weak<World>>>,
    is_running: bool,
}

impl Served {
    /// Returns a world of a tenant.
    fn world(&self, tenant: &Tenant) -> Option<Arc<World>> {
        self.worlds.get(tenant)?.iter().find_map(Weak::upgrade)
    }

    /// Drops the worlds without owners. Returns false if none is left, and records that the task ends.
    fn goes_on(&mut self) -> bool {
        self.worlds.retain(|_, worlds| {
            worlds.retain(|world| world.strong_count() > 0);
            !worlds.is_empty()
        });
        self.is_running = !self.worlds.is_empty();
        self.is_running
    }
}

/// Delivers messages of other processes to the runs of this one. Records messages to runs without a driver in their
/// journals. Continues until `world` is dropped.
pub(super) fn serve(world: &Arc<World>, worker: &Worker) -> Result<(), StoreError> {
    let failed = |error: std::io::Error| StoreError(error.to_string().into());
    let mut served = worker.shared().served.lock();
    served.worlds.entry(world.tenant.clone()).or_default().push(Arc::downgrade(world));
    if served.is_running {
        return Ok(());
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(failed)?;
    let (thread, worker) = (std::thread::Builder::new().name("flowcell-inbox".into()), worker.clone());
    thread.spawn(move || LocalSet::new().block_on(&runtime, deliver(worker))).map_err(failed)?;
    served.is_running = true;
    Ok(())
}

/// Delivers messages as long as a tenant has a world.
async fn deliver(worker: Worker) {
    let under_way = Rc::<RefCell<HashSet<u64>>>::default();
    let shared = worker.shared().clone();
    let mut listener = shared.connections.listen(CHANNEL).await;
    while !shared.queue.is_closed() && shared.served.lock().goes_on() {
        let owner = shared.claims.owner();
        // After an error, the next round reads the messages.
        let found = worker.read(async move |connection| waiting(connection, owner).await);
        let is_readable = found.is_ok();
        for message in found.unwrap_or_default() {
            let Some(world) = shared.served.lock().world(&message.tenant) else { continue };
            if under_way.borrow_mut().insert(message.number) {
                let (worker, under_way) = (worker.clone(), under_way.clone());
                tokio::task::spawn_local(async move {
                    let number = message.number;
                    deliver_message(world, &worker, message).await;
                    under_way.borrow_mut().remove(&number);
                });
            }
        }
        let poll = tokio::time::sleep(Duration::from_millis(INBOX_POLL_MS));
        match &mut listener {
            Some(listener) if is_readable => tokio::select! {
                () = poll => {}
                received = listener.recv() => if received.is_err() {
                    tokio::time::sleep(Duration::from_millis(INBOX_POLL_MS)).await;
                },
            },
            _ => poll.await,
        }
    }
}

/// Delivers a message to the driver of the run in this process, or records it in a run without a driver.
async fn deliver_message(world: Arc<World>, worker: &Worker, message: Waiting) {
    let Waiting { number, tenant, run, command, mine } = message;
    let outcome = match world.hubs.get(&tenant, &run) {
        Some(hub) => hub.deliver(number, command).await,
        // The driver is about to start or to stop.
        None if mine => return,
        None => match FlowRunner::resume(world.clone(), run, RunOptions::default()) {
            Ok(runner) => runner.send_message(command, Some(number)).await,
            Err(OpenError::Unknown(_)) => Err(HubError::RunEnded),
            Err(_) => return,
        },
    };
    // The commit of the unit records an accepted message. A run that seems to have ended may be lost to another
    // process, which then delivers the message.
    if matches!(outcome, Ok(()) | Err(HubError::RunEnded)) {
        return;
    }
    let Ok(outcome) = text(&outcome) else { return };
    let recorded = worker.write(async move |connection| {
        let sql = "UPDATE flowcell_inbox SET outcome = ? WHERE id = ? AND outcome IS NULL";
        connection.run(sql, args![outcome.clone(), number]).await
    });
    if let Err(error) = recorded {
        tracing::warn!("cannot record the outcome of a message: {error}");
    }
}

/// Stores a message once, even if the sender repeats it.
async fn post(connection: &mut Connection, tenant: &Tenant, run: &RunId, message: &Message) -> Result<(), SqlError> {
    let Message { id, request } = message;
    let sql = "SELECT id FROM flowcell_inbox WHERE tenant = ? AND hash = ? AND message = ?";
    if connection.row(sql, args![tenant.as_str(), hash(run.as_str()), id.as_str()]).await?.is_some() {
        return Ok(());
    }
    let now = connection.now().await?;
    let row = args![tenant.as_str(), hash(run.as_str()), run.as_str(), id.as_str(), request.as_str(), now];
    let after = connection.dialect().or_leave("tenant, hash, message");
    connection.insert("flowcell_inbox (tenant, hash, run, message, body, put_at)", vec![row], &after).await?;
    if let Some(tell) = connection.dialect().pick(None, Some("SELECT pg_notify('flowcell_inbox', '')")) {
        connection.rows(tell, args![]).await?;
    }
    Ok(())
}

/// Reads the outcome of a message, as JSON. If the run has ended without an outcome for the message, the outcome is
/// the error `RunEnded`. `None`: there is no outcome yet.
async fn outcome(
    connection: &mut Connection,
    tenant: &Tenant,
    run: &RunId,
    message: &str,
) -> Result<Option<String>, SqlError> {
    if let Some(outcome) = recorded(connection, tenant, run, message).await? {
        return Ok(Some(outcome));
    }
    let sql = "SELECT id FROM flowcell_runs WHERE tenant = ? AND hash = ? AND standing IN ('active', 'parked')";
    if connection.row(sql, args![tenant.as_str(), hash(run.as_str())]).await?.is_some() {
        return Ok(None);
    }
    // The run may have ended with this message since the first read.
    if let Some(outcome) = recorded(connection, tenant, run, message).await? {
        return Ok(Some(outcome));
    }
    text(&Outcome::Err(HubError::RunEnded)).map(Some)
}

/// Reads the recorded outcome of a message.
async fn recorded(
    connection: &mut Connection,
    tenant: &Tenant,
    run: &RunId,
    message: &str,
) -> Result<Option<String>, SqlError> {
    let sql = "SELECT outcome FROM flowcell_inbox WHERE tenant = ? AND hash = ? AND message = ?";
    let row = connection.row(sql, args![tenant.as_str(), hash(run.as_str()), message]).await?;
    Ok(row.map(|row| row.maybe_text(0)).transpose()?.flatten())
}

/// Reads messages to runs that this process drives, or that have no driver.
async fn waiting(connection: &mut Connection, owner: i64) -> Result<Vec<Waiting>, SqlError> {
    let sql = "SELECT i.id, i.tenant, i.run, i.body, r.owner FROM flowcell_inbox i
        JOIN flowcell_runs r ON r.tenant = i.tenant AND r.hash = i.hash
        WHERE i.outcome IS NULL AND r.standing IN ('active', 'parked')
            AND (r.owner IS NULL OR r.owner = ? OR r.owner NOT IN (SELECT id FROM flowcell_owners WHERE until > {now}))
        ORDER BY i.id LIMIT ?";
    let mut found = Vec::new();
    for row in connection.rows(sql, args![owner, PAGE]).await? {
        found.push(Waiting {
            number: row.number(0)?,
            tenant: Tenant::from(row.text(1)?.as_str()),
            run: RunId::from(row.text(2)?),
            command: serde_json::from_str::<Stored>(&row.text(3)?).map_err(unwritable)?.0,
            mine: row.maybe_number(4)? == Some(owner as u64),
        });
    }
    Ok(found)
}
