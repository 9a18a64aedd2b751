//! Drives one run to the end of its driver.

use std::panic::AssertUnwindSafe;

use flowcell_engine::Permit;
use flowcell_runtime::RunResult;
use futures_util::{FutureExt, future::BoxFuture};

use super::Key;

/// Drives a run, and then gives its permit back. If the driver panics, logs it and returns no result: the store has the
/// run as it was at its last commit, and the next process resumes it.
pub(super) async fn drive(
    key: Key,
    permit: Permit,
    running: BoxFuture<'static, RunResult>,
) -> (Key, Option<RunResult>) {
    let result = AssertUnwindSafe(running).catch_unwind().await;
    drop(permit);
    if result.is_err() {
        let (tenant, run) = &key;
        tracing::error!(
            "the driver of the run `{run}` of `{tenant}` panicked; this process does not drive the run again, and the \
             next one resumes it"
        );
    }
    (key, result.ok())
}

#[cfg(test)]
mod tests {
    use flowcell_contract::Tenant;
    use flowcell_engine::FairSemaphore;

    use super::*;

    #[test]
    fn a_driver_that_panics_gives_its_permit_back() {
        let tenant = Tenant::local();
        let permits = FairSemaphore::new(1);
        let permit = permits.try_take(&tenant, 1).unwrap();
        let key = (tenant.clone(), "r".into());
        let driven = drive(key.clone(), permit, Box::pin(async { panic!("a driver") }));
        let (of, result) = driven.now_or_never().unwrap();
        assert!(of == key && result.is_none());
        assert_eq!(permits.available(&tenant), 1);
    }
}
