//! Compares a run over HTTP with the same run inside the process.

use std::{
    io::BufReader,
    net::TcpStream,
    thread,
    time::{Duration, Instant},
};

use flowcell::{Host, RunOptions, RunStatus, Source};
use serde_json::json;

use super::{
    THREE,
    client::{Served, connect, read, send},
    percentile,
};

/// Runs for each median.
const RUNS: usize = 1_000;
/// The number of rounds in a turn; each round measures one run of each kind. In the first turn, the rounds of the
/// first half are not counted.
const RUNS_PER_TURN: usize = 100;
/// Connections that send requests at the same time.
const CONNECTIONS: usize = 8;

pub(crate) fn post() {
    let served = Served::local();
    assert_eq!(served.post("/v1/flows", &json!({ "flow": THREE })).status, 201);
    let folder = tempfile::tempdir().unwrap();
    let host = Host::builder().state_dir(folder.path()).build().unwrap();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let mut connection = Connection::open(&served);
    let (mut over, mut inside, mut whole, mut bare) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    let flow = host.load_source(Source { name: "three.yaml".into(), text: THREE.into() }).unwrap();
    for turn in 0..RUNS / RUNS_PER_TURN {
        for run in 0..RUNS_PER_TURN {
            let (named, brought) = (connection.timed(r#"{"flow":"three"}"#), connection.timed(&inline()));
            let nothing = connection.bare();
            let since = Instant::now();
            let ended = runtime.block_on(runtime.spawn(host.runner(&flow, quiet()).unwrap().run())).unwrap();
            assert_eq!(ended.status, RunStatus::Succeeded);
            // Skip the first runs, which include compiling.
            if turn > 0 || run > RUNS_PER_TURN / 2 {
                inside.push(since.elapsed());
                over.push(named);
                whole.push(brought);
                bare.push(nothing);
            }
        }
    }
    let [over, inside, whole, bare] =
        [&mut over, &mut inside, &mut whole, &mut bare].map(|times| percentile(times, 50));
    let us = |time: Duration| time.as_nanos() as f64 / 1e3;
    println!(
        "a run of three nodes on one connection: {:.0} µs by its name, {:.0} µs with the flow in the request; inside the \
         process {:.0} µs: {:.0} µs are added; a request that needs nothing takes {:.0} µs",
        us(over),
        us(whole),
        us(inside),
        us(over) - us(inside),
        us(bare)
    );
    let since = Instant::now();
    thread::scope(|scope| {
        for _ in 0..CONNECTIONS {
            scope.spawn(|| {
                let mut connection = Connection::open(&served);
                (0..RUNS / 2).for_each(|_| _ = connection.timed(r#"{"flow":"three"}"#));
            });
        }
    });
    let runs = (CONNECTIONS * RUNS / 2) as f64;
    println!("{CONNECTIONS} connections: {:.0} runs a second", runs / since.elapsed().as_secs_f64());
}

fn inline() -> String {
    json!({ "flow": THREE }).to_string()
}

fn quiet() -> RunOptions {
    RunOptions { without_events: true, ..RunOptions::default() }
}

/// A persistent connection.
pub(crate) struct Connection<'a> {
    served: &'a Served,
    stream: BufReader<TcpStream>,
    headers: Vec<(&'static str, String)>,
}

impl<'a> Connection<'a> {
    pub(crate) fn open(served: &'a Served) -> Connection<'a> {
        let stream = connect(served.address);
        stream.set_nodelay(true).unwrap();
        Connection { served, stream: BufReader::new(stream), headers: Vec::new() }
    }

    pub(crate) fn with_token(mut self, token: &str) -> Connection<'a> {
        self.headers.push(("Authorization", format!("Bearer {token}")));
        self
    }

    /// Starts a run and waits for its end.
    pub(crate) fn timed(&mut self, body: &str) -> Duration {
        let since = Instant::now();
        let (status, body) = self.start(body);
        assert_eq!(status, 201, "{body}");
        since.elapsed()
    }

    /// Sends a request whose response is constant.
    fn bare(&mut self) -> Duration {
        let since = Instant::now();
        send(self.stream.get_ref(), self.served.address, "GET", "/version", &[], "");
        assert_eq!(read(&mut self.stream).status, 200);
        since.elapsed()
    }

    fn start(&mut self, body: &str) -> (u16, String) {
        self.ask("/v1/runs?wait=true", body)
    }

    /// Starts a run and does not wait for its end.
    pub(crate) fn start_only(&mut self, body: &str) -> (u16, String) {
        self.ask("/v1/runs", body)
    }

    fn ask(&mut self, path: &str, body: &str) -> (u16, String) {
        let headers: Vec<_> = self.headers.iter().map(|(name, value)| (*name, value.as_str())).collect();
        send(self.stream.get_ref(), self.served.address, "POST", path, &headers, body);
        let answer = read(&mut self.stream);
        (answer.status, answer.body)
    }
}
