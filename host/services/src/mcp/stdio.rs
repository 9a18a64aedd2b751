//! The transport of messages over the standard input and output of a program, one message per line.

use std::{io, sync::Arc, time::Duration};

use flowcell_contract::Failure;
use rmcp::{
    RoleClient,
    model::{ClientJsonRpcMessage, ServerJsonRpcMessage},
    transport::Transport,
};
use tokio::{
    io::AsyncWriteExt,
    process::{ChildStdin, ChildStdout},
    sync::{Mutex, Notify, watch},
};

use super::{MAX_LINE, child::Pipes, read_message, watch::ConnectionState};
use crate::{
    code,
    lines::{Line, Lines},
};

/// Time limit for writing one message. The program must read the message within this time.
const WRITE_TIMEOUT: Duration = Duration::from_secs(30);
/// Maximum time to wait for the program's exit after the end of its output, so that the failure can describe it.
const MAX_EXIT_WAIT: Duration = Duration::from_millis(500);

/// The transport of messages. It does not own the program; the connection does.
pub(super) struct Stdio {
    input: Arc<Mutex<ChildStdin>>,
    output: Lines<ChildStdout>,
    exit: watch::Receiver<Option<String>>,
    state: Arc<ConnectionState>,
    /// Notified when the program did not read a message within [`WRITE_TIMEOUT`]. The host then also stops reading.
    unread: Arc<Notify>,
    ended: bool,
}

impl Stdio {
    pub(super) fn new(pipes: Pipes, state: Arc<ConnectionState>) -> Stdio {
        Stdio {
            input: Arc::new(Mutex::new(pipes.input)),
            output: Lines::new(pipes.output, MAX_LINE),
            exit: pipes.exit,
            state,
            unread: Arc::default(),
            ended: false,
        }
    }

    /// Returns the next message, or `None` at the end.
    async fn message(&mut self) -> Option<ServerJsonRpcMessage> {
        while !self.ended {
            match self.output.next().await {
                Ok(Some(Line::Whole(line))) if line.trim_ascii().is_empty() => {}
                Ok(Some(Line::Whole(line))) => {
                    match read_message(&line, "the server wrote a line that is not a message") {
                        Ok(message) => return Some(message),
                        Err(failure) => self.end(failure),
                    }
                }
                Ok(Some(Line::Cut(_))) => {
                    let message = format!("the server wrote a line of more than {MAX_LINE} bytes");
                    self.end(Failure::new(code::MCP_TOO_LARGE, message));
                }
                Ok(None) | Err(_) => self.ended = true,
            }
        }
        None
    }

    fn end(&mut self, failure: Failure) {
        self.state.end(failure);
        self.ended = true;
    }
}

/// Records the program's exit as the reason for the end of the connection, unless a reason is recorded already.
async fn record_exit(mut exit: watch::Receiver<Option<String>>, state: &ConnectionState) {
    let ended = tokio::time::timeout(MAX_EXIT_WAIT, exit.wait_for(Option::is_some)).await;
    let how = ended.ok().and_then(Result::ok).and_then(|status| status.clone());
    let message = how.map_or_else(
        || "the server closed its input or its output".to_owned(),
        |how| format!("the server ended ({how})"),
    );
    state.end(Failure::retryable(code::MCP_BROKEN, message));
}

impl Transport<RoleClient> for Stdio {
    type Error = io::Error;

    fn send(&mut self, message: ClientJsonRpcMessage) -> impl Future<Output = io::Result<()>> + Send + 'static {
        let (input, state, unread) = (self.input.clone(), self.state.clone(), self.unread.clone());
        let exit = self.exit.clone();
        async move {
            let mut line = serde_json::to_vec(&message)?;
            line.push(b'\n');
            let mut input = input.lock().await;
            let written = tokio::time::timeout(WRITE_TIMEOUT, input.write_all(&line)).await;
            state.handle_sent(&message);
            match written {
                Ok(Ok(())) => Ok(()),
                Ok(Err(error)) => {
                    record_exit(exit, &state).await;
                    Err(error)
                }
                Err(_) => {
                    let message = format!("the server did not read for {} s", WRITE_TIMEOUT.as_secs());
                    state.end(Failure::retryable(code::MCP_BROKEN, message));
                    unread.notify_one();
                    Err(io::ErrorKind::TimedOut.into())
                }
            }
        }
    }

    async fn receive(&mut self) -> Option<ServerJsonRpcMessage> {
        let unread = self.unread.clone();
        let message = tokio::select! {
            message = self.message() => message,
            () = unread.notified() => None,
        };
        match message {
            Some(message) if self.state.handle_incoming(&message).is_ok() => Some(message),
            message => {
                self.ended = true;
                if message.is_none() {
                    record_exit(self.exit.clone(), &self.state).await;
                }
                None
            }
        }
    }

    async fn close(&mut self) -> io::Result<()> {
        self.input.lock().await.shutdown().await
    }
}
