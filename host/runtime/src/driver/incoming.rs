//! The inputs of the driver: facts that became durable, commands, answers of attempts, ends of calls, and timers.

use std::task::{Context, Poll};

use super::{Driver, attempts::Answered, calls::Ended};
use crate::{hub::Command, outstanding::Timer};

/// An input.
pub(super) enum Incoming {
    /// More units of the journal are durable.
    Durable,
    Command(Command),
    Answered(Answered),
    CallEnded(Ended),
    Due(Timer),
}

/// Polls the sources of input. An attempt sends its commands before its answer, so commands come first.
pub(super) fn poll_next(driver: &mut Driver, context: &mut Context<'_>, due: Option<(u64, Timer)>) -> Poll<Incoming> {
    if driver.outbox.queue().poll(context).is_ready() {
        return Poll::Ready(Incoming::Durable);
    }
    if let Poll::Ready(Some(command)) = driver.commands.poll_recv(context) {
        return Poll::Ready(Incoming::Command(command));
    }
    if let Some(answered) = driver.attempts.take_back() {
        return Poll::Ready(Incoming::Answered(answered));
    }
    if let Poll::Ready(answered) = driver.attempts.poll(context) {
        // The attempt may have sent a command since the last poll of the commands.
        return Poll::Ready(match driver.commands.poll_recv(context) {
            Poll::Ready(Some(command)) => {
                driver.attempts.put_back(answered);
                Incoming::Command(command)
            }
            _ => Incoming::Answered(answered),
        });
    }
    if let Poll::Ready(ended) = driver.calls.poll(context) {
        return Poll::Ready(Incoming::CallEnded(ended));
    }
    while let Poll::Ready(slept) = driver.clock.poll(context) {
        if let Some((_, timer)) = due.filter(|(due, _)| *due <= slept) {
            return Poll::Ready(Incoming::Due(timer));
        }
        driver.evict_waiting();
        driver.set_wake(due);
    }
    if driver.outbox.is_hurried() {
        driver.force_journal();
        return driver.outbox.queue().poll(context).map(|()| Incoming::Durable);
    }
    Poll::Pending
}
