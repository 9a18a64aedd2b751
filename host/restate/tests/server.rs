//! A Restate server for tests. It ends with the test process, even if that process is killed.

use std::{
    collections::BTreeSet,
    env,
    fs::File,
    io::{Read, Write},
    net::{TcpListener, TcpStream},
    ops::{Deref, DerefMut},
    path::PathBuf,
    process::{Child, Command, Stdio},
    sync::{Mutex, MutexGuard, OnceLock, PoisonError},
    time::{Duration, Instant},
};

use flowcell_runtime::sql::Dialect;

use crate::servers;

/// A running node of Restate, alone or in a cluster.
pub(crate) struct Server {
    pub(crate) ingress: u16,
    pub(crate) admin: u16,
    pub(crate) folder: PathBuf,
    /// The watcher of the node. Its standard input closes at the end of this process, and then the watcher stops the node.
    watched: Child,
}

/// A shell script that runs a node until standard input is closed, and then removes its folder. At the line `start` it
/// starts the node again; at `fill` and `free` it fills its disk and makes room again; another line is the signal that it
/// sends to the node. The file `process` has the id of the node. With `FLOWCELL_TEST_DISK`, the node has a disk of that size,
/// such as `300m`, in the memory.
const WATCHER: &str = r#"folder=$1; shift; exec 3<&0
if [ -n "$FLOWCELL_TEST_DISK" ]; then mkdir "$folder/data" && mount -t tmpfs -o "size=$FLOWCELL_TEST_DISK" disk "$folder/data"; fi
start() { "$@" </dev/null >>"$folder/log" 2>&1 3<&- & server=$!; echo "$server" >"$folder/process"; }
start "$@"
while read -r order <&3; do
    case $order in
        start) start "$@" ;;
        fill) cat /dev/zero 2>"$folder/full" >"$folder/data/full" ;;
        free) rm "$folder/data/full" ;;
        *) kill -s "$order" "$server"; case $order in KILL|TERM) wait "$server" ;; esac ;;
    esac
done
kill -s KILL "$server"; wait "$server"; rm -rf "$folder""#;

/// The longest time that a test waits for other processes.
const PATIENCE: Duration = Duration::from_secs(90);

