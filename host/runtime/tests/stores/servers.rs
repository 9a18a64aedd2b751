//! Database servers for tests. The first test that needs a server starts it from the installed program, in a temporary
//! folder and on a free port. The server ends with the test process, even if that process is killed.

use std::{
    env,
    fs::File,
    io::Write,
    net::{TcpListener, TcpStream},
    os::unix::fs::{MetadataExt, chown},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::{
        OnceLock,
        atomic::{AtomicU32, Ordering},
    },
    time::{Duration, Instant},
};

use flowcell_runtime::sql::Dialect;
use sqlx::{AssertSqlSafe, Connection, Executor};

/// A running database server.
pub(crate) struct Server {
    pub(crate) dialect: Dialect,
    pub(crate) port: u16,
    /// The watcher of the server. Its standard input closes at the end of this process, and then the watcher stops the
    /// server.
    watched: Child,
}

/// The id of the user that runs the servers if the tests run as root, because servers refuse to run as root.
const NOBODY: u32 = 65_534;

/// A shell script that runs a server until standard input is closed. Then it stops the server and removes its folder.
/// At the line `kill` it kills the server, and at the line `start` it starts the server again. At the line `pause` it
/// suspends all processes of the server, and at the line `go-on` they go on.
const WATCHER: &str = r#"folder=$1; signal=$2; shift 2; exec 3<&0
start() { "$@" </dev/null >>"$folder/log" 2>&1 3<&- & server=$!; }
each() { kill -s "$1" "$server" $(ps -o pid= --ppid "$server"); }
start "$@"
while read -r order <&3; do
    case $order in
        kill) kill -s "$signal" "$server"; wait "$server" ;;
        start) start "$@" ;;
        pause) each STOP ;;
        go-on) each CONT ;;
    esac
done
each CONT
kill -s "$signal" "$server"; wait "$server"; rm -rf "$folder""#;

static MYSQL: OnceLock<Result<Server, String>> = OnceLock::new();
static POSTGRES: OnceLock<Result<Server, String>> = OnceLock::new();

/// Returns the server of this kind, and starts it at the first call. If the server is not installed, prints the name of
/// the skipped test and returns `None`.
pub(crate) fn server(dialect: Dialect) -> Option<&'static Server> {
    let (started, start): (_, fn() -> Result<Server, String>) = match dialect {
        Dialect::MySql => (&MYSQL, || start_mysql(&[])),
        Dialect::Postgres => (&POSTGRES, start_postgres),
    };
    match started.get_or_init(start) {
        Ok(server) => Some(server),
        Err(why) => {
            let test = std::thread::current().name().unwrap_or("a test").to_owned();
            assert!(env::var_os("FLOWCELL_TEST_SERVERS").is_none(), "{test} needs a server: {why}");
            eprintln!("skipped: {test}: {why}");
            None
        }
    }
}

/// Starts a server for one test, which may kill it. If the server is not installed, prints the name of the skipped test
/// and returns `None`.
pub(crate) fn own_server(dialect: Dialect) -> Option<Server> {
    // The shared server shows whether the kind is installed.
    server(dialect)?;
    let started = match dialect {
        Dialect::MySql => start_mysql(&[]),
        Dialect::Postgres => start_postgres(),
    };
    Some(started.unwrap())
}

/// Starts a MariaDB server for one test, with the log that replicas read. If the server is not installed, prints the name
/// of the skipped test and returns `None`.
pub(crate) fn own_mysql_with_log() -> Option<Server> {
    server(Dialect::MySql)?;
    Some(start_mysql(&["--log-bin=log", "--sync-binlog=1"]).unwrap())
}

/// Returns the path of an installed program with one of these names, in `PATH` or in one of these folders.
fn program(names: &[&str], folders: &[&str]) -> Result<PathBuf, String> {
    let path = env::var_os("PATH").unwrap_or_default();
    let mut all: Vec<PathBuf> = env::split_paths(&path).collect();
    all.extend(folders.iter().map(PathBuf::from));
    // Debian has the programs of each version in a folder of its own.
    let versions = std::fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    all.extend(versions.map(|version| version.path().join("bin")));
    let found =
        all.iter().flat_map(|folder| names.iter().map(move |name| folder.join(name))).find(|path| path.is_file());
    found.ok_or_else(|| format!("`{}` is not installed", names[0]))
}

fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

/// Creates a folder to which the user that runs the server may write.
fn folder(name: &str) -> PathBuf {
    let folder = tempfile::Builder::new().prefix(&format!("flowcell-{name}-")).tempdir().unwrap().keep();
    if is_root() {
        chown(&folder, Some(NOBODY), Some(NOBODY)).unwrap();
    }
    folder
}

fn is_root() -> bool {
    std::fs::metadata("/proc/self").is_ok_and(|me| me.uid() == 0)
}

