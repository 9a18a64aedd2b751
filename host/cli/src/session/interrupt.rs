//! Handles signals. The first Ctrl-C cancels the run, and the second ends the process. After SIGTERM the process stops
//! in order, and another one may resume the run. A run in memory is cancelled.

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
    /// SIGTERM has stopped the process. Another one may resume the run.
    Stopped,
}

/// The interruption of the run, shared with the thread that listens for signals.
pub(crate) struct Interrupts(Arc<AtomicU8>);

impl Interrupts {
    /// Listens on its own thread, so that a second signal works even if the run is busy. Only a run in a persistent
    /// store (`kept`) is stopped without being cancelled.
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
    pub(crate) fn which(&self) -> Interruption {
        let seen = self.0.load(Ordering::Acquire);
        [Interruption::Cancelled, Interruption::Stopped]
            .into_iter()
            .find(|which| *which as u8 == seen)
            .unwrap_or(Interruption::None)
    }
}

async fn listen(hub: &Hub, screen: &Screen, seen: &AtomicU8, kept: bool) {
    // If the process cannot listen, each signal ends it.
    let Ok(mut signals) = Signals::listen() else { return };
    let which = match signals.next().await {
        Some(Signal::Terminate) if kept => Interruption::Stopped,
        Some(_) => Interruption::Cancelled,
        None => return,
    };
    seen.store(which as u8, Ordering::Release);
    screen.break_in(match which {
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
    /// Returns the outcome of a process that quits at once.
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
    /// Starts to listen. From now on these signals do not end the process.
    pub(crate) fn listen() -> std::io::Result<Signals> {
        #[cfg(unix)]
        let terminate = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate())?;
        Ok(Signals {
            #[cfg(unix)]
            terminate,
        })
    }

    /// Returns the next signal, or `None` if no more can come.
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
