//! Waiting for the next thing that comes in.

use std::task::{Context, Poll};

use futures_util::{FutureExt, StreamExt};

use super::{Driver, Incoming};
use crate::outstanding::Timer;

impl Driver {
    pub(super) async fn next(&mut self) -> Incoming {
        if let Some(command) = self.notes_to_self.pop_front() {
            return Incoming::Command(command);
        }
        self.drop_waiting();
        let due = self.timers.first(&self.state);
        self.sleep_until(self.wakes(due));
        std::future::poll_fn(|context| self.poll_next(context, due)).await
    }

    /// When there is something to do: a timer is due, or somebody may have waited for long.
    pub(super) fn wakes(&self, due: Option<(u64, Timer)>) -> Option<u64> {
        due.map(|(at, _)| at).into_iter().chain(self.dozing.due()).min()
    }

    /// Sees to it that the driver wakes at this time. Most timers are withdrawn before they are due, and setting the clock
    /// costs more than waking once too often: a sleep that ends earlier is kept.
    pub(super) fn sleep_until(&mut self, due: Option<u64>) {
        match (due, &self.sleeping) {
            (None, _) => self.sleeping = None,
            (Some(due), Some((sleeping, _))) if *sleeping <= due => {}
            (Some(due), _) => self.sleeping = Some((due, self.world.timers.wait(due))),
        }
    }

    /// Commands before answers: what an attempt noted was sent before its answer.
    pub(super) fn poll_next(&mut self, context: &mut Context<'_>, due: Option<(u64, Timer)>) -> Poll<Incoming> {
        if self.trail.poll(context).is_ready() {
            return Poll::Ready(Incoming::Durable);
        }
        if let Poll::Ready(Some(command)) = self.commands.poll_recv(context) {
            return Poll::Ready(Incoming::Command(command));
        }
        if let Some(answered) = self.answer.take() {
            return Poll::Ready(Incoming::Answered(answered));
        }
        while let Poll::Ready(Some(answered)) = self.attempts.poll_next_unpin(context) {
            if let Ok(answered) = answered {
                // The attempt may have asked for something since the commands were looked at.
                return Poll::Ready(match self.commands.poll_recv(context) {
                    Poll::Ready(Some(command)) => {
                        self.answer = Some(answered);
                        Incoming::Command(command)
                    }
                    _ => Incoming::Answered(answered),
                });
            }
        }
        while let Poll::Ready(Some(ended)) = self.calls.poll_next_unpin(context) {
            if let Ok(ended) = ended {
                return Poll::Ready(Incoming::CallEnded(ended));
            }
        }
        while let Some((slept, sleep)) = &mut self.sleeping {
            if sleep.poll_unpin(context).is_pending() {
                break;
            }
            let slept = *slept;
            self.sleeping = None;
            if let Some((_, timer)) = due.filter(|(due, _)| *due <= slept) {
                return Poll::Ready(Incoming::Due(timer));
            }
            self.drop_waiting();
            self.sleep_until(self.wakes(due));
        }
        if self.hurried {
            self.hurry();
            return self.trail.poll(context).map(|()| Incoming::Durable);
        }
        Poll::Pending
    }
}
