//! Tests `--blobs` with the real program, with the server `moto_server` of the package `moto` from PyPI, and with stores in
//! a folder and on PostgreSQL. Without the servers the tests print their names and are skipped.

#![cfg(unix)]

mod files;
mod outages;
mod refusals;
mod removal;

use std::{
    fs,
    path::Path,
    process::{Command, Output},
    time::{Duration, Instant},
};

use flowcell_runtime::sql::Dialect;
use serde_json::Value;
use tempfile::TempDir;

use crate::{
    kit::{flowcell, stderr, stdout},
    moto::{self, Moto, exchange, moto},
    servers::{self, Server},
    stores::outages::Serving,
};

const KEY: &str = "THEKEYID";
const SECRET: &str = "thesecretkey";

/// Headers of a request whose signature the shared server does not check.
const SIGNED: &str = "Authorization: AWS4-HMAC-SHA256 Credential=a/20260101/us-east-1/s3/aws4_request, \
                      SignedHeaders=host, Signature=x\r\n";

const HAND: &str = "flow: { name: hand, outputs: { file: '{{ flow.input.file }}' } }
nodes: [{ id: a, type: control.noop }]
";

/// An address at which no server listens.
const NOWHERE: &str = "http://127.0.0.1:1";

/// A store of its own, with a bucket of its own.
struct Place {
    folder: TempDir,
    /// The database server and the database, if the store is not in the folder.
    database: Option<(&'static Server, String)>,
    moto: &'static Moto,
    bucket: String,
}

/// Returns a store in a folder. Returns `None` if the server of S3 is not installed.
fn in_folder() -> Option<Place> {
    let moto = moto()?;
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("hand.yaml"), HAND).unwrap();
    Some(Place { folder, database: None, moto, bucket: moto.bucket() })
}

/// Returns a store on PostgreSQL. Returns `None` if one of the servers is not installed.
fn on_postgres() -> Option<Place> {
    let server = servers::server(Dialect::Postgres)?;
    let place = Place { database: Some((server, server.database())), ..in_folder()? };
    place.done(&["store", "migrate"]);
    Some(place)
}

impl Place {
    fn path(&self) -> &Path {
        self.folder.path()
    }

    /// Returns the address of the objects.
    fn address(&self) -> String {
        format!("s3://{}/pre/fix", self.bucket)
    }

    fn endpoint(&self) -> String {
        format!("http://127.0.0.1:{}", self.moto.port)
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = flowcell(self.path());
        for variable in
            ["AWS_ENDPOINT_URL_S3", "AWS_SESSION_TOKEN", "AWS_REGION", "AWS_DEFAULT_REGION", "AWS_ALLOW_HTTP"]
        {
            command.env_remove(variable);
        }
        command.args(arguments).env("AWS_ACCESS_KEY_ID", KEY).env("AWS_SECRET_ACCESS_KEY", SECRET);
        command.env("AWS_ENDPOINT_URL", self.endpoint());
        if let Some((server, database)) = &self.database {
            command.env("FLOWCELL_STORE", server.url(database));
        }
        command
    }

    /// Runs a command that succeeds. Returns its output.
    #[track_caller]
    fn done(&self, arguments: &[&str]) -> String {
        done(&mut self.command(arguments))
    }

    /// Runs a command without a connection to the object store.
    fn away(&self, arguments: &[&str]) -> Output {
        self.command(arguments).env("AWS_ENDPOINT_URL", NOWHERE).output().unwrap()
    }

    /// Runs the flow with a file, whose bytes the object store has from now on. Returns the file value.
    #[track_caller]
    fn run(&self, run: &str, file: &str) -> Value {
        let (file, address) = (format!("file=@{file}"), self.address());
        let told = self.done(&["run", "hand.yaml", "-i", &file, "--run-id", run, "--quiet", "--blobs", &address]);
        json(&told)["file"].clone()
    }

    /// Asserts that another process reads a file value whole. It is not given the bytes.
    #[track_caller]
    fn assert_read(&self, value: &Value, file: &str) {
        self.done(&self.reading(value).iter().map(String::as_str).collect::<Vec<_>>());
        let read = fs::read(self.path().join("read/file.bin")).unwrap();
        assert!(read == fs::read(self.path().join(file)).unwrap(), "{value} has another content");
    }

    /// Returns the command that reads a file value.
    fn reading(&self, value: &Value) -> [String; 7] {
        let value = format!("file={value}");
        ["run", "hand.yaml", "-i", &value, "--quiet", "--out", "read"].map(str::to_owned)
    }

    /// Writes a file of this size to the folder. Returns its content.
    fn write(&self, name: &str, size: usize) -> Vec<u8> {
        let seed = name.bytes().fold(7, |seed, byte| (seed * 31 + u64::from(byte)) & 0xffff);
        let byte = |at: u64| {
            let mixed = (at ^ seed << 40).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            ((mixed ^ mixed >> 29).wrapping_mul(0xbf58_476d_1ce4_e5b9) >> 56) as u8
        };
        let bytes: Vec<u8> = (0..size as u64).map(byte).collect();
        fs::write(self.path().join(name), &bytes).unwrap();
        bytes
    }

    /// Returns the names of all objects of tenants.
    fn objects(&self) -> Vec<String> {
        let mut names = self.moto.names(&self.bucket);
        names.retain(|name| !name.ends_with("/flowcell-store"));
        names
    }

    fn object(&self, name: &str) -> Vec<u8> {
        exchange(self.moto.port, &format!("GET /{}/{name}", self.bucket), SIGNED, &[])
    }

    /// Starts a process that drives runs with the object store, and waits until it does.
    fn driver(&self) -> Serving {
        let mut driver = Serving::spawn(self.command(&["drive", "--blobs", &self.address()]));
        driver.wait_for("driving the runs");
        driver
    }
}

#[track_caller]
fn done(command: &mut Command) -> String {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{command:?}: {}", stderr(&output));
    stdout(&output)
}

/// Returns the messages of a command that has ended with this exit code. None of them has the key.
#[track_caller]
fn told(output: &Output, code: i32) -> String {
    let told = stderr(output);
    assert_eq!(output.status.code(), Some(code), "{told}");
    assert!(!told.contains(SECRET) && !told.contains(KEY), "{told}");
    told
}

fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap()
}

/// Waits until a condition holds, which other processes bring about.
fn wait_until(what: &str, mut holds: impl FnMut() -> bool) {
    let began = Instant::now();
    while !holds() {
        assert!(began.elapsed() < Duration::from_secs(60), "waited in vain: {what}");
    }
}
