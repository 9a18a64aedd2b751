//! A Restate server for tests. It ends with the test process, even if that process is killed.

use std::{
    collections::BTreeSet,
    env,
    fs::File,
    io::{Read, Write},
    net::{TcpListener, TcpStream},
    ops::Deref,
    path::PathBuf,
    process::{Child, Command, Stdio},
    sync::{Mutex, MutexGuard, OnceLock, PoisonError},
    time::{Duration, Instant},
};

/// A running Restate server.
pub(crate) struct Server {
    pub(crate) ingress: u16,
    pub(crate) admin: u16,
    /// The watcher of the server. Its standard input closes at the end of this process, and then the watcher stops the
    /// server.
    _watched: Child,
}

/// A shell script that runs a server until standard input is closed, and then removes its folder.
const WATCHER: &str = r#"folder=$1; shift; exec 3<&0
"$@" </dev/null >>"$folder/log" 2>&1 3<&- & server=$!
while read -r line <&3; do :; done
kill -s KILL "$server"; wait "$server"; rm -rf "$folder""#;

static SERVER: OnceLock<Result<Server, String>> = OnceLock::new();

/// A turn of a test at the server. New invocations go to the process that has registered last, so tests take turns.
pub(crate) struct Turn(
    &'static Server,
    #[allow(dead_code, reason = "held until the end of the test")] MutexGuard<'static, ()>,
);

impl Deref for Turn {
    type Target = Server;

    fn deref(&self) -> &Server {
        self.0
    }
}

static TURN: Mutex<()> = Mutex::new(());

/// Returns the server, and starts it at the first call. If it is not installed, prints the name of the skipped test and
/// returns `None`.
pub(crate) fn server() -> Option<Turn> {
    let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    match SERVER.get_or_init(|| start(&[])) {
        Ok(server) => Some(Turn(server, turn)),
        Err(why) => {
            let test = std::thread::current().name().unwrap_or("a test").to_owned();
            assert!(env::var_os("FLOWCELL_TEST_SERVERS").is_none(), "{test} needs a server: {why}");
            eprintln!("skipped: {test}: {why}");
            None
        }
    }
}

/// Starts a server for one test. If it is not installed, prints the name of the skipped test and returns `None`.
pub(crate) fn own_server() -> Option<Server> {
    // The shared server shows whether it is installed.
    drop(server()?);
    Some(start(&[]).unwrap())
}

/// Shows the log of this process if `FLOWCELL_TEST_LOG` has a filter.
pub(crate) fn log() {
    let filter = tracing_subscriber::EnvFilter::from_env("FLOWCELL_TEST_LOG");
    // Only the first call of a test binary sets the log.
    let _ = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).try_init();
}

/// Returns a port that no program uses, and that no test of this process gets later. A cluster calls the port of its
/// process also while that process is away.
pub(crate) fn free_port() -> u16 {
    static GIVEN: Mutex<BTreeSet<u16>> = Mutex::new(BTreeSet::new());
    loop {
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        if GIVEN.lock().unwrap().insert(port) {
            return port;
        }
    }
}

/// Returns the path of the server. The command of the npm package is a script that starts the server as its child, which
/// would outlive a killed script.
fn program() -> Result<PathBuf, String> {
    let path = env::var_os("PATH").unwrap_or_default();
    let of_package = |system: &str| format!("../@restatedev/restate-server-{system}/bin/restate-server");
    let names = [of_package("linux-x64"), of_package("linux-arm64"), "restate-server".to_owned()];
    let is_program = |path: &PathBuf| {
        let mut start = [0; 4];
        File::open(path).and_then(|mut file| file.read_exact(&mut start)).is_ok() && start == *b"\x7fELF"
    };
    let all = env::split_paths(&path).flat_map(|folder| names.clone().map(|name| folder.join(name)));
    all.into_iter().find(is_program).ok_or_else(|| "`restate-server` is not installed".to_owned())
}

/// Starts a server with more settings, each as the name and the value of an environment variable.
pub(crate) fn start(more: &[(&str, String)]) -> Result<Server, String> {
    let program = program()?;
    let folder = tempfile::Builder::new().prefix("flowcell-restate-").tempdir().unwrap().keep();
    File::create(folder.join("log")).unwrap();
    let [ingress, admin, node] = [free_port(), free_port(), free_port()];
    let settings = [
        ("RESTATE_INGRESS__BIND_ADDRESS", format!("127.0.0.1:{ingress}")),
        ("RESTATE_ADMIN__BIND_ADDRESS", format!("127.0.0.1:{admin}")),
        ("RESTATE_BIND_ADDRESS", format!("127.0.0.1:{node}")),
        ("RESTATE_LISTEN_MODE", "tcp".into()),
        ("RESTATE_DISABLE_TELEMETRY", "true".into()),
        ("RESTATE_ROCKSDB_TOTAL_MEMORY_SIZE", "128MB".into()),
        ("RESTATE_DEFAULT_NUM_PARTITIONS", "4".into()),
        ("RESTATE_LOG_FILTER", "warn".into()),
        ("DO_NOT_TRACK", "1".into()),
    ];
    let mut command = Command::new("sh");
    command.args(["-c", WATCHER, "sh"]).arg(&folder).arg(program);
    command.args(["--no-logo", "--node-name", "node", "--base-dir"]).arg(folder.join("data"));
    command.envs(settings.into_iter().chain(more.iter().map(|(name, value)| (*name, value.clone()))));
    command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
    let watched = command.spawn().unwrap();
    let began = Instant::now();
    while !(answers(admin, "/health") && answers(ingress, "/restate/health")) {
        if began.elapsed() > Duration::from_secs(60) {
            let log = std::fs::read_to_string(folder.join("log")).unwrap_or_default();
            return Err(format!("the server does not start:\n{log}"));
        }
        std::thread::yield_now();
    }
    Ok(Server { ingress, admin, _watched: watched })
}

/// Posts a JSON text, and returns the body of the answer.
pub(crate) fn post(port: u16, path: &str, body: &str) -> String {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
    let length = body.len();
    let head = format!("POST {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Type: application/json\r\n");
    stream.write_all(format!("{head}Content-Length: {length}\r\n\r\n{body}").as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    assert!(head.starts_with("HTTP/1.1 2"), "{answer}");
    body.to_owned()
}

/// Returns true if a server answers a request with 200.
fn answers(port: u16, path: &str) -> bool {
    let Ok(mut stream) = TcpStream::connect(("127.0.0.1", port)) else { return false };
    let request = format!("GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
    let mut answer = String::new();
    stream.write_all(request.as_bytes()).is_ok()
        && stream.read_to_string(&mut answer).is_ok()
        && answer.starts_with("HTTP/1.1 200")
}

impl Server {
    /// Returns the URL of a store on this server.
    pub(crate) fn url(&self) -> String {
        format!("restate://127.0.0.1:{},127.0.0.1:{}", self.ingress, self.admin)
    }
}