/// Returns the words to put in front of a command so that it does not run as root.
fn unprivileged() -> Vec<String> {
    match is_root() {
        true => ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"].map(str::to_owned).into(),
        false => vec!["env".into()],
    }
}

fn prepare(folder: &Path, program: &Path, arguments: &[String]) -> Result<(), String> {
    let words = unprivileged();
    let log = File::create(folder.join("prepare.log")).unwrap();
    let mut command = Command::new(&words[0]);
    command
        .args(&words[1..])
        .arg(program)
        .args(arguments)
        .env("HOME", folder)
        .env("TMPDIR", folder)
        .current_dir(folder);
    let done = command.stdin(Stdio::null()).stdout(log.try_clone().unwrap()).stderr(log).status();
    match done {
        Ok(status) if status.success() => Ok(()),
        other => {
            let log = std::fs::read_to_string(folder.join("prepare.log")).unwrap_or_default();
            Err(format!("`{}` fails: {other:?}\n{log}", program.display()))
        }
    }
}

fn watch(folder: &Path, signal: &str, program: &Path, arguments: &[String]) -> Child {
    let mut command = Command::new("sh");
    command.args(["-c", WATCHER, "sh"]).arg(folder).arg(signal).args(unprivileged()).arg(program).args(arguments);
    command
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .env("HOME", folder)
        .env("TMPDIR", folder)
        .current_dir(folder);
    command.spawn().unwrap()
}

fn start_postgres() -> Result<Server, String> {
    let (postgres, initdb) = (program(&["postgres"], &[])?, program(&["initdb"], &[])?);
    let folder = folder("postgres");
    let data = folder.join("data").display().to_string();
    let words = ["-D", &data, "-U", "flowcell", "--auth=trust", "--no-sync", "-E", "UTF8", "--locale=C"];
    prepare(&folder, &initdb, &words.map(str::to_owned))?;
    run_postgres(&folder, &postgres)
}

/// Starts a replica of a PostgreSQL server from a copy of its data.
pub(crate) fn replica_of(primary: &Server) -> Server {
    let (postgres, copy) = (program(&["postgres"], &[]).unwrap(), program(&["pg_basebackup"], &[]).unwrap());
    let folder = folder("postgres");
    let (data, port) = (folder.join("data").display().to_string(), primary.port.to_string());
    let words = ["-D", &data, "-h", "127.0.0.1", "-p", &port, "-U", "flowcell", "-R", "-c", "fast", "--no-sync"];
    prepare(&folder, &copy, &words.map(str::to_owned)).unwrap();
    run_postgres(&folder, &postgres).unwrap()
}

/// Starts PostgreSQL with the data in a folder.
fn run_postgres(folder: &Path, postgres: &Path) -> Result<Server, String> {
    let (data, port) = (folder.join("data").display().to_string(), free_port());
    let (socket, number) = (folder.display().to_string(), port.to_string());
    let words = ["-D", &data, "-p", &number, "-k", &socket, "-h", "127.0.0.1", "-c", "max_connections=300"];
    let watched = watch(folder, "QUIT", postgres, &words.map(str::to_owned));
    started(Server { dialect: Dialect::Postgres, port, watched }, folder)
}

fn start_mysql(more: &[&str]) -> Result<Server, String> {
    let server = program(&["mariadbd", "mysqld"], &["/usr/sbin", "/usr/libexec"])?;
    let install = program(&["mariadb-install-db", "mysql_install_db"], &["/usr/scripts"])?;
    let (folder, port) = (folder("mariadb"), free_port());
    let data = format!("--datadir={}", folder.join("data").display());
    let words = ["--no-defaults", &data, "--auth-root-authentication-method=normal", "--skip-test-db"];
    prepare(&folder, &install, &words.map(str::to_owned))?;
    let words = [
        "--no-defaults".into(),
        data,
        format!("--port={port}"),
        format!("--socket={}", folder.join("socket").display()),
        format!("--pid-file={}", folder.join("pid").display()),
        "--bind-address=127.0.0.1".into(),
        "--max-allowed-packet=64M".into(),
        "--max-connections=300".into(),
        "--innodb-flush-log-at-trx-commit=1".into(),
    ];
    let words = words.into_iter().chain(more.iter().map(|word| (*word).to_owned())).collect::<Vec<_>>();
    let watched = watch(&folder, "KILL", &server, &words);
    started(Server { dialect: Dialect::MySql, port, watched }, &folder)
}

/// Waits until the server answers a query, and returns it.
fn started(server: Server, folder: &Path) -> Result<Server, String> {
    let began = Instant::now();
    loop {
        let Err(error) = server.execute_in(server.system_database(), &["SELECT 1"]) else { return Ok(server) };
        if began.elapsed() > Duration::from_secs(60) {
            let log = std::fs::read_to_string(folder.join("log")).unwrap_or_default();
            return Err(format!("the server does not start: {error}\n{log}"));
        }
        std::thread::yield_now();
    }
}

