//! Runs one attempt: makes a fresh instance, calls it once, and drops it.

use std::{
    panic::{self, AssertUnwindSafe},
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    task::{Context, Poll},
    time::Instant,
};

use flowcell_contract::{Attempt, Calls, Digest, Failure, Json, NodeRunner, Step, StepResult, Tenant, code};
use futures_util::{FutureExt, future::BoxFuture};
use tokio::sync::oneshot;
use wasmtime::{Store, UpdateDeadline, WasmBacktrace};

use crate::{
    Engine, Limits, Profile, answer,
    code::{LinkedPack, LoadedPack},
    cost::{Cost, Measured},
    engine::Inner,
    fair_scheduler::{FairScheduler, InlinePlace},
    fair_semaphore::Permit,
    link::Capabilities,
    machine::MEMORY_INCLUDED,
    pack::LoadedNodeType,
    sandbox::{Sandbox, meter::SharedMemory, ported::write_back},
    schema::Part,
    ticker::RunningAttempt,
    trap,
};

impl NodeRunner for Engine {
    fn run(&self, attempt: Attempt, calls: Arc<dyn Calls>) -> BoxFuture<'static, StepResult> {
        let inner = self.inner().clone();
        let first = inner.attempts.fetch_add(1, Relaxed) == 0;
        let may_run_inline = first || attempt.alone;
        let computes = Arc::new(AtomicBool::new(false));
        let (scheduler, tenant) = (inner.scheduler.clone(), attempt.tenant.clone());
        let counted = Counted(inner);
        let (told, meant) = (computes.clone(), computes);
        let running = Box::pin(async move { counted.0.run(attempt, calls, told, None).await.with_counted(counted) });
        match may_run_inline {
            true => Box::pin(InlineAttempt {
                running: Some(running),
                needs_place: !first,
                place: None,
                computes: meant,
                moved: None,
                scheduler,
                tenant,
            }),
            false => Box::pin(spawn_on_pool(&scheduler, tenant, running)),
        }
    }

    fn prepare(&self, tenant: &Tenant, packs: Vec<Digest>) -> BoxFuture<'static, ()> {
        let cold = |pack: &Digest| self.inner().packs.get(pack).is_some_and(|pack| pack.is_cold());
        let packs: Vec<_> = packs.into_iter().filter(cold).collect();
        if packs.is_empty() {
            return Box::pin(std::future::ready(()));
        }
        let (inner, tenant) = (self.inner().clone(), tenant.clone());
        Box::pin(async move {
            let cold = packs.iter().filter_map(|pack| inner.packs.get(pack));
            let linked = cold.map(|pack| inner.link(&tenant, pack, pack.sets()));
            // A pack that cannot be prepared fails the attempts that need it, with the reason.
            let _ = futures_util::future::join_all(linked).await;
        })
    }
}

impl Engine {
    /// Runs an attempt on the thread that polls the future, and returns its result and its measurement. If `profiles` is
    /// true, the measurement has a profile. It is `None` if the attempt got no instance.
    pub fn measure(
        &self,
        attempt: Attempt,
        calls: Arc<dyn Calls>,
        profiles: bool,
    ) -> BoxFuture<'static, (StepResult, Option<Measured>)> {
        let inner = self.inner().clone();
        let measured = Measured { profile: profiles.then(Profile::default), ..Measured::default() };
        Box::pin(async move {
            let running = inner.run(attempt, calls, Arc::default(), Some(measured));
            match AssertUnwindSafe(running).catch_unwind().await {
                Ok(Outcome { result, remains, .. }) => (result, remains.and_then(end_measured)),
                Err(_) => (Err(lost_attempt()), None),
            }
        })
    }
}

/// Drops a measured instance, and returns the whole measurement of its attempt.
fn end_measured((mut store, place, ticking): (Store<Sandbox>, Place, RunningAttempt)) -> Option<Measured> {
    let Measured { cost, profile } = store.data_mut().measured.take()?;
    let memory = store.data().meter.memory_taken();
    let since = Instant::now();
    drop((store, place, ticking));
    Some(Measured { cost: Cost { teardown: since.elapsed(), memory, ..cost }, profile })
}

