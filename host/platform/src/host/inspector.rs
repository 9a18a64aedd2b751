//! Inspects scripts: the pack `script` runs the first lines of a script in a sandbox, without grants.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use flowcell_contract::{
    Attempt, Call, Calls, Catalog, Failure, Grants, Json, Lookup, NodeRunner, ScopePath, Step, StepResult, Tenant,
    TypeRef, Value, code,
};
use flowcell_engine::Engine;
use flowcell_flow::{
    Source,
    outline::{Outline, ScriptError},
};
use futures_util::future::BoxFuture;
use parking_lot::Mutex;

/// The node type that inspects a script.
const INSPECT_TYPE: &str = "script.inspect";
/// Maximum time for the first lines and `setup` of all scripts of one check together.
const MAX_INSPECTION_TIME: Duration = Duration::from_secs(10);

/// Inspects scripts for a tenant.
pub(crate) struct Inspector {
    engine: Engine,
    catalog: Arc<Catalog>,
    tenant: Tenant,
    /// The part of [`MAX_INSPECTION_TIME`] that is left for the scripts that are not inspected yet.
    left: Mutex<Duration>,
}

impl Inspector {
    pub(crate) fn new(engine: Engine, catalog: Arc<Catalog>, tenant: Tenant) -> Inspector {
        Inspector { engine, catalog, tenant, left: Mutex::new(MAX_INSPECTION_TIME) }
    }

    /// Returns the time that scripts have taken. The engine has already charged the tenant for it.
    pub(crate) fn time_spent(&self) -> Duration {
        MAX_INSPECTION_TIME.saturating_sub(*self.left.lock())
    }

    /// Returns the outline of a script, which declares the flow's metadata.
    pub(crate) fn outline(&self, script: &Source) -> Result<Outline, ScriptError> {
        let attempt = self
            .build_attempt(script)
            .ok_or_else(|| script_error("the pack `script`, which reads scripts, is missing"))?;
        match self.run(attempt) {
            Ok(Step::Done(outline)) => serde_json::from_str(outline.text())
                .map_err(|error| script_error(format!("its outline is invalid: {error}"))),
            Ok(Step::Pause(_)) => Err(script_error("cannot inspect the script, because it pauses")),
            Err(failure) => Err(explain_failure(failure, &script.name)),
        }
    }

    fn build_attempt(&self, script: &Source) -> Option<Attempt> {
        let Lookup::Found(node) = self.catalog.lookup(&TypeRef::parse(INSPECT_TYPE)) else { return None };
        let file = [("path", Json::from(script.name.as_str())), ("text", Json::from(script.text.as_str()))];
        Some(Attempt {
            tenant: self.tenant.clone(),
            run_id: "inspection".into(),
            flow: "inspection".into(),
            node_id: "script".into(),
            node_type: INSPECT_TYPE.into(),
            pack: node.pack.clone()?,
            scope: ScopePath::root(),
            attempt: 1,
            resumes: 0,
            input: Value::from(Json::object([("file", Json::object(file))])),
            config: Value::from(Json::object::<&str>([])),
            state: None,
            woken: None,
            has_body: false,
            grants: Arc::new(Grants::default()),
            // Both are constant, so that every inspection gives the same result.
            now_ms: 0,
            seed: 0,
            alone: true,
        })
    }

    /// Runs an attempt and waits for its result. A separate thread waits, since the checking thread may not be allowed
    /// to block.
    fn run(&self, attempt: Attempt) -> StepResult {
        let left = *self.left.lock();
        if left.is_zero() {
            return Err(time_limit_error(true));
        }
        let wait = || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build();
            let runtime = runtime.map_err(|error| Failure::new(code::LOST_WORKER, error.to_string()))?;
            let ended = runtime.block_on(async {
                // The compilation of the pack does not count against the script's time.
                NodeRunner::prepare(&self.engine, &attempt.tenant, vec![attempt.pack.clone()]).await;
                let since = Instant::now();
                let ended = tokio::time::timeout(left, self.engine.run(attempt, Arc::new(DeniedCalls))).await;
                *self.left.lock() = if ended.is_ok() { left.saturating_sub(since.elapsed()) } else { Duration::ZERO };
                ended
            });
            ended.unwrap_or_else(|_| Err(time_limit_error(left < MAX_INSPECTION_TIME)))
        };
        let lost = |_| Err(Failure::new(code::LOST_WORKER, "the inspection of the script was lost"));
        std::thread::scope(|scope| scope.spawn(wait).join().unwrap_or_else(lost))
    }
}

/// Returns the error for an exceeded time limit. `together` is true if other scripts of the flow have used a part of
/// the time.
fn time_limit_error(together: bool) -> Failure {
    let seconds = MAX_INSPECTION_TIME.as_secs();
    let message = match together {
        true => format!("the first lines and `setup` of the flow's scripts take longer than {seconds} s in total"),
        false => format!("its first lines and `setup` take longer than {seconds} s"),
    };
    Failure::new(code::TIMEOUT, message)
}

/// The calls of a script under inspection, which are all denied.
struct DeniedCalls;

impl Calls for DeniedCalls {
    fn call(&self, call: Call) -> BoxFuture<'_, Result<Value, Failure>> {
        let message = format!("a script cannot use `{}` in its first lines or in `setup`", call.interface);
        Box::pin(std::future::ready(Err(Failure::new(code::DENIED, message))))
    }
}

fn script_error(message: impl Into<String>) -> ScriptError {
    ScriptError { message: message.into(), location: None }
}

/// Converts a failure of the pack. Removes the place from the end of the message, since the error has the place as its
/// location.
fn explain_failure(failure: Failure, name: &str) -> ScriptError {
    let details = failure.details.unwrap_or_default();
    let number = |key: &str| usize::try_from(details.get(key)?.as_u64()?).ok();
    let place = number("line").zip(number("column"));
    let shown = place.map(|(line, column)| format!(" ({name}:{line}:{column})")).unwrap_or_default();
    if failure.code == code::STACK_OVERFLOW {
        return script_error(
            "the script exceeds the sandbox's stack: its text, or the calls of its first lines and `setup`, are \
             nested too deeply",
        );
    }
    let message = failure.message.strip_suffix(shown.as_str()).unwrap_or(&failure.message);
    ScriptError { message: message.to_owned(), location: place }
}
