//! A server in this process, and a simple HTTP client.

use std::{
    io::{BufRead, BufReader, Write},
    net::{SocketAddr, TcpStream},
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use flowcell_platform::{
    Host, HostBuilder,
    notify::{Notifications, Notifier, NotifyFile},
    reload::Reloader,
    settings_file::SettingsFile as _,
};
use flowcell_server::{
    Limits, Pages, Server, Settings,
    identity::{Identify, Local},
    tls::TlsFiles,
};
use serde_json::Value;
use tokio::sync::oneshot;

/// The read timeout of connections.
const READ_TIMEOUT: Duration = Duration::from_secs(60);

/// A server that drives the runs of its own temporary folder.
pub(crate) struct Served {
    pub(crate) address: SocketAddr,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<std::thread::JoinHandle<()>>,
    folder: Option<tempfile::TempDir>,
    host: Host,
    reloader: Arc<Reloader>,
}

impl Served {
    pub(crate) fn local() -> Served {
        Served::with(Arc::new(Local), Limits::default())
    }

    pub(crate) fn with(identity: Arc<dyn Identify>, limits: Limits) -> Served {
        Served::of(|_| identity, limits)
    }

    /// Starts a server whose identity provider is made from its host.
    pub(crate) fn of(identity: impl FnOnce(&Host) -> Arc<dyn Identify>, limits: Limits) -> Served {
        Served::built(|builder| builder, identity, limits)
    }

    /// Starts a server whose host has additional settings.
    pub(crate) fn built(
        build: impl FnOnce(HostBuilder) -> HostBuilder,
        identity: impl FnOnce(&Host) -> Arc<dyn Identify>,
        limits: Limits,
    ) -> Served {
        let folder = tempfile::tempdir().unwrap();
        let cache = Path::new(env!("CARGO_TARGET_TMPDIR")).join("cache");
        let builder = Host::builder().cache_dir(cache).instances(16).state_dir(folder.path());
        let host = build(builder).build().unwrap();
        let identity = identity(&host);
        Served::over(host, folder, identity, limits)
    }

    /// Starts a server with a given host. Its flows are in `flows` below `folder`.
    pub(crate) fn over(host: Host, folder: tempfile::TempDir, identity: Arc<dyn Identify>, limits: Limits) -> Served {
        Served::behind(&[], host, folder, identity, limits)
    }

    /// Starts a server behind proxies that it trusts.
    pub(crate) fn behind(
        proxies: &[&str],
        host: Host,
        folder: tempfile::TempDir,
        identity: Arc<dyn Identify>,
        limits: Limits,
    ) -> Served {
        Served::with_pages(None, proxies, host, folder, identity, limits)
    }

    /// Starts a server with pages for people.
    pub(crate) fn with_pages(
        pages: Option<Pages>,
        proxies: &[&str],
        host: Host,
        folder: tempfile::TempDir,
        identity: Arc<dyn Identify>,
        limits: Limits,
    ) -> Served {
        Served::begin((pages, None, None), proxies, host, folder, identity, limits)
    }

    /// Starts a server with pages for people, and with notifications. `file` is the text of their file, which is in the
    /// folder.
    pub(crate) fn with_notifications(
        pages: Option<Pages>,
        host: Host,
        folder: tempfile::TempDir,
        identity: Arc<dyn Identify>,
        file: &str,
    ) -> Served {
        std::fs::write(folder.path().join("notify.yaml"), file).unwrap();
        let file = Some(folder.path().join("notify.yaml"));
        Served::begin((pages, None, file), &[], host, folder, identity, Limits::default())
    }

    /// Starts a server that speaks TLS and requires no tokens.
    pub(crate) fn with_tls(tls: TlsFiles, limits: Limits) -> Served {
        let folder = tempfile::tempdir().unwrap();
        let cache = Path::new(env!("CARGO_TARGET_TMPDIR")).join("cache");
        let host = Host::builder().cache_dir(cache).state_dir(folder.path()).build().unwrap();
        Served::begin((None, Some(tls), None), &[], host, folder, Arc::new(Local), limits)
    }

    fn begin(
        (pages, tls, notify): (Option<Pages>, Option<TlsFiles>, Option<PathBuf>),
        proxies: &[&str],
        host: Host,
        folder: tempfile::TempDir,
        identity: Arc<dyn Identify>,
        limits: Limits,
    ) -> Served {
        let proxies = proxies.iter().map(|proxy| proxy.parse().unwrap()).collect();
        let drain_delay = Duration::ZERO;
        let flows = folder.path().join("flows");
        let (told, hears) = std::sync::mpsc::channel();
        let own = host.clone();
        let (stop, stopped) = oneshot::channel::<()>();
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
            runtime.block_on(async move {
                let listen = "127.0.0.1:0".parse().unwrap();
                let names = Vec::new();
                let notifications = match notify {
                    Some(file) => Some(notify_from(&host, &identity, &file).await),
                    None => None,
                };
                let settings = Settings {
                    listen,
                    identity,
                    flows,
                    names,
                    proxies,
                    tls,
                    limits,
                    pages,
                    notifications,
                    sign_ins: None,
                    drain_delay,
                };
                let server = Server::bind(host, settings).await.unwrap();
                told.send((server.address(), server.reloader())).unwrap();
                server.run(async move { _ = stopped.await }).await.unwrap();
            });
        });
        let (address, reloader) = hears.recv().unwrap();
        Served { address, stop: Some(stop), thread: Some(thread), folder: Some(folder), host: own, reloader }
    }

    /// Returns the host of the server.
    pub(crate) fn host(&self) -> Host {
        self.host.clone()
    }

    /// Returns what reads the packs, flows and triggers of the server again.
    pub(crate) fn reloader(&self) -> &Reloader {
        &self.reloader
    }

    /// Returns the server's temporary folder.
    pub(crate) fn folder(&self) -> &Path {
        self.folder.as_ref().unwrap().path()
    }

    /// Begins to stop the server, and does not wait for its end.
    pub(crate) fn begin_stop(&mut self) {
        // The server may have ended before.
        let _ = self.stop.take().map(|stop| stop.send(()));
    }

    /// Stops the server. Returns its folder.
    pub(crate) fn end(mut self) -> tempfile::TempDir {
        self.begin_stop();
        self.thread.take().unwrap().join().unwrap();
        self.folder.take().unwrap()
    }

    pub(crate) fn ask(&self, method: &str, path: &str, body: &str) -> Answer {
        ask(self.address, method, path, &[], body)
    }

    pub(crate) fn get(&self, path: &str) -> Answer {
        self.ask("GET", path, "")
    }

    pub(crate) fn post(&self, path: &str, body: &Value) -> Answer {
        self.ask("POST", path, &body.to_string())
    }

    /// Waits until a run has ended, and returns it.
    #[track_caller]
    pub(crate) fn ended(&self, run: &str) -> Value {
        let view = || self.get(&format!("/v1/runs/{run}")).json();
        let has_ended = |view: &Value| !matches!(view["status"].as_str(), Some("running" | "parked"));
        (0..20_000).map(|_| view()).find(has_ended).unwrap_or_else(|| panic!("the run {run} does not end"))
    }
}