static DATABASES: AtomicU32 = AtomicU32::new(0);

impl Server {
    /// Kills the server.
    pub(crate) fn kill(&mut self) {
        self.order("kill");
        while TcpStream::connect(("127.0.0.1", self.port)).is_ok() {
            std::thread::yield_now();
        }
    }

    /// Starts the server again after it was killed.
    pub(crate) fn start(&mut self) {
        self.order("start");
    }

    /// Suspends all processes of the server.
    pub(crate) fn pause(&mut self) {
        self.order("pause");
    }

    /// Lets a suspended server go on.
    pub(crate) fn go_on(&mut self) {
        self.order("go-on");
    }

    fn order(&mut self, order: &str) {
        writeln!(self.watched.stdin.as_mut().unwrap(), "{order}").unwrap();
    }

    /// Returns the name of the database that every server of this kind has.
    fn system_database(&self) -> &'static str {
        match self.dialect {
            Dialect::MySql => "mysql",
            Dialect::Postgres => "postgres",
        }
    }

    /// Returns the URL of a database at another port, such as that of a proxy.
    pub(crate) fn url_by(&self, port: u16, database: &str) -> String {
        match self.dialect {
            Dialect::MySql => format!("mysql://root@127.0.0.1:{port}/{database}?ssl-mode=disabled"),
            Dialect::Postgres => format!("postgres://flowcell@127.0.0.1:{port}/{database}?sslmode=disable"),
        }
    }

    pub(crate) fn url(&self, database: &str) -> String {
        self.url_by(self.port, database)
    }

    /// Creates a database, and returns its name.
    pub(crate) fn database(&self) -> String {
        let name = format!("t{}", DATABASES.fetch_add(1, Ordering::Relaxed));
        self.execute_in(self.system_database(), &[&format!("CREATE DATABASE {name}")]).unwrap();
        name
    }

    /// Executes statements directly in a database.
    pub(crate) fn execute(&self, database: &str, statements: &[&str]) {
        self.execute_in(database, statements).unwrap();
    }

    /// Executes a statement directly in a database, and ignores an error.
    pub(crate) fn execute_if(&self, database: &str, statement: &str) {
        let _ = self.execute_in(database, &[statement]);
    }

    /// Executes a statement that locks rows in a transaction, and calls `meanwhile` before the transaction ends.
    pub(crate) fn locking(&self, database: &str, statement: &str, meanwhile: impl FnOnce()) {
        let (url, dialect, sql) = (self.url(database), self.dialect, AssertSqlSafe(statement.to_owned()));
        alone(async move {
            match dialect {
                Dialect::MySql => {
                    let mut link = sqlx::MySqlConnection::connect(&url).await.unwrap();
                    let mut transaction = link.begin().await.unwrap();
                    sqlx::query(sql).fetch_all(&mut *transaction).await.unwrap();
                    meanwhile();
                    transaction.rollback().await.unwrap();
                }
                Dialect::Postgres => {
                    let mut link = sqlx::PgConnection::connect(&url).await.unwrap();
                    let mut transaction = link.begin().await.unwrap();
                    sqlx::query(sql).fetch_all(&mut *transaction).await.unwrap();
                    meanwhile();
                    transaction.rollback().await.unwrap();
                }
            }
        });
    }

    fn execute_in(&self, database: &str, statements: &[&str]) -> Result<(), sqlx::Error> {
        let (url, dialect) = (self.url(database), self.dialect);
        alone(async move {
            match dialect {
                Dialect::MySql => {
                    let mut link = sqlx::MySqlConnection::connect(&url).await?;
                    for statement in statements {
                        link.execute(sqlx::raw_sql(AssertSqlSafe((*statement).to_owned()))).await?;
                    }
                }
                Dialect::Postgres => {
                    let mut link = sqlx::PgConnection::connect(&url).await?;
                    for statement in statements {
                        link.execute(sqlx::raw_sql(AssertSqlSafe((*statement).to_owned()))).await?;
                    }
                }
            }
            Ok(())
        })
    }

    /// Executes a query directly in a database. Returns its result, a number.
    pub(crate) fn number(&self, database: &str, question: &str) -> i64 {
        let (url, dialect, sql) = (self.url(database), self.dialect, AssertSqlSafe(question.to_owned()));
        alone(async move {
            match dialect {
                Dialect::MySql => {
                    let mut link = sqlx::MySqlConnection::connect(&url).await.unwrap();
                    sqlx::query_scalar(sql).fetch_one(&mut link).await.unwrap()
                }
                Dialect::Postgres => {
                    let mut link = sqlx::PgConnection::connect(&url).await.unwrap();
                    sqlx::query_scalar(sql).fetch_one(&mut link).await.unwrap()
                }
            }
        })
    }
}

fn alone<T>(work: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(work)
}
