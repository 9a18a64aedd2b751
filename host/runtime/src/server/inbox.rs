//! What is asked of runs that another process drives: rows that wait until the run has taken them in.
//!
//! A message has an id that its sender has chosen, and is kept once for a run however often it is sent. The process that
//! drives the run hands it over; that it was taken in is written with the unit that it led to, so that a crash in between
//! neither loses it nor delivers it twice.

use std::{
    cell::RefCell,
    collections::HashSet,
    rc::Rc,
    sync::{Arc, Weak},
    time::{Duration, Instant},
};

use flowcell_contract::{RunId, Tenant};
use tokio::task::LocalSet;

use super::{
    Door, ServerStore, Shared, beside,
    link::{Link, Trouble, args},
    values::{hash, text, unwritable},
    writer,
};
use crate::{
    command::{HubError, RunCommand, Stored},
    limits::{INBOX_PATIENCE_MS, INBOX_POLL_MS},
    ports::StoreError,
    run::{FlowRunner, OpenError, RunOptions},
    world::{World, random},
};

/// What PostgreSQL tells other processes of messages through.
const CHANNEL: &str = "flowcell_inbox";
/// Messages that are looked at together.
const PAGE: u64 = 64;
/// What came of something that was asked.
pub type Outcome = Result<(), HubError>;

/// A message that waits.
struct Waiting {
    number: u64,
    tenant: Tenant,
    run: RunId,
    command: RunCommand,
    /// This process drives the run.
    mine: bool,
}

impl ServerStore {
    /// An id for a message that is sent once.
    pub fn new_message(&self) -> String {
        format!("{:016x}{:016x}", random(), random())
    }

    /// Asks something of a run that another process drives, and waits for what comes of it, at most
    /// [`INBOX_PATIENCE_MS`]. The same message, by its id, is taken in once; an id has at most 255 bytes. It is kept if
    /// nobody takes it in meanwhile, and an error says so.
    pub async fn ask(
        &self,
        tenant: &Tenant,
        run: &RunId,
        message: &str,
        command: &RunCommand,
    ) -> Result<Outcome, StoreError> {
        let body = text(&Stored(command.clone())).map_err(StoreError::from)?;
        let (tenant, run, message) = (tenant.clone(), run.clone(), message.to_owned());
        let answer = self.door.begin(async move |shared: &Arc<Shared>| {
            let began = Instant::now();
            writer::read(shared, async |link| post(link, &tenant, &run, &message, &body).await).await?;
            loop {
                let told = writer::read(shared, async |link| outcome(link, &tenant, &run, &message).await).await?;
                if let Some(outcome) = told {
                    return Ok(outcome);
                }
                if began.elapsed() > Duration::from_millis(INBOX_PATIENCE_MS) {
                    return Err(Trouble::Passing("the message is kept, and nobody has taken it in yet".into()));
                }
                tokio::time::sleep(Duration::from_millis(INBOX_POLL_MS / 4)).await;
            }
        });
        answer.await.map_err(|_| StoreError("the store is closed".into()))?.map_err(StoreError::from)
    }

    /// Hands messages of other processes to the runs of this one, and records those for runs that nobody drives, for as
    /// long as the world is there.
    pub fn serve(&self, world: &Arc<World>) -> Result<(), StoreError> {
        let failed = |error: std::io::Error| StoreError(error.to_string().into());
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(failed)?;
        let deliverer = Deliverer { world: Arc::downgrade(world), door: self.door.clone(), under_way: Rc::default };
        let thread = std::thread::Builder::new().name("flowcell-inbox".into());
        let serving = move || LocalSet::new().block_on(&runtime, deliverer.run());
        thread.spawn(serving).map(drop).map_err(failed)
    }
}

/// Hands messages over.
struct Deliverer {
    world: Weak<World>,
    door: Door,
    /// Makes the set of messages that are being handed over, in the thread that has it.
    under_way: fn() -> Rc<RefCell<HashSet<u64>>>,
}

impl Deliverer {
    async fn run(self) {
        let under_way = (self.under_way)();
        let shared = self.door.shared().clone();
        let mut listener = shared.links.listen(CHANNEL).await;
        while !shared.queue.is_closed() && self.world.strong_count() > 0 {
            let owner = shared.claims.owner();
            // What cannot be read now is read the next time.
            let found = self.door.read(async move |link| waiting(link, owner).await).unwrap_or_default();
            for message in found {
                if under_way.borrow_mut().insert(message.number) {
                    let (world, door, under_way) = (self.world.clone(), self.door.clone(), under_way.clone());
                    tokio::task::spawn_local(async move {
                        let number = message.number;
                        hand_over(&world, &door, message).await;
                        under_way.borrow_mut().remove(&number);
                    });
                }
            }
            let poll = tokio::time::sleep(Duration::from_millis(INBOX_POLL_MS));
            match &mut listener {
                None => poll.await,
                Some(told) => tokio::select! { () = poll => {}, _ = told.recv() => {} },
            }
        }
    }
}