type Running = BoxFuture<'static, Outcome>;

/// A finished attempt: its result, and the resources to release.
struct Outcome {
    result: StepResult,
    remains: Option<(Store<Sandbox>, Place, RunningAttempt)>,
    counted: Option<Counted>,
}

impl Outcome {
    fn with_counted(self, counted: Counted) -> Outcome {
        Outcome { counted: Some(counted), ..self }
    }
}

/// Counts one unfinished attempt in `Inner::attempts` until it is dropped.
struct Counted(Arc<Inner>);

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.attempts.fetch_sub(1, Relaxed);
    }
}

/// An attempt that began while its engine or its run had no other attempt. It runs on the thread that polls this future,
/// because to switch threads takes longer than a short call. If the guest computes for long, the attempt moves to a guest
/// thread. If the engine has other attempts, it needs one of its tenant's [inline places](FairScheduler::inline_place).
struct InlineAttempt {
    running: Option<Running>,
    /// True if the attempt needs a place and has not asked for it yet.
    needs_place: bool,
    place: Option<InlinePlace>,
    /// True once the [ticker](crate::ticker) has interrupted the guest while it computed.
    computes: Arc<AtomicBool>,
    moved: Option<BoxFuture<'static, StepResult>>,
    scheduler: FairScheduler,
    tenant: Tenant,
}

impl InlineAttempt {
    fn move_to_pool(&mut self) {
        self.place = None;
        let (scheduler, tenant) = (&self.scheduler, self.tenant.clone());
        self.moved = self.running.take().map(|running| spawn_on_pool(scheduler, tenant, running).boxed());
    }
}

impl Future for InlineAttempt {
    type Output = StepResult;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<StepResult> {
        // It asks as late as possible: an attempt before it may have computed for too long.
        if std::mem::take(&mut self.needs_place) {
            self.place = self.scheduler.inline_place(&self.tenant);
            if self.place.is_none() {
                self.move_to_pool();
            }
        }
        if let Some(running) = &mut self.running {
            let since = Instant::now();
            // Dropping the attempt's instance here charges the teardown to its tenant. Waking another thread would take
            // longer.
            let poll = AssertUnwindSafe(|| running.as_mut().poll(context).map(|over| over.result));
            let polled = panic::catch_unwind(poll);
            self.scheduler.charge_inline(&self.tenant, since.elapsed());
            match polled {
                Ok(Poll::Ready(result)) => {
                    self.running = None;
                    self.place = None;
                    return Poll::Ready(result);
                }
                Ok(Poll::Pending) if self.computes.load(Relaxed) => self.move_to_pool(),
                Ok(Poll::Pending) => return Poll::Pending,
                Err(_) => {
                    self.running = None;
                    self.place = None;
                    return Poll::Ready(Err(lost_attempt()));
                }
            }
        }
        match &mut self.moved {
            Some(moved) => moved.poll_unpin(context),
            None => Poll::Ready(Err(lost_attempt())),
        }
    }
}

/// Runs an attempt on a guest thread, as soon as its tenant is next. A guest that computes on such a thread does not
/// delay the host's timers or other work. Dropping the returned future stops the guest at its next yield.
fn spawn_on_pool(
    scheduler: &FairScheduler,
    tenant: Tenant,
    running: Running,
) -> impl Future<Output = StepResult> + use<> {
    let (answer, answered) = oneshot::channel();
    let task = scheduler.spawn(tenant, async move {
        let Outcome { result, remains, counted } = running.await;
        drop(counted);
        // Send the answer before the teardown. The receiver may be gone.
        let _ = answer.send(result);
        drop(remains);
    });
    async move {
        let _task = task;
        answered.await.unwrap_or_else(|_| Err(lost_attempt()))
    }
}

fn lost_attempt() -> Failure {
    Failure::retryable(code::LOST_WORKER, "the attempt was lost: it panicked in the host")
}

/// An attempt that has a slot and linked code.
struct Admitted<'a> {
    linked: &'a LinkedPack,
    node_type: &'a Arc<LoadedNodeType>,
    place: Place,
}