/// Sends the notifications of a file until the runtime ends.
async fn notify_from(host: &Host, identity: &Arc<dyn Identify>, file: &Path) -> Notifications {
    let notifier = Notifier::open(host, identity.clone(), &NotifyFile::read(file).unwrap()).await.unwrap();
    let control = notifier.control().with_file(file);
    tokio::spawn(notifier.attend(std::future::pending()));
    control
}

impl Drop for Served {
    fn drop(&mut self) {
        self.begin_stop();
        _ = self.thread.take().map(|thread| thread.join().unwrap());
    }
}

/// The answer of a server.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: String,
    /// The number of bytes of the body as it was sent.
    pub(crate) body_bytes: usize,
}

impl Answer {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let header = self.headers.iter().find(|(known, _)| known == name);
        header.map(|(_, value)| value.as_str())
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    /// Returns the status and the code of an error, and checks the format of the error. Routes under `/api` send their
    /// codes in uppercase; these codes are returned in lowercase.
    pub(crate) fn fault(&self) -> (u16, String) {
        let json = self.json();
        let error = json["error"].as_object().unwrap_or_else(|| panic!("no failure: {self:?}"));
        assert!(error["message"].as_str().is_some_and(|message| !message.is_empty()), "{self:?}");
        assert!(error.keys().all(|key| ["code", "message", "details"].contains(&key.as_str())), "{self:?}");
        (self.status, error["code"].as_str().unwrap().to_lowercase())
    }
}

/// Opens a connection.
pub(crate) fn connect(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(READ_TIMEOUT)).unwrap();
    stream
}

/// Starts a request without sending its body, and waits until the server asks for the body. `headers` are whole lines.
pub(crate) fn begin_body(stream: TcpStream, address: SocketAddr, headers: &str) -> BufReader<TcpStream> {
    let mut stream = announce(stream, address, &format!("Content-Length: 9\r\n{headers}"));
    wait_for_continue(&mut stream);
    stream
}

