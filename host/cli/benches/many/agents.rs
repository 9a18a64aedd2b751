//! Measures agents: the delay from a model's text to a channel, and the cost of many agents that wait for slow models.

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    path::Path,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
        mpsc,
    },
    thread,
    time::{Duration, Instant},
};

use flowcell::{Channel, Event, Host, LiveEvent, LoadedFlow, Providers, RunOptions, RunStatus};

use super::{load, median, memory_of, scaled};

const FLOW: &str = "
flow: { name: agents, outputs: { said: '{{ bot.result }}' } }
nodes:
  - { id: bot, type: agent.run, input: { prompt: Tell me something. }, grants: { model: ['*'], tools: ['data.*'] } }
";

/// The number of turns of the model. In each turn, the first text is timed.
const TURNS: usize = scaled(300);
/// The time before the model begins to write. Meanwhile the client and the server wait, as in practice.
const MODEL_DELAY: Duration = Duration::from_millis(5);
/// Numbers of agents that wait at the same time.
const FEWER_AGENTS: usize = scaled(1_000);
const MANY_AGENTS: usize = scaled(10_000);

fn host(folder: &Path, profile: &str) -> (Host, LoadedFlow) {
    let text = format!("default: it\nprofiles:\n  it: {profile}\n");
    let providers = Providers::parse(&text, folder).unwrap();
    let host = Host::builder().state_dir(folder.join("state")).providers(providers).build().unwrap();
    let flow = load(&host, FLOW);
    (host, flow)
}

/// A provider that waits before it answers, and records the time of its first byte of text.
struct Provider {
    address: SocketAddr,
    wrote: mpsc::Receiver<Instant>,
}

impl Provider {
    fn start() -> Provider {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let (sender, wrote) = mpsc::channel();
        thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let sender = sender.clone();
                thread::spawn(move || serve(stream, &sender));
            }
        });
        Provider { address, wrote }
    }
}

fn serve(mut stream: TcpStream, wrote: &mpsc::Sender<Instant>) {
    stream.set_nodelay(true).unwrap();
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    while read_request(&mut reader).is_some() {
        let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n";
        stream.write_all(head.as_bytes()).unwrap();
        thread::sleep(MODEL_DELAY);
        let first = r#"data: {"choices":[{"index":0,"delta":{"role":"assistant","content":"Once"}}]}"#;
        let _ = wrote.send(Instant::now());
        let _ = stream.write_all(format!("{first}\n\n").as_bytes());
        thread::sleep(MODEL_DELAY);
        let last = r#"data: {"choices":[{"index":0,"delta":{},"finish_reason":"stop"}],"usage":{"prompt_tokens":3,"completion_tokens":1}}"#;
        let _ = stream.write_all(format!("{last}\n\ndata: [DONE]\n\n").as_bytes());
        let _ = stream.shutdown(std::net::Shutdown::Both);
    }
}

/// Reads one whole request.
fn read_request(reader: &mut BufReader<TcpStream>) -> Option<()> {
    let mut length = 0;
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line).ok()? == 0 {
            return None;
        }
        if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
            length = value.trim().parse().ok()?;
        }
        if line == "\r\n" {
            return reader.read_exact(&mut vec![0; length]).ok();
        }
    }
}

/// Returns the time at which a minimal client receives the first text.
fn bare(address: SocketAddr) -> Instant {
    let mut stream = TcpStream::connect(address).unwrap();
    let body = r#"{"model":"m","stream":true,"messages":[{"role":"user","content":"Tell me something."}]}"#;
    let head = format!("POST /v1/chat/completions HTTP/1.1\r\nhost: it\r\ncontent-length: {}\r\n\r\n", body.len());
    stream.write_all(format!("{head}{body}").as_bytes()).unwrap();
    let (mut came, mut piece) = (Vec::new(), [0; 4096]);
    while !came.windows(4).any(|part| part == b"Once") {
        let read = stream.read(&mut piece).unwrap();
        came.extend_from_slice(&piece[..read]);
    }
    let at = Instant::now();
    stream.read_to_end(&mut came).unwrap();
    at
}

