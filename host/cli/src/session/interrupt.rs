//! Handles signals. The first Ctrl-C cancels the run, and the second one ends the process at once. After SIGTERM the
//! process stops without cancelling the run, and another process may resume it. But a run in memory is cancelled,
//! since no other process can resume it.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU8, Ordering},
    },
    thread,
};

use flowcell::Hub;

use super::screen::Screen;
use crate::cli_error::{CliError, Exit};

/// The reason why a run was interrupted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Interruption {
    /// The run was not interrupted.
    None,
    /// A person has cancelled the run.
    Cancelled,
    /// SIGTERM has stopped the process. Another process may resume the run.
    Stopped,
}

/// The first interruption of the run. A thread that listens for signals sets it.
pub(crate) struct Interrupts(Arc<AtomicU8>);

impl Interrupts {
    /// Starts the thread that listens for signals, so that a second signal works even if the run is busy. `kept` is
    /// true for a persistent store: SIGTERM then stops the process without cancelling the run.
    pub(crate) fn watch(hub: Hub, screen: Arc<Screen>, kept: bool) -> Result<Interrupts, CliError> {
        let happened = Arc::new(AtomicU8::new(Interruption::None as u8));
        let seen = happened.clone();
        let cannot = |error: &std::io::Error| CliError::internal("cannot listen for Ctrl-C").because(error);
        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_io().build().map_err(|error| cannot(&error))?;
        let listen = move || runtime.block_on(listen(&hub, &screen, &seen, kept));
        thread::Builder::new().name("interrupts".into()).spawn(listen).map_err(|error| cannot(&error))?;
        Ok(Interrupts(happened))
    }

    /// Returns the first interruption.
    pub(crate) fn first(&self) -> Interruption {
        let seen = self.0.load(Ordering::Acquire);
        [Interruption::Cancelled, Interruption::Stopped]
            .into_iter()
            .find(|which| *which as u8 == seen)
            .unwrap_or(Interruption::None)
    }
}

async fn listen(hub: &Hub, screen: &Screen, seen: &AtomicU8, kept: bool) {
    // If the process cannot listen for signals, each signal ends it at once.
    let Ok(mut signals) = Signals::listen() else { return };
    let which = match signals.next().await {
        Some(Signal::Terminate) if kept => Interruption::Stopped,
        Some(_) => Interruption::Cancelled,
        None => return,
    };
    seen.store(which as u8, Ordering::Release);
    screen.warn_on_new_line(match which {
        Interruption::Stopped => "stopping; the store keeps the run; a second signal quits immediately",
        _ => "interrupted: cancelling the run; Ctrl-C again quits immediately",
    });
    let obey = async {
        match which {
            Interruption::Stopped => hub.stop().await,
            _ => _ = hub.abort().await,
        }
    };
    tokio::join!(obey, async {
        if let Some(signal) = signals.next().await {
            std::process::exit(i32::from(signal.exit().code()));
        }
    });
}

/// A signal that ends a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Signal {
    /// SIGINT, from Ctrl-C.
    Interrupt,
    /// SIGTERM, from the system.
    Terminate,
}

impl Signal {
    /// Returns the outcome of a process that this signal ends at once.
    pub(crate) fn exit(self) -> Exit {
        match self {
            Signal::Interrupt => Exit::Interrupted,
            Signal::Terminate => Exit::Stopped,
        }
    }
}

/// A stream of the signals that end a process.
pub(crate) struct Signals {
    #[cfg(unix)]
    terminate: tokio::signal::unix::Signal,
}

impl Signals {
    /// Starts to listen. From now on SIGTERM does not end the process. From the first call of `next` on, SIGINT does
    /// not end it either.
    pub(crate) fn listen() -> std::io::Result<Signals> {
        #[cfg(unix)]
        let terminate = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate())?;
        Ok(Signals {
            #[cfg(unix)]
            terminate,
        })
    }

    /// Returns the next signal, or `None` if the process can receive no more signals.
    pub(crate) async fn next(&mut self) -> Option<Signal> {
        #[cfg(unix)]
        let terminated = self.terminate.recv();
        #[cfg(not(unix))]
        let terminated = std::future::pending::<Option<()>>();
        tokio::select! {
            interrupted = tokio::signal::ctrl_c() => interrupted.ok().map(|()| Signal::Interrupt),
            terminated = terminated => terminated.map(|()| Signal::Terminate),
        }
    }
}
