//! One attempt: a fresh instance, one call, and nothing left of it.

use std::sync::Arc;

use flowcell_contract::{Attempt, Calls, Digest, Failure, NodeRunner, StepResult, code};
use futures_util::future::BoxFuture;
use tokio::{
    sync::{SemaphorePermit, oneshot},
    task::AbortHandle,
};
use wasmtime::Store;

use crate::{
    Engine, answer,
    code::{Linked, Loaded},
    engine::Inner,
    pack::Offer,
    sandbox::Sandbox,
    trap,
};

impl NodeRunner for Engine {
    fn run(&self, attempt: Attempt, calls: Arc<dyn Calls>) -> BoxFuture<'static, StepResult> {
        // Guests run on threads of their own: one that computes delays no timer and no other work of the host.
        let (task, answer) = self.inner().clone().spawn(attempt, calls);
        Box::pin(async move {
            let _task = AbortOnDrop(task);
            let lost = |_| Err(Failure::retryable(code::LOST_WORKER, "the attempt was lost: it panicked in the host"));
            answer.await.unwrap_or_else(lost)
        })
    }

    fn prepare(&self, packs: Vec<Digest>) -> BoxFuture<'static, ()> {
        let cold = |pack: &Digest| self.inner().packs.get(pack).is_some_and(|pack| pack.is_cold());
        let packs: Vec<_> = packs.into_iter().filter(cold).collect();
        if packs.is_empty() { Box::pin(std::future::ready(())) } else { Box::pin(prepare(self.clone(), packs)) }
    }
}

/// Compiles packs, or loads their code, all at a time.
async fn prepare(engine: Engine, packs: Vec<Digest>) {
    let prepared = packs.into_iter().map(|pack| {
        let runtime = engine.inner().runtime().clone();
        let engine = engine.clone();
        runtime.spawn_blocking(move || engine.prepare(&pack))
    });
    // A pack that cannot be prepared fails the attempts that need it, and they say why.
    let _ = futures_util::future::join_all(prepared.collect::<Vec<_>>()).await;
}

/// Stops the guest at its next yield when nobody waits for it any more.
struct AbortOnDrop(AbortHandle);

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// An attempt that may begin.
struct Admitted<'a> {
    linked: &'a Linked,
    offer: &'a Offer,
    _slots: SemaphorePermit<'a>,
}

impl Inner {
    fn spawn(
        self: Arc<Inner>,
        attempt: Attempt,
        calls: Arc<dyn Calls>,
    ) -> (AbortHandle, oneshot::Receiver<StepResult>) {
        let (answer, answered) = oneshot::channel();
        let runtime = self.runtime().clone();
        let task = runtime.spawn(async move {
            let admitted = self.admit(&attempt).await;
            let Admitted { linked, offer, .. } = match &admitted {
                Ok(admitted) => admitted,
                Err(failure) => return drop(answer.send(Err(failure.clone()))),
            };
            let _ticking = self.ticker.enter();
            let mut store = self.store(attempt, calls);
            let result = self.call(&mut store, linked, offer).await;
            store.data_mut().forward_output(true).await;
            // The answer first: giving back the memory of an instance takes as long as a short call. Nobody may be
            // there to hear it.
            let _ = answer.send(result);
        });
        (task.abort_handle(), answered)
    }

    /// Finds what the attempt runs, and waits until there is room for it.
    async fn admit(self: &Arc<Inner>, attempt: &Attempt) -> Result<Admitted<'_>, Failure> {
        let pack = self.packs.get(&attempt.pack).ok_or_else(|| unknown(attempt))?;
        let offer = pack.offers.get(&attempt.node_type).ok_or_else(|| unknown(attempt))?;
        if attempt.resumes == 0 {
            offer.schemas.check_input(&offer.node, attempt.input.json())?;
            offer.schemas.check_config(&offer.node, attempt.config.json())?;
        }
        self.link(pack, offer).await?;
        let linked = match pack.linked(offer.capabilities) {
            Some(Ok(linked)) => linked,
            Some(Err(failure)) => return Err(failure.clone()),
            None => return Err(Failure::retryable(code::LOST_WORKER, "the pack was not linked")),
        };
        let closed = |_| Failure::retryable(code::LOST_WORKER, "the engine is going down");
        let slots = self.slots.acquire_many(linked.slots).await.map_err(closed)?;
        Ok(Admitted { linked, offer, _slots: slots })
    }

    /// Compiling takes its time, so it happens beside the threads that run guests.
    async fn link(self: &Arc<Inner>, pack: &Arc<Loaded>, offer: &Offer) -> Result<(), Failure> {
        let set = offer.capabilities;
        if pack.linked(set).is_some() {
            return Ok(());
        }
        let (inner, pack) = (self.clone(), pack.clone());
        let linking = self.runtime().spawn_blocking(move || inner.workshop.link(&pack, set).map(|_| ()));
        linking.await.map_err(|error| Failure::retryable(code::LOST_WORKER, format!("linking was lost: {error}")))?
    }

    fn store(&self, attempt: Attempt, calls: Arc<dyn Calls>) -> Store<Sandbox> {
        let limits = &self.workshop.limits;
        let mut store = Store::new(&self.workshop.engine, Sandbox::new(attempt, calls, limits));
        store.limiter(|sandbox| &mut sandbox.meter);
        store.set_hostcall_fuel(limits.border_bytes());
        store.set_max_component_handles(limits.handles);
        store.set_epoch_deadline(1);
        store.epoch_deadline_async_yield_and_update(1);
        store
    }

    async fn call(&self, store: &mut Store<Sandbox>, linked: &Linked, offer: &Offer) -> StepResult {
        let instance = match linked.instance.instantiate_async(&mut *store).await {
            Ok(instance) => instance,
            Err(error) => return Err(trap::from_start(&error, store.data().stdio.last_words())),
        };
        let node_type = store.data().attempt.node_type.clone();
        match instance.flowcell_node_node().call_run(&mut *store, &node_type).await {
            Ok(answer) => answer::read(answer, &store.data().attempt, offer, &self.workshop.limits),
            Err(error) => Err(trap::from_run(&error, store.data().stdio.last_words())),
        }
    }
}

fn unknown(attempt: &Attempt) -> Failure {
    let message = format!("the pack {} is not loaded, or does not offer `{}`", attempt.pack, attempt.node_type);
    Failure::new(code::BAD_PACK, message)
}
