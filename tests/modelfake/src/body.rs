//! A response body that is sent in pieces, with pauses and faults.

use std::{
    collections::VecDeque,
    io,
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use bytes::Bytes;
use hyper::body::{Body, Frame};
use tokio::time::{Sleep, sleep};

/// One step in sending a response body.
#[derive(Debug)]
pub(crate) enum Step {
    /// Sends these bytes.
    Send(Bytes),
    /// Waits for this time.
    Wait(Duration),
    /// Sends nothing more, and keeps the connection open.
    Stall,
    /// Closes the connection.
    Cut,
}

/// The steps in sending a response body that are still to be made.
#[derive(Debug, Default)]
pub(crate) struct Steps {
    left: VecDeque<Step>,
    waiting: Option<Pin<Box<Sleep>>>,
}

impl Steps {
    pub(crate) fn new(steps: impl IntoIterator<Item = Step>) -> Steps {
        Steps { left: steps.into_iter().collect(), waiting: None }
    }

    pub(crate) fn whole(bytes: impl Into<Bytes>) -> Steps {
        Steps::new([Step::Send(bytes.into())])
    }
}

impl Body for Steps {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        loop {
            if let Some(waiting) = &mut self.waiting {
                match waiting.as_mut().poll(context) {
                    Poll::Pending => return Poll::Pending,
                    Poll::Ready(()) => self.waiting = None,
                }
            }
            match self.left.pop_front() {
                None => return Poll::Ready(None),
                Some(Step::Send(bytes)) => return Poll::Ready(Some(Ok(Frame::data(bytes)))),
                Some(Step::Wait(time)) => self.waiting = Some(Box::pin(sleep(time))),
                Some(Step::Stall) => {
                    self.left.push_front(Step::Stall);
                    return Poll::Pending;
                }
                Some(Step::Cut) => return Poll::Ready(Some(Err(io::ErrorKind::ConnectionReset.into()))),
            }
        }
    }
}
