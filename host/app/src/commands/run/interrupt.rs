//! Ctrl-C: the first cancels the run, the second ends the process.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
};

use flowcell::Hub;

use super::screen::Screen;
use crate::problem::{Exit, Problem};

/// Whether somebody interrupted the run.
pub(super) struct Interrupts(Arc<AtomicBool>);

impl Interrupts {
    /// Listens on a thread of its own, so that the second Ctrl-C works whatever the run is busy with.
    pub(super) fn watch(hub: Hub, screen: Arc<Screen>) -> Result<Interrupts, Problem> {
        let happened = Arc::new(AtomicBool::new(false));
        let seen = happened.clone();
        let cannot = |error: &std::io::Error| Problem::internal("cannot listen for Ctrl-C").because(error);
        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_io().build().map_err(|error| cannot(&error))?;
        let listen = move || runtime.block_on(listen(&hub, &screen, &seen));
        thread::Builder::new().name("interrupts".into()).spawn(listen).map_err(|error| cannot(&error))?;
        Ok(Interrupts(happened))
    }

    /// Whether there was one.
    pub(super) fn happened(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }
}

async fn listen(hub: &Hub, screen: &Screen, seen: &AtomicBool) {
    // Without signals there is nothing to listen to, and Ctrl-C ends the process.
    if tokio::signal::ctrl_c().await.is_err() {
        return;
    }
    seen.store(true, Ordering::Release);
    screen.break_in("interrupted: cancelling the run; Ctrl-C again quits at once");
    tokio::join!(async { hub.abort().await.ok() }, async {
        if tokio::signal::ctrl_c().await.is_ok() {
            std::process::exit(i32::from(Exit::Interrupted.code()));
        }
    });
}
