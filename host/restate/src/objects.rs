//! The virtual objects of a run tree: the one that has its journal, and its inbox.
//!
//! A handler may run again from its beginning. It then gets the recorded results of what it did, so everything that it
//! does must follow from these: it folds what `ctx.run` returned, and each value of `ctx.run` says what comes next.

use std::{collections::HashMap, sync::Arc, time::Duration};

use flowcell_contract::{RunId, Tenant};
use flowcell_runtime::blocking::blocking;
use restate_sdk::{
    context::{DurableFuture, DurableFuturesUnordered, RequestTarget},
    prelude::*,
};

use serde_json::value::RawValue;

use crate::{
    invocation::Invocation,
    messages,
    recorded::{Recorded, head_key, page_key},
    shared::Shared,
    state::Versioned,
    tree::{Key, object_key, parse_key},
    wire::{
        Commit, Drive, Found, Head, INBOX, Mail, PageOfUnits, Post, RUN, ReadUnits, STATE, StateWrite, StoredUnit,
        Then, Writes, parse,
    },
};

/// The key of the state that is present while an invocation drives the tree.
const DRIVEN: &str = "driven";
/// The key of the state that shows that the run was removed.
const REMOVED: &str = "removed";
/// The bytes of units after which an answer has no further page.
const MAX_ANSWER_BYTES: usize = 2 << 20;
/// The time that a handler waits for facts alone before it also waits for messages.
const SHORT_WAIT: Duration = Duration::from_millis(2);
/// The pause before another invocation goes on with the tree of a cancelled one.
const CANCELLED_PAUSE: Duration = Duration::from_secs(1);
/// The maximum bytes of the messages without an outcome. All of them are one value of the state.
const MAX_WAITING_BYTES: usize = 8 << 20;
/// The number of outcomes that an inbox keeps.
const MAX_OUTCOMES: usize = 256;

/// The object with the journal of a run tree.
pub(crate) struct RunObject(pub(crate) Arc<Shared>);

#[restate_sdk::object(name = "FlowcellRun", lazy_state, client_visibility = "pub(crate)")]
impl RunObject {
    /// Drives the tree until it rests. An input that this version does not understand fails only the try, so that a process
    /// of another version takes it. The cluster would end an invocation whose input it cannot decode, and lose the run.
    #[handler]
    async fn drive(&self, ctx: ObjectContext<'_>, Json(input): Json<Box<RawValue>>) -> Result<(), HandlerError> {
        let input: Drive = parse(input.get())?;
        let key = parse_key(ctx.key()).ok_or_else(|| TerminalError::new("the key names no run"))?;
        if ctx.get::<bool>(REMOVED).await?.is_some() {
            return Ok(());
        }
        let mut recorded = Recorded::default();
        if let Some(Json(head)) = ctx.get::<Json<Head>>(&head_key(&key.1)).await? {
            recorded.heads.insert(key.1.clone(), head);
        } else if !input.first.is_empty() {
            recorded.read_heads(&ctx, &input.first).await?;
            recorded.add(&input.first);
            // Readers know the run from now on.
            recorded.publish(&ctx);
        }
        ctx.set(DRIVEN, true);
        let mut listener = None;
        let driven = self.drive_tree(&ctx, &key, &mut recorded, &input, &mut listener).await;
        let (then, invocation, pause) = match driven {
            Ok((then, invocation)) => (then, invocation, Duration::ZERO),
            // An operator has cancelled the invocation. Its facts stay, and another invocation goes on.
            Err(error) => {
                tracing::warn!(run = %key.1, "the invocation of the run was cancelled, and another one goes on: {error}");
                recorded.publish(&ctx);
                (Then::HandOver, None, CANCELLED_PAUSE)
            }
        };
        if let Some(listener) = listener {
            ctx.request::<_, ()>(RequestTarget::object(INBOX, ctx.key(), "unlisten"), listener).send();
        }
        if !recorded.is_listed {
            // Also after a crash: an invocation that ends leaves no change that lists do not show.
            let shared = &self.0;
            shared.index.add_all(&key.0, &recorded)?;
            blocking(|| shared.index.settle())?;
        }
        if let Some(invocation) = invocation {
            invocation.finish(then);
        }
        ctx.clear(DRIVEN);
        let again = |input: Drive| ctx.request::<_, ()>(RequestTarget::object(RUN, ctx.key(), "drive"), Json(input));
        let due = recorded.heads.get(&key.1).and_then(|head| head.status.due());
        match (then, due) {
            (Then::HandOver, _) => _ = again(Drive::default()).send_after(pause),
            (_, Some(due)) => {
                let left = Duration::from_millis(due.saturating_sub(self.0.now()));
                _ = again(Drive::default()).send_after(left);
            }
            _ => {}
        }
        Ok(())
    }

