//! Tests what Python finds in a pack beside the language: coroutines, `urllib`, `requests`, and packages of PyPI.

use std::{
    fs,
    net::TcpListener,
    path::{Path, PathBuf},
    sync::OnceLock,
};

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::{
    authors::{
        killed::answers_keep_their_order,
        language::{Language, done, flowcell, project},
    },
    kit,
    outside::server::{Seen, Server, answer},
};

/// The code of nodes that await several calls, and that use `urllib` and the SDK's `requests`.
const RELAY: &str = include_str!("python/relay.py");
const RELAY_MANIFEST: &str = "name: relay
version: 0.1.0
nodes:
  - { type: relay.run, title: Relay, input: {}, output: {}, capabilities: [{ name: http, reason: asks }] }
  - { type: relay.ends, title: Ends, input: {}, output: {}, capabilities: [{ name: http, reason: asks }] }
  - { type: relay.web, title: Web, input: {}, output: {}, capabilities: [{ name: http, reason: asks }] }
  - { type: relay.fail, title: Fail, input: {}, output: {}, capabilities: [{ name: http, reason: asks }] }
  - { type: relay.values, title: Values, input: {}, output: {}, capabilities: [{ name: http, reason: asks }] }
";

/// Builds the pack with the code [`RELAY`], once for all tests.
fn relay() -> &'static Path {
    static BUILT: OnceLock<(TempDir, PathBuf)> = OnceLock::new();
    let (_, project) = BUILT.get_or_init(|| {
        let (folder, project) = project("relay", Language::Python);
        fs::write(project.join("nodes.py"), RELAY).unwrap();
        fs::write(project.join("node.yaml"), RELAY_MANIFEST).unwrap();
        done(flowcell(&project).args(["node", "build"]));
        (folder, project)
    });
    project
}

/// Runs one node with access to a server, and to an address at which none listens. Returns its output, or the failure.
fn run(project: &Path, node: &str, server: &Server, input: &[&str]) -> Result<Value, Value> {
    let closed = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let origins = json!([server.origin(), format!("http://{closed}")]);
    let mut command = flowcell(project);
    command.args(["node", "run", node, "--json", "--quiet", "--packs", "dist", "--timeout-ms", "60000"]);
    command.args(["--grant", &format!("http={origins}"), "--allow-private", &server.address.to_string()]);
    command.args(["--allow-private", &closed.to_string()]);
    command.args(["-i", &format!("base={}", server.origin()), "-i", &format!("closed=http://{closed}/")]);
    let output = command.args(input.iter().flat_map(|input| ["-i", input])).output().unwrap();
    let told: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{}", kit::stderr(&output)));
    if told["error"].is_null() { Ok(told["outputs"].clone()) } else { Err(told["error"].clone()) }
}

fn path(seen: &Seen) -> String {
    seen.head.split(' ').nth(1).unwrap_or_default().to_owned()
}

#[test]
fn coroutines_resume_in_the_recorded_order_after_a_crash() {
    if Language::Python.is_there("coroutines") {
        answers_keep_their_order(relay(), [1, 3, 5, 8]);
    }
}

#[test]
fn ends_of_calls_are_awaited_however_they_come() {
    if !Language::Python.is_there("ends of calls") {
        return;
    }
    let server = Server::start(|seen, _| answer("200 OK", &[("content-type", "text/plain")], &path(seen)));
    let ended = run(relay(), "relay.ends", &server, &[]).unwrap();
    let expected = json!({
        "statuses": [200, 200], "texts": ["/a", "/b"], "turned": true, "late": "TimeoutError", "unknown": "NotImplementedError",
        "left": ["cancelled"],
    });
    assert_eq!(ended, expected);
}

