//! The server that the flows of these tests call. It records every request, and executes requests with the same
//! idempotency key once.

use std::{
    collections::{HashMap, HashSet},
    io::{BufRead, BufReader, Read, Write},
    net::{TcpListener, TcpStream},
    path::{Path, PathBuf},
    sync::{Arc, Condvar, Mutex, MutexGuard},
    thread,
    time::Duration,
};

use serde_json::{Value, json};

use crate::faults::{checker, dice::Dice};

/// The server's treatment of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    /// The server executes the request and answers.
    Answered,
    /// The server executes the request and closes the connection.
    Unanswered,
    /// The server closes the connection without executing the request.
    Refused,
}

/// A request that arrived completely.
#[derive(Clone, Debug)]
pub(crate) struct Arrival {
    pub(crate) key: String,
    /// The effect that the flow declares: `idempotent`, `at-least-once` or `once`.
    pub(crate) effect: String,
    pub(crate) errand: String,
    pub(crate) index: u64,
    pub(crate) fate: Fate,
}

/// The server's records.
#[derive(Clone, Default)]
pub(crate) struct Book {
    pub(crate) arrivals: Vec<Arrival>,
    /// Responses to executed requests, by idempotency key.
    pub(crate) answers: HashMap<String, Value>,
    /// The number of times that a person has allowed to repeat a request, by idempotency key.
    pub(crate) repeats: HashMap<String, usize>,
    /// Violations that the checker has found at the arrival of a request.
    pub(crate) wrong: Vec<String>,
}

/// The state of the server.
#[derive(Default)]
struct Serving {
    book: Book,
    /// The number of open connections, and the ports of all connections so far.
    open: usize,
    ports: HashSet<u16>,
    dice: Dice,
    /// Percentage of requests that get no response: the server refuses half of them, and executes the other half.
    trouble: u64,
    /// Requests whose member `errand` begins with this prefix get no response. With `None`, all requests may get one.
    held: Option<&'static str>,
}

/// The server. Clones share its state.
#[derive(Clone)]
pub(crate) struct Ledger(Arc<Shared>);

struct Shared {
    port: u16,
    store: PathBuf,
    serving: Mutex<Serving>,
    changed: Condvar,
}

