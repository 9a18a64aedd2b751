//! Takes connections on the control socket, and ends in good order.
//!
//! A client whose connection breaks without an answer cannot tell whether its request was handled. So a process that ends
//! removes its socket first. Then it answers those that have connected already, with a refusal, and waits for the answers
//! under way. The next request finds no socket, and its client looks for the next owner.

use std::{
    io,
    os::unix::net::{UnixListener, UnixStream},
    path::{Path, PathBuf},
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use parking_lot::{Condvar, Mutex};

use super::{Driver, Reach, serve_connection, socket};
use crate::Host;

/// Maximum time for which a process that ends waits for its answers to requests.
const MAX_ANSWER_TIME: Duration = Duration::from_secs(1);

/// The control socket of this process.
pub struct Listening {
    folder: PathBuf,
    listener: Arc<UnixListener>,
    server: Arc<Server>,
}

struct Server {
    host: Host,
    owner: Arc<dyn Driver>,
    reach: Reach,
    requests: Arc<Requests>,
}

/// The requests that have come and have no answer yet.
#[derive(Default)]
struct Requests {
    state: Mutex<State>,
    answered: Condvar,
}

#[derive(Default)]
struct State {
    open: usize,
    is_ending: bool,
}

/// Counts a request until this is dropped.
pub(super) struct Admittance {
    requests: Arc<Requests>,
    is_refused: bool,
}

impl Admittance {
    fn of(requests: &Arc<Requests>) -> Admittance {
        let mut state = requests.state.lock();
        state.open += 1;
        Admittance { requests: requests.clone(), is_refused: state.is_ending }
    }

    /// Returns true if the request came when the process was about to end.
    pub(super) fn is_refused(&self) -> bool {
        self.is_refused
    }
}

impl Drop for Admittance {
    fn drop(&mut self) {
        self.requests.state.lock().open -= 1;
        self.requests.answered.notify_all();
    }
}

impl Server {
    fn serve(self: &Arc<Server>, stream: UnixStream) {
        let (server, admittance) = (self.clone(), Admittance::of(&self.requests));
        let answering = thread::Builder::new().name("flowcell-answer".into());
        // If no thread starts, the connection closes without an answer.
        let _ = answering.spawn(move || {
            serve_connection(&server.host, &stream, &*server.owner, &server.reach, admittance);
        });
    }
}

/// Answers requests of other processes until this process ends. `owner` drives the runs that other processes hand over.
/// After each request that may have made runs ready, its [`Driver::notify_ready`] is called. Handed-over runs get at
/// most the access in `reach`.
pub fn listen(host: &Host, folder: &Path, owner: Arc<dyn Driver>, reach: Reach) -> io::Result<Listening> {
    // The store's lock guarantees that no other process listens here.
    let listener = Arc::new(socket::bind(folder)?);
    let server = Arc::new(Server { host: host.clone(), owner, reach, requests: Arc::default() });
    let (accepting, serving) = (listener.clone(), server.clone());
    thread::Builder::new().name("flowcell-control".into()).spawn(move || {
        for stream in accepting.incoming() {
            match stream {
                Ok(stream) => serving.serve(stream),
                // The listener no longer waits for connections.
                Err(_) if serving.requests.state.lock().is_ending => return,
                Err(_) => {}
            }
        }
    })?;
    Ok(Listening { folder: folder.to_owned(), listener, server })
}

impl Listening {
    /// Stops to take requests: refuses those that have come too late, and waits for the answers to the others, for at most
    /// 1 s. Watchers get the events of their runs until the process ends.
    pub fn end(self) {
        socket::unbind(&self.folder);
        let requests = &self.server.requests;
        requests.state.lock().is_ending = true;
        if self.listener.set_nonblocking(true).is_ok() {
            while let Ok((stream, _)) = self.listener.accept() {
                // Some systems let it inherit the mode of the listener.
                let _ = stream.set_nonblocking(false);
                self.server.serve(stream);
            }
        }
        let (mut state, until) = (requests.state.lock(), Instant::now() + MAX_ANSWER_TIME);
        while state.open > 0 && !requests.answered.wait_until(&mut state, until).timed_out() {}
    }
}