#[test]
fn failures_of_coroutines_say_why() {
    if !Language::Python.is_there("failures") {
        return;
    }
    let server = Server::start(|_, _| answer("404 Not Found", &[], "nothing"));
    let failure = |how: &str| run(relay(), "relay.fail", &server, &[&format!("how={how}")]).unwrap_err();
    let stuck = failure("stuck");
    assert!(stuck["message"].as_str().unwrap().contains("awaits something that never comes"), "{stuck}");
    let deep = failure("deep");
    let line = RELAY.lines().position(|line| line.contains("\"deep\"") && line.contains("raise")).unwrap() + 1;
    assert!(deep["details"]["stack"].to_string().contains(&format!("nodes.py\\\", line {line}")), "{deep}");
    assert_eq!(failure("group")["code"], "denied");
    // The server that refuses a connection may be there later. The exceptions of both libraries keep that.
    for how in ["urllib", "requests", "send"] {
        let refused = failure(how);
        assert_eq!(
            (&refused["code"], &refused["retryable"]),
            (&json!("http_connect"), &json!(true)),
            "{how}: {refused}"
        );
        assert_eq!(failure(&format!("{how}-denied"))["code"], "denied", "{how}");
    }
    let status = failure("status");
    assert!(status["message"].as_str().unwrap().starts_with("flowcell_sdk.requests.HTTPError: 404 for "), "{status}");
    let unknown = failure("verify");
    assert!(unknown["message"].as_str().unwrap().contains("has no argument `verify`"), "{unknown}");
}

#[test]
fn exceptions_keep_their_type_message_and_notes() {
    if !Language::Python.is_there("exceptions") {
        return;
    }
    let server = Server::start(|_, _| answer("200 OK", &[], ""));
    let failure = |how: &str| run(relay(), "relay.fail", &server, &[&format!("how={how}")]).unwrap_err();
    assert_eq!(failure("note")["message"], "ValueError: no number\nwhile reading row 7");
    let inner = "ExceptionGroup: in row 8 (1 sub-exception) [TypeError: no text] of the second sheet";
    let expected = format!("ExceptionGroup: bad rows (2 sub-exceptions): KeyError: 'price'; {inner}");
    assert_eq!(failure("many")["message"], expected);
    let details = failure("details");
    let expected = "bad rows\nthe details of the failure cannot be written as JSON at `/rows`: it is of the type `set`; \
                    write a list, such as `sorted(value)`; they are left out";
    assert_eq!((&details["code"], &details["message"]), (&json!("acme_rows"), &json!(expected)));
}

/// The kinds and messages of the exceptions for the values in `relay.values`.
const WRONG_VALUES: [&str; 26] = [
    "ValueError: `offset` must be from 0 to 18446744073709551615, not -1",
    "TypeError: `offset` must be a whole number, not 0.5 of the type `float`",
    "ValueError: `offset` must be from 0 to 18446744073709551615, not 18446744073709551616",
    "TypeError: `offset` must be a whole number, not nan of the type `float`",
    "ValueError: `length` must be from 0 to 4294967295, not 4294967296",
    "ValueError: `offset` must be from 0 to 18446744073709551615, not -1",
    "TypeError: `content` must be bytes, not 'abc' of the type `str`",
    "TypeError: `url` must be a text, not None of the type `NoneType`",
    "ValueError: `timeout_ms` must be from 0 to 4294967295, not -1",
    "TypeError: `a` must be a text, not 1 of the type `int`",
    "TypeError: `idle_ms` must be a whole number, not 1.5 of the type `float`",
    "ValueError: `call` must be from 0 to 4294967295, not -1",
    "ValueError: `timeout_ms` must be from 0 to 4294967295, not -1",
    "TypeError: `level` must be a `Level`, not 'loud' of the type `str`",
    "ValueError: could not convert string to float: 'one'",
    "ValueError: `ttl_ms` must be from 0 to 18446744073709551615, not -1",
    "TypeError: `expected` must be a whole number, not 0.5 of the type `float`",
    "TypeError: `path` must be a text, not 5 of the type `int`",
    "TypeError: `patterns` must be a text, not 5 of the type `int`",
    "ValueError: `ms` must be from 0 to 18446744073709551615, not -1",
    "TypeError: `ms` must be a whole number, not 0.5 of the type `float`",
    "ValueError: `concurrency` must be from 0 to 4294967295, not -1",
    "TypeError: `name` must be a text, not None of the type `NoneType`",
    "TypeError: `path` must be a text, not None of the type `NoneType`",
    "TypeError: `value` must be a text, not 1 of the type `int`",
    "TypeError: `retry_after_ms` must be a number, not nan of the type `float`",
];

