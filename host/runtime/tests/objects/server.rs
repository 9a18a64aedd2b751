//! Servers of S3 for tests: `moto_server`, from the package `moto` of PyPI. A server ends with the test process, even if
//! that process is killed.

use std::{
    env,
    io::{Read, Write},
    net::{TcpListener, TcpStream},
    process::{Child, Command, Stdio},
    sync::{
        OnceLock,
        atomic::{AtomicU32, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

/// A running server.
pub(crate) struct Moto {
    pub(crate) port: u16,
    /// The watcher of the server. Its standard input closes with this value, and then the watcher stops the server.
    _watcher: Child,
}

/// A script that runs a server until standard input is closed.
const WATCHER: &str =
    r#"exec 3<&0; "$@" </dev/null >/dev/null 2>&1 3<&- & server=$!; read -r _ <&3; kill "$server"; wait"#;

/// The longest time that a test waits for a server.
const PATIENCE: Duration = Duration::from_secs(60);

static MOTO: OnceLock<Option<Moto>> = OnceLock::new();
static BUCKETS: AtomicU32 = AtomicU32::new(0);

/// Returns the server that all tests share, and starts it at the first call. It accepts every key. If it is not installed,
/// prints the name of the skipped test and returns `None`. Panics instead if `FLOWCELL_TEST_NEEDS` lists it.
pub(crate) fn moto() -> Option<&'static Moto> {
    let moto = MOTO.get_or_init(|| {
        let paths = env::var_os("PATH").unwrap_or_default();
        env::split_paths(&paths).find(|folder| folder.join("moto_server").is_file())?;
        Some(start(&[]))
    });
    if moto.is_none() {
        let test = thread::current().name().unwrap_or("a test").to_owned();
        let needed = env::var("FLOWCELL_TEST_NEEDS").unwrap_or_default();
        assert!(!needed.split(',').any(|needed| needed == "moto_server"), "{test} needs `moto_server`");
        eprintln!("skipped: {test}: `moto_server` is missing");
    }
    moto.as_ref()
}

/// Starts a server with these variables of the environment.
pub(crate) fn start(variables: &[(&str, &str)]) -> Moto {
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let mut command = Command::new("sh");
    command.args(["-c", WATCHER, "sh", "moto_server", "-H", "127.0.0.1", "-p"]).arg(port.to_string());
    command.envs(variables.iter().copied());
    let watcher = command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let began = Instant::now();
    while TcpStream::connect(("127.0.0.1", port)).is_err() {
        assert!(began.elapsed() < PATIENCE, "`moto_server` does not start");
        thread::yield_now();
    }
    Moto { port, _watcher: watcher }
}

/// Sends a request with a body, and returns the body of the answer, which has to be a success.
pub(crate) fn exchange(port: u16, request: &str, headers: &str, body: &[u8]) -> Vec<u8> {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
    let length = body.len();
    let head = format!("{request} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nConnection: close\r\n{headers}");
    stream.write_all(format!("{head}Content-Length: {length}\r\n\r\n").as_bytes()).unwrap();
    stream.write_all(body).unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).unwrap();
    let end = answer.windows(4).position(|window| window == b"\r\n\r\n").unwrap() + 4;
    let told = String::from_utf8_lossy(&answer[..end]);
    assert!(told.starts_with("HTTP/1.1 2"), "{request}: {}", String::from_utf8_lossy(&answer));
    answer.split_off(end)
}

impl Moto {
    fn text(&self, request: &str) -> String {
        String::from_utf8_lossy(&exchange(self.port, request, "", &[])).into_owned()
    }

    /// Creates a bucket, and returns its name.
    pub(crate) fn bucket(&self) -> String {
        let name = format!("bucket{}", BUCKETS.fetch_add(1, Ordering::Relaxed));
        self.text(&format!("PUT /{name}"));
        name
    }

    /// Returns the names of the objects in a bucket.
    pub(crate) fn names(&self, bucket: &str) -> Vec<String> {
        parts(&self.text(&format!("GET /{bucket}?list-type=2")), "Key")
    }

    /// Returns the number of uploads that are not complete.
    pub(crate) fn unfinished(&self, bucket: &str) -> usize {
        parts(&self.text(&format!("GET /{bucket}?uploads")), "UploadId").len()
    }
}

/// Returns the contents of all elements of this name in an answer.
pub(crate) fn parts(answer: &str, name: &str) -> Vec<String> {
    let (begin, end) = (format!("<{name}>"), format!("</{name}>"));
    answer.split(&begin).skip(1).map(|rest| rest.split(&end).next().unwrap().to_owned()).collect()
}