    /// Returns the head of a run.
    #[handler]
    async fn head(&self, ctx: SharedObjectContext<'_>, run: String) -> Result<Json<Found>, HandlerError> {
        let head = ctx.get::<Json<Head>>(&head_key(&RunId::from(run))).await?.map(|Json(head)| head);
        let driven = ctx.get::<bool>(DRIVEN).await?.is_some();
        Ok(Json(Found { head, driven }))
    }

    /// Returns a part of the journal of a run.
    #[handler]
    async fn units(
        &self,
        ctx: SharedObjectContext<'_>,
        Json(wanted): Json<ReadUnits>,
    ) -> Result<Json<PageOfUnits>, HandlerError> {
        let Some(Json(head)) = ctx.get::<Json<Head>>(&head_key(&wanted.run)).await? else {
            return Ok(Json(PageOfUnits { is_last: true, ..PageOfUnits::default() }));
        };
        let begin = head.pages.partition_point(|first| *first <= wanted.from).saturating_sub(1);
        let end = head.pages.len().min(begin.saturating_add(wanted.pages));
        let (mut page, mut next, mut bytes) = (PageOfUnits::default(), begin, 0);
        while next < end && bytes < MAX_ANSWER_BYTES {
            let key = page_key(&wanted.run, head.pages[next]);
            if let Some(Json(units)) = ctx.get::<Json<Vec<Box<RawValue>>>>(&key).await? {
                bytes += units.iter().map(|unit| unit.get().len()).sum::<usize>();
                page.units.extend(units);
            }
            next += 1;
        }
        page.is_last = next == head.pages.len();
        Ok(Json(page))
    }

    /// Removes the state of a tree. Its id cannot be used again.
    #[handler]
    async fn remove(&self, ctx: ObjectContext<'_>, _: Json<()>) -> Result<(), HandlerError> {
        ctx.clear_all();
        ctx.set(REMOVED, true);
        Ok(())
    }
}

impl RunObject {
    /// Drives a tree, commit by commit. Returns why it stopped, and the invocation of this process if the facts are not all
    /// those of an earlier try. Fails if an operator cancels the invocation. `listener` is the last awakeable that the
    /// inbox was offered.
    async fn drive_tree(
        &self,
        ctx: &ObjectContext<'_>,
        key: &Key,
        recorded: &mut Recorded,
        input: &Drive,
        listener: &mut Option<String>,
    ) -> Result<(Then, Option<Invocation>), TerminalError> {
        let mut invocation: Option<Invocation> = None;
        let mut mail = DurableFuturesUnordered::new();
        if input.mail {
            mail.push(RunObject::listen(ctx, listener));
        }
        loop {
            // Until a closure runs, the results of an earlier try of this invocation are replayed.
            while let Some(invocation) = &mut invocation {
                // Each wait for a message tells the cluster so. The next facts often follow at once.
                if tokio::time::timeout(SHORT_WAIT, invocation.ready()).await.is_ok() {
                    break;
                }
                tokio::select! {
                    biased;
                    () = invocation.ready() => break,
                    heard = mail.next(), if !mail.is_empty() => {
                        if let Some((_, heard)) = heard? {
                            let Json(heard) = heard?;
                            invocation.hear(heard);
                        }
                    }
                }
            }
            let (present, known) = (&mut invocation, &*recorded);
            let take = || async move {
                if present.is_none() {
                    let begun = Invocation::begin(&self.0, key, known, input).map_err(HandlerError::from)?;
                    present.insert(begun).ready().await;
                }
                match present {
                    Some(invocation) => Ok(Json(invocation.take().map_err(HandlerError::from)?)),
                    None => Err(TerminalError::new("the invocation has no driver").into()),
                }
            };
            let Json(mut commit) = ctx.run(take).name("commit").await?;
            recorded.read_heads(ctx, &commit.units).await?;
            let fitting = recorded.count_fitting(&commit.units);
            let kept = RunObject::write_state(ctx, &key.0, &commit.units[..fitting]).await?;
            if kept < commit.units.len() {
                commit.units.truncate(kept);
                commit = Commit { units: commit.units, then: Then::HandOver, ..Commit::default() };
                if let Some(invocation) = &mut invocation {
                    invocation.refuse_after(kept);
                }
            }
            recorded.add(&commit.units);
            let accepted = commit.units.iter().filter_map(|unit| unit.delivered);
            commit.outcomes.extend(accepted.map(|number| (number, messages::outcome(&Ok(())))));
            recorded.hear(&key.1, &commit.outcomes);
            let published = recorded.published();
            if let Some(invocation) = &mut invocation {
                let numbers = recorded.units[..published].iter().map(|unit| (unit.run.clone(), unit.next));
                invocation.acknowledge(recorded, &numbers.collect::<HashMap<_, _>>());
                recorded.forget(published);
            }
            if commit.publish || commit.then != Then::Continue {
                recorded.publish(ctx);
            }
            if !commit.outcomes.is_empty() {
                let outcomes = Json(commit.outcomes);
                ctx.request::<_, ()>(RequestTarget::object(INBOX, ctx.key(), "settle"), outcomes).send();
            }
            if commit.listen {
                mail.push(RunObject::listen(ctx, listener));
            }
            if commit.then != Then::Continue {
                return Ok((commit.then, invocation));
            }
        }
    }