#[test]
fn values_of_another_type_are_named_before_the_host_gets_them() {
    if !Language::Python.is_there("wrong values") {
        return;
    }
    let server = Server::start(|_, _| answer("200 OK", &[], ""));
    let told = run(relay(), "relay.values", &server, &[]).unwrap();
    assert_eq!(told["wrong"], json!(WRONG_VALUES));
    assert_eq!(told["right"], json!(["", "bc", 0, 4_294_967_295_u32, "a\u{fffd}b", { "\u{1f600}": 1 }]));
    assert_eq!(told["part\u{fffd}"], json!(server.origin()));
    let failure = run(relay(), "relay.values", &server, &["how=failure"]).unwrap_err();
    let expected = (&json!("half"), &json!("a\u{fffd}"), &json!(true));
    assert_eq!((&failure["code"], &failure["message"], &failure["retryable"]), expected);
}

#[test]
fn an_output_that_is_not_json_is_named_with_its_place() {
    if !Language::Python.is_there("outputs") {
        return;
    }
    let server = Server::start(|_, _| answer("200 OK", &[], ""));
    let ended = |how: &str| run(relay(), "relay.fail", &server, &[&format!("how={how}")]);
    for (how, expected) in [
        ("list", " at `/rows/0/ids`: it is of the type `set`; write a list, such as `sorted(value)`"),
        ("bytes", ": it is of the type `bytes`; write a text, such as `value.decode()`, or keep the bytes as a file"),
        ("date", " at `/a~1b`: it is of the type `date`; write a text, such as `value.isoformat()`"),
        ("decimal", " at `/price`: it is of the type `Decimal`; write `str(value)`"),
        ("nan", " at `/share`: it is the number nan; JSON has no such number"),
        ("key", ": the key `(1, 2)` is of the type `tuple`; write a text"),
        ("part", " at `/0/0`: it is of the type `Part`; a part must be the output itself, or a member of the output"),
    ] {
        let failure = ended(how).unwrap_err();
        let expected = format!("TypeError: the output cannot be written as JSON{expected}");
        assert!(failure["message"].as_str().unwrap().starts_with(&expected), "{how}: {failure}");
    }
    assert_eq!(ended("good").unwrap(), json!({ "row": { "price": [1] } }));
}

/// Answers as a server of texts, JSON, redirects and large files.
fn reply(seen: &Seen) -> String {
    let path = path(seen);
    let method = seen.head.split(' ').next().unwrap();
    match path.split('?').next().unwrap() {
        "/moved" => answer("302 Found", &[("location", "/json?moved=1")], ""),
        "/large" => answer("200 OK", &[("content-type", "text/plain")], &"0123456789".repeat(400_000)),
        "/bytes" => answer("200 OK", &[("content-type", "application/octet-stream")], "bytes"),
        "/gone" => answer("410 Gone", &[("content-type", "text/plain; charset=utf-8")], "gone é"),
        _ => {
            let told = json!({
                "method": method, "path": path, "body": seen.body, "type": seen.header("content-type"),
                "key": seen.header("authorization"), "cookie": seen.header("cookie"),
            });
            let body = if method == "HEAD" { String::new() } else { told.to_string() };
            answer("200 OK", &[("content-type", "application/json"), ("set-cookie", "seen=1")], &body)
        }
    }
}

