//! Measures runs whose nodes send requests to a local server, in wall time and in computing time.

use std::{
    env,
    fmt::Write as _,
    io::{BufRead, BufReader, Read, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    thread,
    time::Duration,
};

use flowcell::{AddressRange, Host, LoadedFlow};
use futures_util::future::join_all;
use rustix::time::{ClockId, clock_gettime};

use super::{
    ROUNDS,
    calls::{self, BODY_BYTES, BareStore},
    load, median, medians, runtime, timed,
};

/// The argument with which this program is the server.
pub(super) const SERVE: &str = "--serve";
const CHAIN_LENGTH: usize = 100;
const SHORT_CHAIN_LENGTH: usize = 10;
const FLOWS_AT_ONCE: usize = 50;
/// How often each of the short chains runs in one measurement.
const REPEATS: usize = 10;
const ANSWER: &str = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 11\r\n\r\n{\"ok\":true}";

/// A server in a process of its own, so that its computing time does not count.
struct Server {
    process: Child,
    address: SocketAddr,
}

impl Server {
    fn start() -> Server {
        let mut command = Command::new(env::current_exe().unwrap());
        let mut process = command.arg(SERVE).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(process.stdout.take().unwrap()).read_line(&mut line).unwrap();
        Server { process, address: line.trim().parse().unwrap() }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Answers every request with the same text, until the standard input ends.
pub(super) fn serve() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    println!("{}", listener.local_addr().unwrap());
    thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            thread::spawn(move || answer(&stream));
        }
    });
    let _ = std::io::stdin().read_to_end(&mut Vec::new());
}

fn answer(mut stream: &TcpStream) {
    let mut head = Vec::new();
    let mut chunk = [0; 4096];
    while let Ok(length @ 1..) = stream.read(&mut chunk) {
        head.extend_from_slice(&chunk[..length]);
        if head.ends_with(b"\r\n\r\n") {
            head.clear();
            if stream.write_all(ANSWER.as_bytes()).is_err() {
                return;
            }
        }
    }
}

/// A connection without Flowcell.
struct BareConnection(TcpStream);

impl BareConnection {
    fn open(address: SocketAddr) -> BareConnection {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_nodelay(true).unwrap();
        BareConnection(stream)
    }

    fn request(&mut self) {
        let request = "GET /errand HTTP/1.1\r\nhost: localhost\r\naccept: */*\r\naccept-encoding: gzip\r\n\r\n";
        self.0.write_all(request.as_bytes()).unwrap();
        let mut answer = [0; ANSWER.len()];
        self.0.read_exact(&mut answer).unwrap();
    }
}

/// Returns a chain of requests.
fn chain(address: SocketAddr, length: usize) -> String {
    let mut text = format!("flow: {{ name: requests{length} }}\nnodes:\n");
    for at in 0..length {
        let input = format!("{{ url: 'http://{address}/errand' }}");
        let grants = format!("{{ http: ['http://{address}'] }}");
        writeln!(text, "  - {{ id: n{at}, type: http.request, input: {input}, grants: {grants} }}").unwrap();
    }
    text.push_str("edges:\n");
    (1..length).for_each(|at| writeln!(text, "  - {{ from: n{}, to: n{at} }}", at - 1).unwrap());
    text
}

fn host(state: Option<PathBuf>) -> Host {
    let builder = Host::builder().allow_private(["127.0.0.0/8".parse::<AddressRange>().unwrap()]);
    state.into_iter().fold(builder, |builder, state| builder.state_dir(state)).build().unwrap()
}

/// Returns the computing time of this process so far.
fn computed() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

fn micros(time: Duration, steps: usize) -> f64 {
    time.as_secs_f64() * 1e6 / steps as f64
}

/// Compares a chain of requests with as many bare requests and bare commits. Then measures many short chains at once.
pub(super) fn effects(folder: &Path) {
    let server = Server::start();
    let mut connection = BareConnection::open(server.address);
    let store = BareStore::new(folder);
    let body = "x".repeat(BODY_BYTES);
    let (kept, memory) = (host(Some(folder.join("state"))), host(None));
    for (name, host) in [("durable", &kept), ("in memory", &memory)] {
        let flow = load(host, &chain(server.address, CHAIN_LENGTH));
        // Run as the command line runs one run.
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let mut busy = Vec::new();
        let mut ours = || {
            let before = computed();
            let lap = timed(|| runtime.block_on(calls::run(host, &flow)));
            busy.push(computed() - before);
            lap
        };
        // The first run fills the caches and the store's log.
        ours();
        let theirs = || {
            timed(|| {
                for _ in 0..CHAIN_LENGTH {
                    connection.request();
                    if name == "durable" {
                        store.commit(&body, Duration::ZERO);
                    }
                }
            })
        };
        let (ours, theirs) = medians(ours, theirs);
        println!(
            "chain of {CHAIN_LENGTH} requests, {name}: {:.0} µs a step, bare {:.0} µs, ratio {:.2}; {:.0} µs of computing time",
            micros(ours, CHAIN_LENGTH),
            micros(theirs, CHAIN_LENGTH),
            ours.as_secs_f64() / theirs.as_secs_f64(),
            micros(median(busy), CHAIN_LENGTH),
        );
        together(name, host, &server);
    }
}

fn together(name: &str, host: &Host, server: &Server) {
    let runtime = runtime();
    let flow = load(host, &chain(server.address, SHORT_CHAIN_LENGTH));
    let steps = FLOWS_AT_ONCE * SHORT_CHAIN_LENGTH * REPEATS;
    let laps: Vec<_> = (0..=ROUNDS)
        .map(|_| {
            let before = computed();
            let lap = timed(|| runtime.block_on(all(host, &flow)));
            (lap, computed() - before)
        })
        .skip(1)
        .collect();
    let lap = median(laps.iter().map(|(lap, _)| *lap).collect());
    let busy = median(laps.iter().map(|(_, busy)| *busy).collect());
    println!(
        "{FLOWS_AT_ONCE} chains of {SHORT_CHAIN_LENGTH} requests at once, {name}: {:.0} steps/s, {:.0} µs of computing time a step",
        steps as f64 / lap.as_secs_f64(),
        micros(busy, steps),
    );
}

async fn all(host: &Host, flow: &LoadedFlow) {
    let each = || async {
        for _ in 0..REPEATS {
            calls::run(host, flow).await;
        }
    };
    join_all((0..FLOWS_AT_ONCE).map(|_| each())).await;
}
