//! `flowcell lsp`: serves an editor that writes flows, in the protocol of language servers.
//!
//! | module | content |
//! |---|---|
//! | frames | the frames of messages on a stream |
//! | session | open files, requests and diagnostics |
//! | request | the file that a request is about, and its errors |
//! | answers | replies to requests about an open file |
//! | shapes | places, edits and diagnostics as the protocol writes them |

mod answers;
mod frames;
mod request;
mod session;
mod shapes;

use std::{
    io::{self, BufReader, Write},
    sync::mpsc::{TryRecvError, sync_channel},
    thread,
};

use clap::Args;

use self::{
    frames::{Frame, read_frame},
    session::Session,
};
use crate::{
    cli_error::{CliError, Exit},
    options::{BesideArgs, PackArgs},
};

/// Maximum number of messages that wait.
const QUEUE_CAPACITY: usize = 64;

/// Arguments of `flowcell lsp`.
#[derive(Args)]
pub(crate) struct LspArgs {
    #[command(flatten)]
    packs: PackArgs,
    #[command(flatten)]
    beside: BesideArgs,
}

pub(super) fn execute(args: &LspArgs) -> Result<Exit, CliError> {
    let host = args.packs.checking_host(&args.beside)?;
    let (sender, receiver) = sync_channel(QUEUE_CAPACITY);
    // The thread ends with the process: nothing can interrupt a read of standard input.
    thread::spawn(move || {
        let mut input = BufReader::new(io::stdin());
        loop {
            let frame = read_frame(&mut input);
            let is_last = matches!(frame, Err(_) | Ok(None));
            if sender.send(frame).is_err() || is_last {
                return;
            }
        }
    });
    let mut session = Session::new(host);
    let mut out = io::stdout().lock();
    loop {
        let frame = match receiver.try_recv() {
            Ok(frame) => frame,
            // While nothing waits, the changed files are checked.
            Err(TryRecvError::Empty) => {
                for message in session.check_next() {
                    write(&mut out, &message)?;
                }
                if session.has_unchecked() {
                    continue;
                }
                match receiver.recv() {
                    Ok(frame) => frame,
                    Err(_) => return Ok(Exit::Failed),
                }
            }
            Err(TryRecvError::Disconnected) => return Ok(Exit::Failed),
        };
        match frame {
            Ok(Some(Frame::Message(message))) => {
                for reply in session.handle(message) {
                    write(&mut out, &reply)?;
                }
            }
            Ok(Some(Frame::Unreadable(why))) => {
                let written = out.write_all(&frames::refusal(&why)).and_then(|()| out.flush());
                written.map_err(|error| closed(&error))?;
            }
            Ok(None) => return Ok(session.exit()),
            Err(error) => {
                return Err(CliError::wrong(format!("the client on standard input does not speak LSP: {error}"))
                    .hint("start this command from an editor; `flowcell help editor` shows the settings of editors"));
            }
        }
        if session.is_over() {
            return Ok(session.exit());
        }
    }
}

fn write(out: &mut impl Write, message: &lsp_server::Message) -> Result<(), CliError> {
    message.write(out).map_err(|error| closed(&error))
}

fn closed(error: &io::Error) -> CliError {
    CliError::wrong("the editor has closed the connection").because(error)
}
