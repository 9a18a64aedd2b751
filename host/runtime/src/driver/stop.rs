//! Stopping in good order: the process is to end, and another one goes on with the run.
//!
//! Nothing begins any more. Calls that have left are waited for, for a while, so that nobody has to ask what became of
//! them; attempts are dropped, and repeated as after a crash. The run is then parked, and due at once.

use super::Driver;
use crate::{decide::Input, hub::Command, limits::CALL_GRACE_MS, result::Rest};

/// How far a driver has stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stopping {
    /// Ends of calls, and children, are waited for until this time.
    Until(u64),
    /// They have been waited for long enough.
    Now,
}

impl Driver {
    /// The process is to end. Whoever says so again, after the time is over, waits no longer.
    pub(super) fn stop(&mut self) {
        let now = self.world.timers.now();
        match self.stopping {
            Some(Stopping::Until(until)) if until <= now => self.stopping = Some(Stopping::Now),
            Some(_) => {}
            None => {
                let until = now.saturating_add(CALL_GRACE_MS);
                self.stopping = Some(Stopping::Until(until));
                self.stand_still();
                self.queued.clear();
                let (wait, commands) = (self.world.timers.wait(until), self.site.commands.clone());
                tokio::spawn(async move {
                    wait.await;
                    // The run may have stopped meanwhile.
                    let _ = commands.send(Command::Stop).await;
                });
                for child in self.children.values_mut() {
                    child.rest = None;
                    let hub = child.hub.clone();
                    tokio::spawn(async move { hub.stop().await });
                }
            }
        }
    }

    /// Whether nothing is waited for any more before the run is put down.
    pub(super) fn has_stopped(&self) -> bool {
        match self.stopping {
            None => false,
            Some(Stopping::Now) => true,
            Some(Stopping::Until(_)) => {
                self.leaving.is_empty() && self.children.values().all(|child| child.rest.is_some())
            }
        }
    }

    /// Records that the run was put down: whoever looks for work finds it.
    pub(super) async fn put_down(&mut self) {
        let _ = self.bring(Input::Park { due: Some(self.world.timers.now()), needs_attention: false });
        self.leave().await;
        if let Some((commands, task)) = &self.parent {
            let rest = Some(Rest { waiting: Vec::new(), due: None });
            let _ = commands.send(Command::ChildRests { task: *task, rest }).await;
        }
    }
}