/// The permits that an attempt holds until its instance is dropped.
struct Place {
    _slots: Permit,
    /// The permit of an attempt with more than the usual memory.
    large: Option<Permit>,
}

impl Inner {
    /// Runs an attempt. It is measured if `measured` is given.
    async fn run(
        self: &Arc<Inner>,
        attempt: Attempt,
        calls: Arc<dyn Calls>,
        computes: Arc<AtomicBool>,
        measured: Option<Measured>,
    ) -> Outcome {
        let Admitted { linked, node_type, place } = match self.admit(&attempt).await {
            Ok(admitted) => admitted,
            Err(failure) => return Outcome { result: Err(failure), remains: None, counted: None },
        };
        let ticking = self.ticker.enter();
        let mut store = self.store(attempt, calls, computes, measured, node_type, &place);
        let result = self.call(&mut store, linked, node_type).await;
        store.data_mut().forward_output(true).await;
        let result = match result {
            Ok(step) => write_back(store.data_mut()).await.map(|()| step),
            failed => failed,
        };
        Outcome { result, remains: Some((store, place, ticking)), counted: None }
    }

    /// Finds the attempt's code, checks its input, and waits for a free slot.
    async fn admit(self: &Arc<Inner>, attempt: &Attempt) -> Result<Admitted<'_>, Failure> {
        let pack = self.packs.get(&attempt.pack).ok_or_else(|| unknown_node_type(attempt))?;
        let node_type = pack.node_types.get(&attempt.node_type).ok_or_else(|| unknown_node_type(attempt))?;
        if node_type.limits.is_some() {
            self.granted.check(&attempt.tenant, &node_type.node)?;
        }
        if attempt.resumes == 0 {
            self.check(&attempt.tenant, node_type, Part::Input, attempt.input.json()).await?;
            // An attempt without a config has `null`; there is nothing to check.
            if !attempt.config.json().is_null() {
                self.check(&attempt.tenant, node_type, Part::Config, attempt.config.json()).await?;
            }
        }
        self.link(&attempt.tenant, pack, vec![node_type.capabilities]).await?;
        let linked = match pack.linked(node_type.capabilities) {
            Some(Ok(linked)) => linked,
            Some(Err(failure)) => return Err(failure.clone()),
            None => return Err(Failure::retryable(code::LOST_WORKER, "the pack was not linked")),
        };
        // An attempt that waits for the memory of a large one holds no slot, so that other attempts can begin.
        let is_large = self.limits(node_type).memory > self.compile_context.limits.memory;
        let large = if is_large { Some(self.large.take(&attempt.tenant, 1).await) } else { None };
        let slots = self.slots.take(&attempt.tenant, u64::from(linked.slots)).await;
        Ok(Admitted { linked, node_type, place: Place { _slots: slots, large } })
    }

    /// Checks a part of an attempt against its schema. A short check runs on this thread. A long check runs on a
    /// thread that may block: it needs one of the permits that tenants share, and its time is charged to the tenant.
    async fn check(
        self: &Arc<Inner>,
        tenant: &Tenant,
        node_type: &Arc<LoadedNodeType>,
        part: Part,
        value: &Json,
    ) -> Result<(), Failure> {
        if let Some(checked) = node_type.schemas.check_shortly(&node_type.node, part, value) {
            return checked;
        }
        // The permit belongs to the check, which goes on even if the attempt is dropped.
        let permit = self.checks.take(tenant, 1).await;
        let (inner, tenant, node_type, value) = (self.clone(), tenant.clone(), node_type.clone(), value.clone());
        let checking = self.runtime().spawn_blocking(move || {
            let _permit = permit;
            let since = Instant::now();
            let checked = node_type.schemas.check(&node_type.node, part, &value);
            inner.scheduler.charge(&tenant, since.elapsed());
            checked
        });
        checking.await.map_err(|error| Failure::retryable(code::LOST_WORKER, format!("a check was lost: {error}")))?
    }

    /// Links a pack's code for sets of capabilities on a thread that may block, since compiling takes long. If
    /// another process may have to compile the pack, the tenant first waits for one of the shared permits.
    async fn link(
        self: &Arc<Inner>,
        tenant: &Tenant,
        pack: &Arc<LoadedPack>,
        mut sets: Vec<Capabilities>,
    ) -> Result<(), Failure> {
        sets.retain(|set| pack.linked(*set).is_none());
        if sets.is_empty() {
            return Ok(());
        }
        let permit = match self.compile_context.may_need_compiler(pack) {
            true => Some(self.compilers.take(tenant, 1).await),
            false => None,
        };
        let (inner, pack) = (self.clone(), pack.clone());
        // The permit belongs to the work, which goes on even if the attempt is dropped.
        let linking = self.runtime().spawn_blocking(move || {
            let _permit = permit;
            sets.into_iter().try_for_each(|set| inner.compile_context.link(&pack, set).map(|_| ()))
        });
        linking.await.map_err(|error| Failure::retryable(code::LOST_WORKER, format!("linking was lost: {error}")))?
    }

    /// Returns the limits of the attempts of a node type.
    fn limits<'a>(&'a self, node_type: &'a LoadedNodeType) -> &'a Limits {
        node_type.limits.as_deref().unwrap_or(&self.compile_context.limits)
    }

    fn store(
        &self,
        attempt: Attempt,
        calls: Arc<dyn Calls>,
        computes: Arc<AtomicBool>,
        measured: Option<Measured>,
        node_type: &LoadedNodeType,
        place: &Place,
    ) -> Store<Sandbox> {
        let limits = self.limits(node_type);
        // The permit of a large attempt covers all of its memory.
        let included = if place.large.is_some() { limits.memory } else { MEMORY_INCLUDED };
        let shared = SharedMemory { included, pool: self.memory.clone() };
        let mut store = Store::new(&self.compile_context.engine, Sandbox::new(attempt, calls, limits, shared));
        store.limiter(|sandbox| &mut sandbox.meter);
        store.set_hostcall_fuel(limits.boundary_bytes());
        store.set_max_component_handles(limits.handles);
        let profiles = measured.as_ref().is_some_and(|measured| measured.profile.is_some());
        store.data_mut().measured = measured;
        // A deadline of two ticks does not interrupt a short attempt that begins just before a tick. A profile has to
        // have samples of short attempts, too.
        store.set_epoch_deadline(if profiles { 1 } else { 2 });
        store.epoch_deadline_callback(move |mut store| {
            computes.store(true, Relaxed);
            if profiles {
                let stack = WasmBacktrace::force_capture(&store);
                let profile = store.data_mut().measured.as_mut().and_then(|measured| measured.profile.as_mut());
                if let Some(profile) = profile {
                    profile.add(&stack);
                }
            }
            Ok(UpdateDeadline::Yield(1))
        });
        store
    }

    async fn call(
        self: &Arc<Inner>,
        store: &mut Store<Sandbox>,
        linked: &LinkedPack,
        node_type: &Arc<LoadedNodeType>,
    ) -> StepResult {
        let since = store.data().stopwatch();
        let instance = match linked.instance.instantiate_async(&mut *store).await {
            Ok(instance) => instance,
            Err(error) => return Err(trap::from_start(&error, store.data().stdio.last_words())),
        };
        store.data_mut().count_time(since, |cost| &mut cost.instantiation);
        let type_name = store.data().attempt.node_type.clone();
        let since = store.data().stopwatch();
        let answer = instance.flowcell_node_node().call_run(&mut *store, &type_name).await;
        store.data_mut().count_time(since, |cost| &mut cost.call);
        let step = match answer {
            Ok(answer) => answer::read(answer, &store.data().attempt, &node_type.node.marks, self.limits(node_type))?,
            Err(error) => {
                return Err(trap::from_run(&error, store.data().stdio.last_words(), self.limits(node_type)));
            }
        };
        if let Step::Done(output) = &step {
            let tenant = store.data().attempt.tenant.clone();
            self.check(&tenant, node_type, Part::Output, output.json()).await?;
        }
        Ok(step)
    }
}

fn unknown_node_type(attempt: &Attempt) -> Failure {
    let message = format!("the pack {} is not loaded, or does not offer `{}`", attempt.pack, attempt.node_type);
    Failure::new(code::BAD_PACK, message)
}
