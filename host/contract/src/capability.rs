//! The traits through which the runtime performs calls that leave the host, and stores bytes.

use std::{any::Any, fmt, sync::Arc};

use futures_util::future::BoxFuture;

use crate::{AttemptEnd, Call, Effect, Failure, Grants, Json, NodeId, RunId, Tenant, Value};

/// A capability whose calls leave the host. The runtime asks the capability to admit a call, then records the call.
/// When the record is on stable storage, the runtime asks the capability to perform the call.
pub trait Capability: Send + Sync {
    /// Checks whether the flow grants a call. Returns an error if it does not, and a description of the call if it
    /// does. The runtime calls this function once for each call, before it records the call. The function does no I/O,
    /// but may read the host's own store.
    fn admit(&self, call: &Call, caller: &Caller) -> Result<Admission, Failure>;

    /// Performs a call. The capability must end the call by itself, at the latest after a timeout of its own.
    ///
    /// If a call of effect [`Effect::Once`] fails, the failure must have the code
    /// [`AMBIGUOUS`](crate::code::AMBIGUOUS), unless the call certainly had no effect. A retry of the task repeats
    /// calls that fail with another code.
    fn perform(&self, outgoing: Outgoing) -> BoxFuture<'static, Result<Value, Failure>>;
}

/// The node that makes a call, and its run.
#[derive(Clone, Debug, PartialEq)]
pub struct Caller {
    /// The tenant that owns the run.
    pub tenant: Tenant,
    /// The run, unique within the tenant.
    pub run_id: RunId,
    /// The pin of the run's flow.
    pub pin: Arc<str>,
    /// The id of the node in its flow.
    pub node_id: NodeId,
    /// The node's type, without its version.
    pub node_type: Arc<str>,
    /// The grants that the flow gives the node.
    pub grants: Arc<Grants>,
    /// The effect that the node type declares for its calls.
    pub effect: Effect,
    /// The task's config. The flow's author sets it, and no component can change it.
    pub config: Value,
}

/// The description of an admitted call.
#[derive(Clone, Debug)]
pub struct Admission {
    /// The effect of the call, one of the external effects.
    pub effect: Effect,
    /// A short summary for people, such as `{ "method", "url" }`. It must contain no secrets.
    pub about: Json,
    /// The content that the call sends, with long texts cut, or `null` if `about` is complete. It must contain no
    /// secrets. The journal stores the preview for those who may read the inputs of tasks. No event contains it.
    pub preview: Json,
    /// The question to a person who must allow the call first. `None`: the call needs no approval.
    pub ask: Option<Ask>,
    /// The parsed call. The runtime passes it on as [`Outgoing::prepared`].
    pub prepared: Prepared,
}

impl Admission {
    /// Returns an admission with this effect and summary, without a preview. The call needs no approval.
    pub fn new(effect: Effect, about: Json) -> Admission {
        Admission { effect, about, preview: Json::Null, ask: None, prepared: Prepared::default() }
    }
}

/// The parsed form of an admitted call, so that [`Capability::perform`] need not parse the call again. It is never
/// stored.
#[derive(Clone, Default)]
pub struct Prepared(Option<Arc<dyn Any + Send + Sync>>);

impl Prepared {
    /// Wraps a parsed call.
    pub fn new<T: Any + Send + Sync>(read: Arc<T>) -> Prepared {
        Prepared(Some(read))
    }

    /// Returns the parsed call; `None` if there is none, or if its type is not `T`.
    pub fn get<T: Any + Send + Sync>(&self) -> Option<Arc<T>> {
        self.0.clone()?.downcast().ok()
    }
}

impl fmt::Debug for Prepared {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Prepared")
    }
}

/// A question to a person who must allow a call before it leaves the host. Without an answer in time the host denies
/// the call.
#[derive(Clone, Debug, PartialEq)]
pub struct Ask {
    /// The text of the question, which describes everything that the call would do. If a part of the text is cut, the
    /// text says so.
    pub prompt: String,
    /// The time in milliseconds for which the question stays open.
    pub expires_ms: u64,
    /// The complete arguments, if the prompt shows only a part of them.
    pub arguments: Option<Json>,
}

/// A call that leaves the host.
#[derive(Clone, Debug)]
pub struct Outgoing {
    /// The node that makes the call.
    pub caller: Caller,
    /// The call to perform.
    pub call: Call,
    /// The effect that the call may have.
    pub effect: Effect,
    /// The idempotency key. It stays the same when any attempt makes this call again.
    pub key: Arc<str>,
    /// Sends parts of the reply to channels before the reply is complete.
    pub progress: Progress,
    /// The call as [`Capability::admit`] parsed it. Empty if `admit` was not asked about this call, because another
    /// capability makes it: a service may call a model, for example.
    pub prepared: Prepared,
    /// The number of earlier tries of this call that ended because the host process ended. Each of these tries may have
    /// had its effect.
    pub lost: u32,
    /// Closes what the call leaves open when the attempt ends.
    pub attempt_end: AttemptEnd,
}

/// Sends events that the journal does not record, such as text while a model writes it, to the channels and clients
/// that follow a run. If none follows the run, the event is dropped. Each event is sent at most once.
#[derive(Clone, Default)]
pub struct Progress(Option<Arc<SendEvent>>);

type SendEvent = dyn Fn(&str, Json) + Send + Sync;

impl Progress {
    /// Creates a sender from a function that receives the type of an event, and its members.
    pub fn new(send: impl Fn(&str, Json) + Send + Sync + 'static) -> Progress {
        Progress(Some(Arc::new(send)))
    }

    /// Sends an event of this type with these members.
    pub fn send(&self, kind: &str, members: Json) {
        if let Some(send) = &self.0 {
            send(kind, members);
        }
    }
}

impl fmt::Debug for Progress {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Progress")
    }
}

impl Caller {
    /// Returns the effect of a call. A call that only reads (`changes` is false) is idempotent. A call that changes
    /// something has the effect that the node type declares, if that effect is external; otherwise it is `AtLeastOnce`.
    pub fn effect_of(&self, changes: bool) -> Effect {
        match (changes, self.effect.is_external()) {
            (false, _) => Effect::Idempotent,
            (true, true) => self.effect,
            (true, false) => Effect::AtLeastOnce,
        }
    }
}