impl Ledger {
    /// Starts a server that checks the store at each arrival of a request. `trouble` is the percentage of requests
    /// that get no response: the server refuses half of them, and executes the other half.
    pub(crate) fn new(store: &Path, seed: u64, trouble: u64) -> Ledger {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let serving = Serving { dice: Dice(seed), trouble, ..Serving::default() };
        let shared = Shared { port, store: store.to_owned(), serving: Mutex::new(serving), changed: Condvar::new() };
        let ledger = Ledger(Arc::new(shared));
        let serving = ledger.clone();
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                serving.accept(&stream);
                let serving = serving.clone();
                thread::spawn(move || {
                    serving.serve(&stream);
                    drop(stream);
                    serving.serving().open -= 1;
                    serving.0.changed.notify_all();
                });
            }
        });
        ledger
    }

    /// Returns the server's origin, for flows.
    pub(crate) fn origin(&self) -> String {
        format!("http://{}", self.address())
    }

    pub(crate) fn address(&self) -> String {
        format!("127.0.0.1:{}", self.0.port)
    }

    /// Returns a copy of the records.
    pub(crate) fn book(&self) -> Book {
        self.serving().book.clone()
    }

    fn serving(&self) -> MutexGuard<'_, Serving> {
        self.0.serving.lock().unwrap()
    }

    pub(crate) fn arrived(&self) -> usize {
        self.serving().book.arrivals.len()
    }

    /// Waits until `count` requests have arrived. Returns false if fewer have arrived after the time `patience`.
    pub(crate) fn await_arrivals(&self, count: usize, patience: Duration) -> bool {
        let waiting = |serving: &mut Serving| serving.book.arrivals.len() < count;
        !self.0.changed.wait_timeout_while(self.serving(), patience, waiting).unwrap().1.timed_out()
    }

    /// Waits until all requests of dead processes have arrived.
    pub(crate) fn await_quiet(&self) {
        // Connections are accepted in their order.
        let last = TcpStream::connect(self.address()).unwrap();
        let port = last.local_addr().unwrap().port();
        self.await_that(|serving| serving.ports.contains(&port));
        drop(last);
        self.await_that(|serving| serving.open == 0);
    }

    fn await_that(&self, holds: impl Fn(&Serving) -> bool) {
        let patience = Duration::from_secs(20);
        let waited = self.0.changed.wait_timeout_while(self.serving(), patience, |serving| !holds(serving)).unwrap();
        assert!(!waited.1.timed_out(), "a connection outlives whoever opened it");
    }

    /// From now on, withholds the responses to requests whose member `errand` begins with this prefix. With `None`,
    /// sends all responses again, also the withheld ones.
    pub(crate) fn hold(&self, errand: Option<&'static str>) {
        self.serving().held = errand;
        self.0.changed.notify_all();
    }

    /// Refuses no requests from now on, and answers all of them.
    pub(crate) fn end_trouble(&self) {
        self.serving().trouble = 0;
    }

    /// Returns the response to an executed request.
    pub(crate) fn answer_to(&self, key: &str) -> Option<Value> {
        self.serving().book.answers.get(key).cloned()
    }

    /// Records a person's decision that a request was not executed.
    pub(crate) fn allow_again(&self, key: &str) {
        *self.serving().book.repeats.entry(key.to_owned()).or_default() += 1;
    }

    fn accept(&self, stream: &TcpStream) {
        let mut serving = self.serving();
        serving.open += 1;
        serving.ports.extend(stream.peer_addr().map(|peer| peer.port()));
        drop(serving);
        self.0.changed.notify_all();
    }

    fn serve(&self, stream: &TcpStream) {
        let mut reader = BufReader::new(stream);
        while let Some((path, key, body)) = request(&mut reader) {
            let wrong = checker::check_arrival(&self.0.store, &key);
            let (answer, pause) = {
                let mut serving = self.serving();
                serving.book.wrong.extend(wrong.map(|wrong| format!("{path} {body} with the key {key}: {wrong}")));
                let arrival = Arrival {
                    fate: serving.fate(),
                    effect: path.trim_start_matches('/').to_owned(),
                    errand: body["errand"].as_str().unwrap_or_default().to_owned(),
                    index: body["index"].as_u64().unwrap_or_default(),
                    key: key.clone(),
                };
                let answer = (arrival.fate != Fate::Refused).then(|| serving.book.perform(&arrival));
                serving.book.arrivals.push(arrival.clone());
                let pause = if serving.trouble > 0 { serving.dice.below(12) } else { 0 };
                (answer.filter(|_| arrival.fate == Fate::Answered), Duration::from_millis(pause))
            };
            self.0.changed.notify_all();
            let Some(answer) = answer else { return };
            // Simulate a slow server.
            thread::sleep(pause);
            if !self.may_answer(stream, body["errand"].as_str().unwrap_or_default()) {
                return;
            }
            let text = answer.to_string();
            let head = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length";
            let mut stream = stream;
            if write!(stream, "{head}: {}\r\n\r\n{text}", text.len()).is_err() {
                return;
            }
        }
    }

    /// Waits while responses are withheld. Returns false if the client has gone.
    fn may_answer(&self, stream: &TcpStream, errand: &str) -> bool {
        let mut serving = self.serving();
        while serving.held.is_some_and(|held| errand.starts_with(held)) {
            serving = self.0.changed.wait_timeout(serving, Duration::from_millis(20)).unwrap().0;
            let _ = stream.set_nonblocking(true);
            let gone = matches!(stream.peek(&mut [0]), Ok(0)) || stream.take_error().ok().flatten().is_some();
            let _ = stream.set_nonblocking(false);
            if gone {
                return false;
            }
        }
        true
    }
}

impl Serving {
    fn fate(&mut self) -> Fate {
        match self.dice.below(200) {
            number if number < self.trouble => Fate::Refused,
            number if number < 2 * self.trouble => Fate::Unanswered,
            _ => Fate::Answered,
        }
    }
}

impl Book {
    fn perform(&mut self, arrival: &Arrival) -> Value {
        let number = self.answers.len();
        let answer = || json!({ "effect": number, "errand": arrival.errand, "index": arrival.index });
        self.answers.entry(arrival.key.clone()).or_insert_with(answer).clone()
    }
}

/// Reads the path, key and body of the next request. Returns `None` if it is incomplete.
fn request(reader: &mut BufReader<&TcpStream>) -> Option<(String, String, Value)> {
    let mut line = String::new();
    reader.read_line(&mut line).ok().filter(|read| *read > 0)?;
    let path = line.split(' ').nth(1)?.to_owned();
    let (mut key, mut length) = (String::new(), 0);
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).ok().filter(|read| *read > 0)?;
        let Some((name, value)) = line.trim_end().split_once(": ") else { break };
        match name.to_ascii_lowercase().as_str() {
            "idempotency-key" => key = value.to_owned(),
            "content-length" => length = value.parse().ok()?,
            _ => {}
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).ok()?;
    Some((path, key, serde_json::from_slice(&body).ok()?))
}