    /// Writes the state that units write. Returns the number of units before the first one whose write is refused.
    async fn write_state(
        ctx: &ObjectContext<'_>,
        tenant: &Tenant,
        units: &[StoredUnit],
    ) -> Result<usize, TerminalError> {
        for (kept, unit) in units.iter().enumerate() {
            let Some(Writes { flow, writes }) = &unit.writes else { continue };
            let target = RequestTarget::object(STATE, object_key(tenant, flow), "write");
            if !ctx.request::<_, bool>(target, Json(writes.clone())).call().await? {
                return Ok(kept);
            }
        }
        Ok(units.len())
    }

    /// Offers an awakeable to the inbox, which resolves it with messages.
    fn listen<'a, 'c>(
        ctx: &'a ObjectContext<'c>,
        listener: &mut Option<String>,
    ) -> impl DurableFuture<Output = Result<Json<Vec<Mail>>, TerminalError>> + use<'a, 'c> {
        let (id, awakened) = ctx.awakeable::<Json<Vec<Mail>>>();
        *listener = Some(id.clone());
        ctx.request::<_, ()>(RequestTarget::object(INBOX, ctx.key(), "listen"), id).send();
        awakened
    }
}

/// The messages of a tree, in its inbox.
#[derive(Default, serde::Serialize, serde::Deserialize)]
struct Mailbox {
    /// The number of the last message.
    last: u64,
    /// The messages without an outcome.
    waiting: Vec<Mail>,
    /// The last outcomes, by the ids and numbers of their messages.
    outcomes: Vec<(String, u64, String)>,
    /// The awakeable of the invocation that drives the tree.
    listener: Option<String>,
}

const BOX: &str = "box";

/// The object with the inbox of a run tree.
pub(crate) struct InboxObject;

#[restate_sdk::object(name = "FlowcellInbox", client_visibility = "pub(crate)")]
impl InboxObject {
    /// Stores a message. Returns its number. A message with an id that the inbox knows is not stored again. Fails if too
    /// many messages wait.
    #[handler]
    async fn post(&self, ctx: ObjectContext<'_>, Json(post): Json<Post>) -> Result<u64, HandlerError> {
        let Json(mut kept) = ctx.get::<Json<Mailbox>>(BOX).await?.unwrap_or_default();
        if let Some(known) = kept.waiting.iter().find(|mail| mail.post.id == post.id && mail.post.run == post.run) {
            return Ok(known.number);
        }
        if let Some((_, number, _)) = kept.outcomes.iter().find(|(id, ..)| *id == post.id) {
            return Ok(*number);
        }
        let bytes = kept.waiting.iter().map(|mail| mail.post.request.len()).sum::<usize>() + post.request.len();
        if bytes > MAX_WAITING_BYTES && !kept.waiting.is_empty() {
            let waiting = kept.waiting.len();
            return Err(
                TerminalError::new(format!("the run has {waiting} messages that no process has read yet")).into()
            );
        }
        kept.last += 1;
        let number = kept.last;
        kept.waiting.push(Mail { number, post });
        match kept.listener.take() {
            Some(listener) => ctx.resolve_awakeable(&listener, Json(kept.waiting.clone())),
            None => {
                let drive = Drive { mail: true, ..Drive::default() };
                ctx.request::<_, ()>(RequestTarget::object(RUN, ctx.key(), "drive"), Json(drive)).send();
            }
        }
        ctx.set(BOX, Json(kept));
        Ok(number)
    }

    /// Stores the awakeable of the invocation that drives the tree, or resolves it if there are messages.
    #[handler]
    async fn listen(&self, ctx: ObjectContext<'_>, listener: String) -> Result<(), HandlerError> {
        let Json(mut kept) = ctx.get::<Json<Mailbox>>(BOX).await?.unwrap_or_default();
        match kept.waiting.is_empty() {
            true => kept.listener = Some(listener),
            false => ctx.resolve_awakeable(&listener, Json(kept.waiting.clone())),
        }
        ctx.set(BOX, Json(kept));
        Ok(())
    }