/// Records the time at which the channel receives the first text.
#[derive(Default)]
struct FirstText(Mutex<Option<Instant>>);

impl Channel for FirstText {
    fn on_event(&self, _: &Event) {}

    fn on_live(&self, event: &LiveEvent) {
        if &*event.kind == "agent:text" {
            self.0.lock().unwrap().get_or_insert_with(Instant::now);
        }
    }
}

/// Measures the time from the provider's first byte of text to a run's channel, and to a minimal client.
pub(super) fn delta(folder: &Path) {
    let provider = Provider::start();
    let address = provider.address;
    let profile =
        format!("{{ dialect: chat, baseUrl: 'http://{address}/v1', auth: none, model: m, allowPrivate: [127.0.0.1] }}");
    let (host, flow) = host(folder, &profile);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let (mut heard, mut read) = (Vec::new(), Vec::new());
    for _ in 0..TURNS {
        let channel = Arc::new(FirstText::default());
        let options = RunOptions { channels: vec![channel.clone()], without_events: true, ..RunOptions::default() };
        let result = runtime.block_on(host.runner(&flow, options).unwrap().run());
        assert_eq!(result.status, RunStatus::Succeeded, "{:?}", result.error);
        let at = channel.0.lock().unwrap().take().unwrap();
        heard.push(at.duration_since(provider.wrote.recv().unwrap()));
        let at = bare(address);
        read.push(at.duration_since(provider.wrote.recv().unwrap()));
    }
    let us = |times: &[Duration], part: usize| {
        let mut times = times.to_vec();
        times.sort();
        times[times.len() * part / 100].as_secs_f64() * 1e6
    };
    let (p50, bare) = (us(&heard, 50), us(&read, 50));
    println!(
        "from a provider's first byte to the text on a channel: p50 {p50:.0} us, p95 {:.0} us; bare client: p50 {bare:.0} us, \
         p95 {:.0} us; added: {:.0} us",
        us(&heard, 95),
        us(&read, 95),
        median(heard.iter().zip(&read).map(|(heard, read)| heard.as_secs_f64() - read.as_secs_f64()).collect()) * 1e6
    );
}

/// Counts agents that wait for a model.
#[derive(Default)]
struct Waiting(AtomicUsize);

impl Channel for Waiting {
    fn on_event(&self, event: &Event) {
        if event.kind == "call:start" {
            self.0.fetch_add(1, Ordering::AcqRel);
        }
    }
}

/// Measures the memory per agent while many agents wait for a slow model: first with their sandbox instances, and again
/// after the host has dropped the instances.
pub(super) fn waiting(folder: &Path) {
    let (host, flow) = host(folder, "{ dialect: simulated, model: m, script: [{ text: ok, delayMs: 3600000 }] }");
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    let count = Arc::new(Waiting::default());
    let own = || memory_of(std::process::id(), "VmRSS").unwrap();
    let begin = |from: usize, to: usize| {
        for _ in from..to {
            let options = RunOptions { channels: vec![count.clone()], without_events: true, ..RunOptions::default() };
            runtime.spawn(host.runner(&flow, options).unwrap().run());
        }
        while count.0.load(Ordering::Acquire) < to {
            thread::sleep(Duration::from_millis(5));
        }
    };
    // Allocate everything that exists only once beforehand: compiled code, caches, first pages.
    begin(0, 1);
    let before = own();
    let each = |memory: u64, agents: usize| memory.saturating_sub(before) as f64 / agents as f64;
    begin(1, FEWER_AGENTS + 1);
    let kept = each(own(), FEWER_AGENTS);
    // The host drops instances after 5 s.
    thread::sleep(Duration::from_secs(8));
    let dropped = each(own(), FEWER_AGENTS);
    println!(
        "{FEWER_AGENTS} agents that wait for a slow model: {kept:.1} KiB each with instances, {dropped:.1} KiB without"
    );
    begin(FEWER_AGENTS + 1, MANY_AGENTS + 1);
    thread::sleep(Duration::from_secs(8));
    println!(
        "{MANY_AGENTS} agents that wait for a slow model: {:.1} KiB each, without instances",
        each(own(), MANY_AGENTS)
    );
    runtime.shutdown_background();
}
