//! Ctrl-C: the first cancels the run, the second ends the process. SIGTERM: the process ends in good order, and the run
//! goes on in another one; a run that nobody keeps is cancelled.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU8, Ordering},
    },
    thread,
};

use flowcell::Hub;

use super::screen::Screen;
use crate::problem::{Exit, Problem};

/// Who interrupted a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Interruption {
    /// Nobody.
    None,
    /// A person, and it is cancelled.
    Cancelled,
    /// Whoever ends processes, and another one may go on with it.
    Stopped,
}

/// Whether somebody interrupted the run.
pub(crate) struct Interrupts(Arc<AtomicU8>);

impl Interrupts {
    /// Listens on a thread of its own, so that the second signal works whatever the run is busy with. Only a run that is
    /// kept can be stopped without being cancelled.
    pub(crate) fn watch(hub: Hub, screen: Arc<Screen>, kept: bool) -> Result<Interrupts, Problem> {
        let happened = Arc::new(AtomicU8::new(Interruption::None as u8));
        let seen = happened.clone();
        let cannot = |error: &std::io::Error| Problem::internal("cannot listen for Ctrl-C").because(error);
        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_io().build().map_err(|error| cannot(&error))?;
        let listen = move || runtime.block_on(listen(&hub, &screen, &seen, kept));
        thread::Builder::new().name("interrupts".into()).spawn(listen).map_err(|error| cannot(&error))?;
        Ok(Interrupts(happened))
    }

    /// Who did first.
    pub(crate) fn which(&self) -> Interruption {
        let seen = self.0.load(Ordering::Acquire);
        [Interruption::Cancelled, Interruption::Stopped]
            .into_iter()
            .find(|which| *which as u8 == seen)
            .unwrap_or(Interruption::None)
    }
}

async fn listen(hub: &Hub, screen: &Screen, seen: &AtomicU8, kept: bool) {
    // Without signals there is nothing to listen to, and each ends the process.
    let Ok(mut signals) = Signals::listen() else { return };
    let which = match signals.next().await {
        Some(Signal::Terminate) if kept => Interruption::Stopped,
        Some(_) => Interruption::Cancelled,
        None => return,
    };
    seen.store(which as u8, Ordering::Release);
    screen.break_in(match which {
        Interruption::Stopped => "stopping; the run is kept, and a second signal quits at once",
        _ => "interrupted: cancelling the run; Ctrl-C again quits at once",
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

/// What ends a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Signal {
    /// Ctrl-C.
    Interrupt,
    /// SIGTERM.
    Terminate,
}

impl Signal {
    /// How a process ends that does not wait.
    pub(crate) fn exit(self) -> Exit {
        match self {
            Signal::Interrupt => Exit::Interrupted,
            Signal::Terminate => Exit::Stopped,
        }
    }
}

/// The signals that end a process.
pub(crate) struct Signals {
    #[cfg(unix)]
    terminate: tokio::signal::unix::Signal,
}

impl Signals {
    /// Listens for them from now on; they end nothing by themselves any more.
    pub(crate) fn listen() -> std::io::Result<Signals> {
        #[cfg(unix)]
        let terminate = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate())?;
        Ok(Signals {
            #[cfg(unix)]
            terminate,
        })
    }

    /// The next; none: none can come.
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