/// Waits until a condition holds, which other processes bring about.
pub(crate) fn wait_until(what: &str, mut holds: impl FnMut() -> bool) {
    let began = Instant::now();
    while !holds() {
        assert!(began.elapsed() < PATIENCE, "waited in vain: {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

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

/// Returns the URL of a new database for the tables of a store.
pub(crate) fn tables() -> Option<String> {
    let server = servers::server(Dialect::Postgres)?;
    Some(server.url(&server.database()))
}

/// Returns the server, and starts it at the first call. If it or the database server is not installed, prints the name of
/// the skipped test and returns `None`.
pub(crate) fn server() -> Option<Turn> {
    servers::server(Dialect::Postgres)?;
    let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    match SERVER.get_or_init(|| start(&[])) {
        Ok(server) => {
            server.free();
            Some(Turn(server, turn))
        }
        Err(why) => {
            let test = std::thread::current().name().unwrap_or("a test").to_owned();
            let needs = env::var("FLOWCELL_TEST_NEEDS").unwrap_or_default();
            assert!(!needs.split(',').any(|needed| needed == "restate-server"), "{test} needs a server: {why}");
            eprintln!("skipped: {test}: {why}");
            None
        }
    }
}

/// Starts a server for one test. If it is not installed, prints the name of the skipped test and returns `None`.
pub(crate) fn own_server() -> Option<Own> {
    // The shared server shows whether it is installed. Tests with servers of their own take turns, too.
    let turn = server()?;
    Some(Own(start(&[]).unwrap(), turn))
}

/// A server of one test.
pub(crate) struct Own(Server, #[allow(dead_code, reason = "held until the end of the test")] Turn);

impl Deref for Own {
    type Target = Server;

    fn deref(&self) -> &Server {
        &self.0
    }
}

impl DerefMut for Own {
    fn deref_mut(&mut self) -> &mut Server {
        &mut self.0
    }
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
    let server = begin("node", free_port(), more)?;
    server.wait()?;
    Ok(server)
}

/// Begins to start a node, which other nodes reach at a port.
pub(crate) fn begin(name: &str, port: u16, more: &[(&str, String)]) -> Result<Server, String> {
    let program = program()?;
    let folder = tempfile::Builder::new().prefix("flowcell-restate-").tempdir().unwrap().keep();
    File::create(folder.join("log")).unwrap();
    let [ingress, admin] = [free_port(), free_port()];
    let settings = [
        ("RESTATE_INGRESS__BIND_ADDRESS", format!("127.0.0.1:{ingress}")),
        ("RESTATE_ADMIN__BIND_ADDRESS", format!("127.0.0.1:{admin}")),
        ("RESTATE_BIND_ADDRESS", format!("127.0.0.1:{port}")),
        ("RESTATE_ADVERTISED_ADDRESS", format!("http://127.0.0.1:{port}")),
        ("RESTATE_LISTEN_MODE", "tcp".into()),
        ("RESTATE_DISABLE_TELEMETRY", "true".into()),
        ("RESTATE_ROCKSDB_TOTAL_MEMORY_SIZE", "128MB".into()),
        ("RESTATE_DEFAULT_NUM_PARTITIONS", "4".into()),
        ("RESTATE_LOG_FILTER", "warn".into()),
        ("DO_NOT_TRACK", "1".into()),
    ];
    let has_disk = more.iter().any(|(name, _)| *name == "FLOWCELL_TEST_DISK");
    // Only in a namespace of its own may a program mount.
    let mut command = Command::new(if has_disk { "unshare" } else { "sh" });
    if has_disk {
        command.args(["--user", "--map-root-user", "--mount", "sh"]);
    }
    command.args(["-c", WATCHER, "sh"]).arg(&folder).arg(program);
    command.args(["--no-logo", "--node-name", name, "--base-dir"]).arg(folder.join("data"));
    command.envs(settings.into_iter().chain(more.iter().map(|(name, value)| (*name, value.clone()))));
    command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
    let watched = command.spawn().unwrap();
    Ok(Server { ingress, admin, folder, watched })
}

/// Posts a JSON text, and returns the body of the answer, in JSON if there is a choice.
pub(crate) fn post(port: u16, path: &str, body: &str) -> String {
    send(port, "POST", path, body)
}

/// Sends a JSON text with a method, and returns the body of the answer, in JSON if there is a choice.
pub(crate) fn send(port: u16, method: &str, path: &str, body: &str) -> String {
    try_send(port, method, path, body).unwrap_or_else(|answer| panic!("{answer}"))
}

/// Sends a JSON text. Returns the whole answer as an error if its status is one.
fn try_send(port: u16, method: &str, path: &str, body: &str) -> Result<String, String> {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
    let length = body.len();
    let json = "application/json";
    let head = format!(
        "{method} {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Type: {json}\r\nAccept: {json}\r\n"
    );
    stream.write_all(format!("{head}Content-Length: {length}\r\n\r\n{body}").as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    if head.starts_with("HTTP/1.1 2") { Ok(body.to_owned()) } else { Err(answer) }
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
    /// Kills the node.
    pub(crate) fn kill(&mut self) {
        self.order("KILL");
        wait_until("the node ends", || !answers(self.admin, "/health"));
    }

    /// Starts the node again after it was killed.
    pub(crate) fn start(&mut self) {
        self.order("start");
        self.wait().unwrap();
    }

    /// Takes the server from the store to which it belongs, so that it may belong to that of the next test.
    fn free(&self) {
        let query = r#"{"query":"SELECT value_utf8 FROM state WHERE service_name = 'FlowcellStore'"}"#;
        // A server that has just started does not answer queries.
        let answer = || try_send(self.admin, "POST", "/query", query).unwrap_or_else(|_| "value_utf8".to_owned());
        let is_free = || !answer().contains("value_utf8");
        if !is_free() {
            // The service is not known before the first store.
            _ = try_send(
                self.admin,
                "POST",
                "/services/FlowcellStore/state",
                r#"{"object_key":"store","new_state":{}}"#,
            );
            wait_until("the server is free", is_free);
        }
    }

    /// Ends the node in good order.
    pub(crate) fn stop(&mut self) {
        self.order("TERM");
        wait_until("the node ends", || !answers(self.admin, "/health"));
    }

    /// Stops the node without its knowledge.
    pub(crate) fn pause(&mut self) {
        self.order("STOP");
    }

    /// Lets the node go on after [`Server::pause`].
    pub(crate) fn unpause(&mut self) {
        self.order("CONT");
    }

    /// Fills the disk of a node that has a small one.
    pub(crate) fn fill_disk(&mut self) {
        self.order("fill");
        let full = self.folder.join("full");
        wait_until("the disk is full", || std::fs::read_to_string(&full).is_ok_and(|text| text.contains("space")));
    }

    /// Removes what [`Server::fill_disk`] has written.
    pub(crate) fn free_disk(&mut self) {
        std::fs::remove_file(self.folder.join("full")).unwrap();
        self.order("free");
    }

    fn order(&mut self, order: &str) {
        writeln!(self.watched.stdin.as_mut().unwrap(), "{order}").unwrap();
    }

    /// Waits until the node answers.
    pub(crate) fn wait(&self) -> Result<(), String> {
        let began = Instant::now();
        while !(answers(self.admin, "/health") && answers(self.ingress, "/restate/health")) {
            if began.elapsed() > PATIENCE {
                let log = std::fs::read_to_string(self.folder.join("log")).unwrap_or_default();
                return Err(format!("the server does not start:\n{log}"));
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok(())
    }

    /// Returns the URL of a store on this server, whose process listens at a port.
    pub(crate) fn url(&self, tables: &str, port: u16) -> String {
        let Server { ingress, admin, .. } = self;
        format!("restate://127.0.0.1:{ingress},127.0.0.1:{admin}?tables={tables}&listen=127.0.0.1:{port}")
    }
}