    /// Forgets the awakeable of an invocation that ends. If messages wait, another invocation begins.
    #[handler]
    async fn unlisten(&self, ctx: ObjectContext<'_>, listener: String) -> Result<(), HandlerError> {
        let Json(mut kept) = ctx.get::<Json<Mailbox>>(BOX).await?.unwrap_or_default();
        if !kept.waiting.is_empty() {
            let drive = Drive { mail: true, ..Drive::default() };
            ctx.request::<_, ()>(RequestTarget::object(RUN, ctx.key(), "drive"), Json(drive)).send();
        }
        if kept.listener.as_ref() == Some(&listener) {
            kept.listener = None;
            ctx.set(BOX, Json(kept));
        }
        Ok(())
    }

    /// Stores the outcomes of messages.
    #[handler]
    async fn settle(
        &self,
        ctx: ObjectContext<'_>,
        Json(outcomes): Json<Vec<(u64, String)>>,
    ) -> Result<(), HandlerError> {
        let Json(mut kept) = ctx.get::<Json<Mailbox>>(BOX).await?.unwrap_or_default();
        for (number, outcome) in outcomes {
            if let Some(at) = kept.waiting.iter().position(|mail| mail.number == number) {
                let mail = kept.waiting.remove(at);
                kept.outcomes.push((mail.post.id, number, outcome));
            }
        }
        let extra = kept.outcomes.len().saturating_sub(MAX_OUTCOMES);
        kept.outcomes.drain(..extra);
        ctx.set(BOX, Json(kept));
        Ok(())
    }

    /// Returns the outcome of a message.
    #[handler]
    async fn outcome(&self, ctx: SharedObjectContext<'_>, number: u64) -> Result<Json<Option<String>>, HandlerError> {
        let Json(mut kept) = ctx.get::<Json<Mailbox>>(BOX).await?.unwrap_or_default();
        let found = kept.outcomes.iter_mut().find(|(_, known, _)| *known == number);
        Ok(Json(found.map(|(.., outcome)| std::mem::take(outcome))))
    }

    /// Removes all messages.
    #[handler]
    async fn clear(&self, ctx: ObjectContext<'_>, _: Json<()>) -> Result<(), HandlerError> {
        ctx.clear_all();
        Ok(())
    }
}

/// The object with the state of a flow.
pub(crate) struct StateObject;

#[restate_sdk::object(name = "FlowcellState", lazy_state, client_visibility = "pub(crate)")]
impl StateObject {
    /// Returns the value of a key, with its version.
    #[handler]
    async fn get(&self, ctx: SharedObjectContext<'_>, key: String) -> Result<Json<Option<Versioned>>, HandlerError> {
        Ok(Json(ctx.get::<Json<Versioned>>(&format!("v/{key}")).await?.map(|Json(found)| found)))
    }

    /// Writes all values, if each has the version before the one that its write makes. Returns false otherwise.
    #[handler]
    async fn write(&self, ctx: ObjectContext<'_>, Json(writes): Json<Vec<StateWrite>>) -> Result<bool, HandlerError> {
        let mut versions: HashMap<&str, u64> = HashMap::new();
        for write in &writes {
            let before = match versions.get(&*write.key) {
                Some(version) => *version,
                None => {
                    let found = ctx.get::<Json<Versioned>>(&format!("v/{}", write.key)).await?;
                    found.map_or(0, |Json(found)| found.version)
                }
            };
            if before + 1 != write.version {
                return Ok(false);
            }
            versions.insert(&write.key, write.version);
        }
        for StateWrite { key, value, version } in &writes {
            ctx.set(&format!("v/{key}"), Json(Versioned { value: value.clone(), version: *version }));
        }
        Ok(true)
    }
}

/// The key of the state with the name of a store.
const NAME: &str = "name";

/// The object with the name of the store to which the cluster belongs.
pub(crate) struct StoreObject;

#[restate_sdk::object(name = "FlowcellStore", client_visibility = "pub(crate)")]
impl StoreObject {
    /// Gives the cluster to a store, unless it belongs to one. Returns the name of the store to which it belongs.
    #[handler]
    async fn claim(&self, ctx: ObjectContext<'_>, Json(name): Json<String>) -> Result<Json<String>, HandlerError> {
        if let Some(owner) = ctx.get::<Json<String>>(NAME).await? {
            return Ok(owner);
        }
        ctx.set(NAME, Json(name.clone()));
        Ok(Json(name))
    }
}