/// Hands a message to whoever drives the run in this process, or records it in the run if nobody does.
async fn hand_over(world: &Weak<World>, door: &Door, message: Waiting) {
    let Some(world) = world.upgrade() else { return };
    let Waiting { number, tenant, run, command, mine } = message;
    let outcome = match world.hubs.get(&tenant, &run) {
        Some(hub) => hub.deliver(number, command).await,
        // It is about to be driven, or not to be any more.
        None if mine => return,
        None => match FlowRunner::resume(world.clone(), run, RunOptions::default()) {
            Ok(runner) => runner.ask_as(command, Some(number)).await,
            Err(OpenError::Unknown(_)) => Err(HubError::RunEnded),
            Err(_) => return,
        },
    };
    // What was taken in says so already. A run that ended meanwhile may have been lost: then somebody else is asked.
    if matches!(outcome, Ok(()) | Err(HubError::RunEnded)) {
        return;
    }
    let Ok(told) = text(&outcome) else { return };
    let told = door.read(async move |link| {
        let sql = "UPDATE flowcell_inbox SET outcome = ? WHERE id = ? AND outcome IS NULL";
        link.run(sql, args![told.clone(), number]).await
    });
    if let Err(error) = told {
        tracing::warn!("what came of a message could not be told: {error}");
    }
}

/// Keeps a message, once.
async fn post(link: &mut Link, tenant: &Tenant, run: &RunId, message: &str, body: &str) -> Result<(), Trouble> {
    let sql = "SELECT id FROM flowcell_inbox WHERE tenant = ? AND hash = ? AND message = ?";
    if link.row(sql, args![tenant.as_str(), hash(run.as_str()), message]).await?.is_some() {
        return Ok(());
    }
    let now = beside::now(link).await?;
    let row = args![tenant.as_str(), hash(run.as_str()), run.as_str(), message, body, now];
    let after = link.dialect().or_leave("tenant, hash, message");
    link.insert("flowcell_inbox (tenant, hash, run, message, body, put_at)", vec![row], &after).await?;
    if let Some(tell) = link.dialect().pick(None, Some("SELECT pg_notify('flowcell_inbox', '')")) {
        link.rows(tell, args![]).await?;
    }
    Ok(())
}

/// What came of a message; none: nothing yet.
async fn outcome(link: &mut Link, tenant: &Tenant, run: &RunId, message: &str) -> Result<Option<Outcome>, Trouble> {
    if let Some(told) = told(link, tenant, run, message).await? {
        return Ok(Some(told));
    }
    let sql = "SELECT id FROM flowcell_runs WHERE tenant = ? AND hash = ? AND standing IN ('active', 'parked')";
    if link.row(sql, args![tenant.as_str(), hash(run.as_str())]).await?.is_some() {
        return Ok(None);
    }
    // The message may be what the run has ended with since it was looked for.
    Ok(Some(told(link, tenant, run, message).await?.unwrap_or(Err(HubError::RunEnded))))
}

/// What is recorded of a message.
async fn told(link: &mut Link, tenant: &Tenant, run: &RunId, message: &str) -> Result<Option<Outcome>, Trouble> {
    let sql = "SELECT outcome FROM flowcell_inbox WHERE tenant = ? AND hash = ? AND message = ?";
    let row = link.row(sql, args![tenant.as_str(), hash(run.as_str()), message]).await?;
    let told = row.map(|row| row.maybe_text(0)).transpose()?.flatten();
    told.map(|told| serde_json::from_str(&told).map_err(unwritable)).transpose()
}

/// Messages for runs that this process drives, or that nobody does.
async fn waiting(link: &mut Link, owner: i64) -> Result<Vec<Waiting>, Trouble> {
    let sql = "SELECT i.id, i.tenant, i.run, i.body, r.owner FROM flowcell_inbox i
        JOIN flowcell_runs r ON r.tenant = i.tenant AND r.hash = i.hash
        WHERE i.outcome IS NULL AND r.standing IN ('active', 'parked')
            AND (r.owner IS NULL OR r.owner = ? OR r.owner NOT IN (SELECT id FROM flowcell_owners WHERE until > {now}))
        ORDER BY i.id LIMIT ?";
    let mut found = Vec::new();
    for row in link.rows(sql, args![owner, PAGE]).await? {
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