/// Sends the head of a request with `Expect: 100-continue`, so that the server has to ask for the body. `headers` are
/// whole lines.
pub(crate) fn announce(mut stream: TcpStream, address: SocketAddr, headers: &str) -> BufReader<TcpStream> {
    let head = format!(
        "POST /v1/validate HTTP/1.1\r\nHost: {address}\r\nContent-Type: application/json\r\n{headers}\
         Expect: 100-continue\r\n\r\n"
    );
    stream.write_all(head.as_bytes()).unwrap();
    BufReader::new(stream)
}

/// Waits until the server asks for the body of a request.
pub(crate) fn wait_for_continue(stream: &mut BufReader<TcpStream>) {
    let mut line = String::new();
    stream.read_line(&mut line).unwrap();
    assert!(line.starts_with("HTTP/1.1 100 "), "{line}");
    stream.read_line(&mut line).unwrap();
}

/// Opens a connection from one of this machine's own addresses.
pub(crate) fn connect_from(from: &str, address: SocketAddr) -> TcpStream {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let stream = runtime.block_on(async {
        let socket = tokio::net::TcpSocket::new_v4().unwrap();
        socket.bind(format!("{from}:0").parse().unwrap()).unwrap();
        socket.connect(address).await.unwrap().into_std().unwrap()
    });
    stream.set_nonblocking(false).unwrap();
    stream.set_read_timeout(Some(READ_TIMEOUT)).unwrap();
    stream
}

/// Sends a request on a new connection, and reads the answer.
pub(crate) fn ask(address: SocketAddr, method: &str, path: &str, headers: &[(&str, &str)], body: &str) -> Answer {
    let stream = connect(address);
    send(&stream, address, method, path, headers, body);
    read(&mut BufReader::new(stream))
}

pub(crate) fn send(
    mut stream: &TcpStream,
    address: SocketAddr,
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
    body: &str,
) {
    // A server that refuses a request early does not read all of it.
    let _ = stream.write_all(request(address, method, path, headers, body).as_bytes());
}

/// Returns the text of a request.
pub(crate) fn request(address: SocketAddr, method: &str, path: &str, headers: &[(&str, &str)], body: &str) -> String {
    let mut text = format!("{method} {path} HTTP/1.1\r\n");
    if !headers.iter().any(|(name, _)| name.eq_ignore_ascii_case("host")) {
        text.push_str(&format!("Host: {address}\r\n"));
    }
    headers.iter().for_each(|(name, value)| text.push_str(&format!("{name}: {value}\r\n")));
    if !body.is_empty() {
        if !headers.iter().any(|(name, _)| name.eq_ignore_ascii_case("content-type")) {
            text.push_str("Content-Type: application/json\r\n");
        }
        text.push_str(&format!("Content-Length: {}\r\n", body.len()));
    }
    text.push_str("\r\n");
    text.push_str(body);
    text
}

/// Reads an answer with its body, which may come in chunks.
pub(crate) fn read(stream: &mut impl BufRead) -> Answer {
    let mut answer = head(stream);
    let mut body = Vec::new();
    if answer.header("transfer-encoding") == Some("chunked") {
        while let Some(chunk) = chunk(stream) {
            body.extend(chunk);
        }
    } else {
        body.resize(answer.header("content-length").map_or(0, |length| length.parse().unwrap()), 0);
        stream.read_exact(&mut body).unwrap();
    }
    answer.body_bytes = body.len();
    // Only a compressed body is no text.
    answer.body = match answer.header("content-encoding") {
        None => String::from_utf8(body).unwrap(),
        Some(_) => String::from_utf8_lossy(&body).into_owned(),
    };
    answer
}

/// Reads the next chunk of a body, or returns `None` at its end.
pub(crate) fn chunk(stream: &mut impl BufRead) -> Option<Vec<u8>> {
    let mut size = String::new();
    stream.read_line(&mut size).unwrap();
    let size = usize::from_str_radix(size.trim_end(), 16).unwrap_or(0);
    let mut chunk = vec![0; size + "\r\n".len()];
    match size {
        // A connection that is cut has no last chunk.
        0 => _ = stream.read_line(&mut String::new()).unwrap(),
        _ => stream.read_exact(&mut chunk).unwrap(),
    }
    chunk.truncate(size);
    (size > 0).then_some(chunk)
}

/// Reads the head of an answer.
pub(crate) fn head(stream: &mut impl BufRead) -> Answer {
    let mut lines = stream.lines().map(Result::unwrap);
    let first = lines.next().unwrap();
    let status = first.split(' ').nth(1).unwrap().parse().unwrap();
    let pairs = lines.take_while(|line| !line.is_empty()).map(|line| {
        let (name, value) = line.split_once(':').unwrap();
        (name.to_ascii_lowercase(), value.trim().to_owned())
    });
    Answer { status, headers: pairs.collect(), body: String::new(), body_bytes: 0 }
}
