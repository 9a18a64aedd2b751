//! What stands behind the gate: a capability whose calls leave the host, and bytes kept by content.

use std::{any::Any, fmt, sync::Arc};

use futures_util::future::BoxFuture;

use crate::{BlobRef, Call, Effect, Failure, Grants, Json, NodeId, RunId, Tenant, Value};

/// A capability whose calls leave the host. The gate asks whether a call is admitted, records it, and has it performed
/// once the record is on stable storage.
pub trait Capability: Send + Sync {
    /// Refuses what was not granted, and says what the call is. Called once for each call, before it is recorded; it does
    /// no I/O, but may look something up in the host's own store.
    fn admit(&self, call: &Call, caller: &Caller) -> Result<Admission, Failure>;

    /// Performs a call. It ends by itself, after a time that it owns. A failure of a call of effect [`Effect::Once`] has
    /// the code [`AMBIGUOUS`](crate::code::AMBIGUOUS) unless it is certain that nothing happened: then a retry makes the call
    /// again.
    fn perform(&self, outgoing: Outgoing) -> BoxFuture<'static, Result<Value, Failure>>;
}

/// Who makes a call.
#[derive(Clone, Debug, PartialEq)]
pub struct Caller {
    /// Whose run it is.
    pub tenant: Tenant,
    /// Which run.
    pub run_id: RunId,
    /// The pin of the run's flow.
    pub pin: Arc<str>,
    /// Which node.
    pub node_id: NodeId,
    /// Of which type.
    pub node_type: Arc<str>,
    /// What the flow grants the node.
    pub grants: Arc<Grants>,
    /// What the node type says that its calls do to the world.
    pub effect: Effect,
    /// The task's config: what the flow's author says, and no component can change.
    pub config: Value,
}

/// What a call that was admitted is.
#[derive(Clone, Debug)]
pub struct Admission {
    /// What it may do to the world: one of the external effects.
    pub effect: Effect,
    /// What people are shown of it, such as `{ "method", "url" }`. No secrets, and short.
    pub about: Json,
    /// What it sends, with long texts cut: kept in the journal for those who may read the inputs of tasks, and in no event.
    /// No secrets. `null`: `about` says it all.
    pub preview: Json,
    /// A person has to allow it first.
    pub ask: Option<Ask>,
    /// The call as the capability has read it, for [`Outgoing::prepared`].
    pub prepared: Prepared,
}

impl Admission {
    /// Admits a call of this effect, of which people are shown this and which needs nobody's permission.
    pub fn new(effect: Effect, about: Json) -> Admission {
        Admission { effect, about, preview: Json::Null, ask: None, prepared: Prepared::default() }
    }
}

/// A call as a capability has read it to admit it, so that performing it need not read it again. It is in memory only.
#[derive(Clone, Default)]
pub struct Prepared(Option<Arc<dyn Any + Send + Sync>>);

impl Prepared {
    /// Keeps a call as the capability has read it.
    pub fn new<T: Any + Send + Sync>(read: Arc<T>) -> Prepared {
        Prepared(Some(read))
    }

    /// Returns the call, if it was kept as this type.
    pub fn get<T: Any + Send + Sync>(&self) -> Option<Arc<T>> {
        self.0.clone()?.downcast().ok()
    }
}

impl fmt::Debug for Prepared {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Prepared")
    }
}

/// A call that a person has to allow before it leaves. Without an answer in time it is denied.
#[derive(Clone, Debug, PartialEq)]
pub struct Ask {
    /// What the person is asked: everything that the call would do, or parts of it that are marked as cut.
    pub prompt: String,
    /// How long the question stays open.
    pub expires_ms: u64,
    /// The whole arguments, if the prompt shows only a part of them.
    pub arguments: Option<Json>,
}

/// A call that leaves the host.
#[derive(Clone, Debug)]
pub struct Outgoing {
    /// Who makes it.
    pub caller: Caller,
    /// What is to be done.
    pub call: Call,
    /// What it may do to the world.
    pub effect: Effect,
    /// The idempotency key: the same whenever this call is made again, by whichever attempt.
    pub key: Arc<str>,
    /// Where pieces of an answer go that is still being made.
    pub progress: Progress,
    /// The call as [`Capability::admit`] has read it; nothing if this call was not admitted by itself.
    pub prepared: Prepared,
    /// Times that this very call was under way when its process ended: each of them may have had an effect.
    pub lost: u32,
}

/// Tells whoever watches a run what is not recorded, such as text while a model writes it. Dropped if nobody watches, and
/// never told again.
#[derive(Clone, Default)]
pub struct Progress(Option<Arc<Tell>>);

type Tell = dyn Fn(&str, Json) + Send + Sync;

impl Progress {
    /// Hands over what is told: the type of an event, and its members.
    pub fn new(tell: impl Fn(&str, Json) + Send + Sync + 'static) -> Progress {
        Progress(Some(Arc::new(tell)))
    }

    /// Tells an event of this type, with these members.
    pub fn tell(&self, kind: &str, members: Json) {
        if let Some(tell) = &self.0 {
            tell(kind, members);
        }
    }
}

impl fmt::Debug for Progress {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Progress")
    }
}

impl Caller {
    /// The effect of a call of which the capability knows whether it changes anything.
    pub fn effect_of(&self, changes: bool) -> Effect {
        match (changes, self.effect.is_external()) {
            (false, _) => Effect::Idempotent,
            (true, true) => self.effect,
            (true, false) => Effect::AtLeastOnce,
        }
    }
}

/// Bytes by content.
pub trait Blobs: Send + Sync {
    /// Keeps bytes, once for each content. They are durable before anything that is recorded after.
    fn put(&self, tenant: &Tenant, bytes: Arc<[u8]>, mime: &str) -> BlobRef;

    /// Returns the bytes, if this tenant has them.
    fn get(&self, tenant: &Tenant, blob: &BlobRef) -> Result<Option<Arc<[u8]>>, Failure>;
}