#[test]
fn urllib_and_requests_are_answered_through_the_host() {
    if !Language::Python.is_there("urllib") {
        return;
    }
    let server = Server::start(|seen, _| reply(seen));
    let given = run(relay(), "relay.web", &server, &[]).unwrap();
    let told = |method: &str, path: &str, body: &str, kind: Option<&str>, key: Option<&str>| {
        json!({
            "method": method, "path": path, "body": body, "type": kind, "key": key, "cookie": null,
        })
    };
    assert_eq!(given["urllib"], told("GET", "/json?q=1", "", None, None));
    let form = "application/x-www-form-urlencoded";
    assert_eq!(given["urllibPost"], told("POST", "/json", "a=b", Some(form), None));
    assert_eq!(given["urllibMoved"], json!([format!("{}/json?moved=1", server.origin()), 200]));
    assert_eq!(given["urllibGone"], json!([410, "gone é"]));
    assert_eq!(given["large"], json!([4_000_000, 4_000_000]));
    assert_eq!(given["bytes"], json!(["bytes", "bytes"]));
    assert_eq!(given["get"], told("GET", "/json?a=1&b=2&b=3", "", None, Some("Basic dTpw")));
    assert_eq!(given["post"], told("POST", "/json", r#"{"n": 1}"#, Some("application/json"), None));
    assert_eq!(given["form"], told("PUT", "/json", "n=1", Some(form), None));
    assert_eq!(given["moved"], json!([302, format!("{}/json?moved=1", server.origin()), 302]));
    assert_eq!(given["gone"], json!([410, false, "gone é"]));
    assert_eq!(given["head"], json!([200, "", "application/json"]));
    assert_eq!(given["awaited"], json!(["/json?n=0", "/json?n=1", "/json?moved=1"]));
    assert_eq!(given["strptime"], "2026-11-29");
}

/// Code that runs during the build, and writes to every folder that it sees.
const WRITER: &str = "
import sys
from flowcell_sdk import pack
for folder in sys.path + ['/%d' % number for number in range(20)]:
    try:
        with open(folder + '/written.pth', 'w') as file:
            file.write('import os')
    except OSError:
        pass
Node = pack({'relay.run': lambda task: {}, 'relay.ends': lambda task: {}, 'relay.web': lambda task: {}, \
             'relay.fail': lambda task: {}})
";

#[test]
fn code_that_runs_during_the_build_writes_to_no_folder_of_the_author() {
    if !Language::Python.is_there("code of the build") {
        return;
    }
    let (folder, project) = project("relay", Language::Python);
    let packages = folder.path().join("environment/lib/python3.14/site-packages");
    fs::create_dir_all(&packages).unwrap();
    fs::write(project.join("nodes.py"), WRITER).unwrap();
    fs::write(project.join("node.yaml"), RELAY_MANIFEST).unwrap();
    done(flowcell(&project).args(["node", "build"]).env("VIRTUAL_ENV", folder.path().join("environment")));
    assert_eq!(fs::read_dir(&packages).unwrap().count(), 0);
    assert!(!project.join("written.pth").exists() && !project.join("vendor/written.pth").exists());
}

/// Uses the packages that [`REQUIREMENTS`] asks for.
const MARKET: &str = include_str!("python/market.py");
const REQUIREMENTS: &str = "# What the nodes import.
jinja2==3.1.6
python-dateutil==2.9.0.post0
pyyaml==6.0.3
requests==2.32.5
";

#[test]
fn packages_of_requirements_are_vendored_once_and_used() {
    if !Language::Python.is_there("packages of PyPI") {
        return;
    }
    let (_folder, project) = project("market", Language::Python);
    fs::write(project.join("nodes.py"), MARKET).unwrap();
    fs::write(project.join("node.yaml"), RELAY_MANIFEST.replace("relay", "market")).unwrap();
    fs::write(project.join("requirements.txt"), REQUIREMENTS).unwrap();
    let built = flowcell(&project).args(["node", "build"]).output().unwrap();
    let told = kit::stderr(&built);
    assert!(built.status.success(), "{told}");
    assert!(told.contains("jinja2 3.1.6") || told.contains("Jinja2 3.1.6"), "{told}");
    assert!(told.contains("left out native code, which a pack cannot run: _speedups."), "{told}");
    let server = Server::start(|seen, _| reply(seen));
    let given = run(&project, "market.web", &server, &[]).unwrap();
    let base = server.origin();
    assert_eq!(given["html"], "<b>1 &lt; 2</b>");
    assert_eq!(given["date"], "2027-01-31");
    assert_eq!(given["yaml"], json!({ "a": [1, 2] }));
    assert_eq!(given["get"]["path"], "/json?a=1");
    assert_eq!(given["cookie"], "seen=1");
    assert_eq!(given["post"]["body"], r#"{"n": 1}"#);
    assert_eq!(given["moved"], json!([302, format!("{base}/json?moved=1")]));
    assert_eq!(given["large"], 4_000_000);
    assert_eq!(given["failures"], json!(["HTTPError", "ConnectionError", "NotImplementedError", "Failure"]));

    // The vendored packages are those of the lock, so nothing is asked of an index, and pip is not needed.
    let lock = fs::read_to_string(project.join("requirements.lock")).unwrap();
    assert!(lock.contains("requests==2.32.5 --hash=sha256:"), "{lock}");
    let build = |index: &str| flowcell(&project).args(["node", "build"]).env("PIP_INDEX_URL", index).output().unwrap();
    let nowhere = "http://127.0.0.1:9/";
    let again = build(nowhere);
    assert!(again.status.success() && !kit::stderr(&again).contains("locked"), "{}", kit::stderr(&again));
    // Without the folder pip installs what the lock names, and nothing else.
    fs::remove_dir_all(project.join("python_modules")).unwrap();
    let start = lock.find("--hash=sha256:").unwrap() + "--hash=sha256:".len();
    let mut wrong = lock.clone();
    wrong.replace_range(start..start + 64, &"0".repeat(64));
    fs::write(project.join("requirements.lock"), wrong).unwrap();
    let refused = flowcell(&project).args(["node", "build"]).output().unwrap();
    let told = kit::stderr(&refused);
    assert!(!refused.status.success() && told.contains("DO NOT MATCH THE HASHES"), "{told}");
    assert!(!project.join("python_modules").exists());
    // pip gets no line of a lock that a build has not written.
    fs::write(project.join("requirements.lock"), format!("{lock}--index-url http://127.0.0.1:9/\n")).unwrap();
    let refused = flowcell(&project).args(["node", "build"]).output().unwrap();
    let told = kit::stderr(&refused);
    assert!(refused.status.code() == Some(2) && told.contains("of requirements.lock has `--index-url"), "{told}");
}

#[test]
fn packages_with_native_code_are_refused_by_name() {
    if !Language::Python.is_there("packages with native code") {
        return;
    }
    let (_folder, project) = project("market", Language::Python);
    let refused = |asked: &str, expected: &str| {
        fs::write(project.join("requirements.txt"), asked).unwrap();
        let built = flowcell(&project).args(["node", "build"]).output().unwrap();
        let told = kit::stderr(&built);
        assert!(!built.status.success() && told.contains(expected), "{told}");
        assert!(!project.join("requirements.lock").exists() && !project.join("python_modules").exists());
    };
    refused("numpy\n", "needs packages with native code, which a pack cannot run: numpy ");
    refused("--index-url http://127.0.0.1:9/\nsix\n", "has the option `--index-url");
    refused("\u{feff}--extra-index-url http://127.0.0.1:9/\n", "line 1 of requirements.txt has the option");
    refused("six\nx @ http://127.0.0.1:9/${HOME}/x-1.0-py3-none-any.whl\n", "line 2 of requirements.txt has `x @ http");
    refused("six \u{c} --index-url http://127.0.0.1:9/\n", "which is not a name with versions");
    refused("no-such-package-of-flowcell==1\n", "no-such-package-of-flowcell");
}
