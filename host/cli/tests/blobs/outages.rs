//! Object stores that are away, and that refuse.

use std::fs;

use super::{KEY, Place, SECRET, Serving, done, exchange, in_folder, json, moto, on_postgres, told, wait_until};
use crate::{
    kit::{stderr, stdout},
    proxy::{Behaviour, Proxy},
};

const LARGE: usize = 7 << 20;
const SMALL: usize = 2 << 20;

/// Reads a file after a question, and makes one.
const WAITS: &str = "
flow: { name: waits, outputs: { lines: '{{ read.content }}', taken: '{{ take.content }}' } }
nodes:
  - { id: ask, type: control.gate, input: { prompt: 'Well?', choices: ['yes', 'no'] } }
  - id: read
    type: file.content
    input: { file: '{{ flow.input.text }}', as: lines, from: 0, limit: 1 }
    policy: { retry: { maxAttempts: 1000, backoffMs: 20, maxBackoffMs: 20 } }
  - id: take
    type: file.read
    input: { path: taken.bin, as: file }
    grants: { files: { read: ['*.bin'] } }
    policy: { retry: { maxAttempts: 1000, backoffMs: 20, maxBackoffMs: 20 } }
edges: [{ from: ask, to: read }, { from: ask, to: take }]
";

fn run<'a>(id: &'a str, file: &'a str, more: &[&'a str]) -> Vec<&'a str> {
    [&["run", "hand.yaml", "--run-id", id, "-i", file, "--quiet"][..], more].concat()
}

/// Asserts that a store has no runs.
#[track_caller]
fn assert_empty(place: &Place) {
    assert_eq!(json(&place.done(&["runs", "list", "--json"])), serde_json::json!([]));
}

fn check_first_use(place: &Place) {
    place.write("large.bin", LARGE);
    let address = place.address();
    let missing = run("a", "file=@large.bin", &["--blobs", "s3://nowhere-at-all/x"]);
    let refused = told(&place.command(&missing).output().unwrap(), 2);
    let parts = ["cannot use s3://nowhere-at-all/x: NoSuchBucket: ", "check the name of the bucket, "];
    assert!(parts.iter().all(|part| refused.contains(part)), "{refused}");
    let away = told(&place.away(&run("a", "file=@large.bin", &["--blobs", &address])), 74);
    let parts = [&format!("cannot use {address}: ") as &str, "check `AWS_ENDPOINT_URL`, or try again later"];
    assert!(parts.iter().all(|part| away.contains(part)), "{away}");
    assert_empty(place);
    // The store has remembered neither of them.
    let value = place.run("a", "large.bin");
    place.assert_read(&value, "large.bin");
}

#[test]
fn a_folder_remembers_no_bucket_that_is_missing_or_away() {
    let Some(place) = in_folder() else { return };
    check_first_use(&place);
}

#[test]
fn postgresql_remembers_no_bucket_that_is_missing_or_away() {
    let Some(place) = on_postgres() else { return };
    check_first_use(&place);
}

#[test]
fn a_wrong_key_is_named_and_a_right_one_reads_the_file() {
    let Some(place) = in_folder() else { return };
    // The server checks the signatures of all requests after these.
    let guarded = moto::start(&[("INITIAL_NO_AUTH_ACTION_COUNT", "6")]);
    let ask = |body: &str| {
        let headers = super::SIGNED.replace("/s3/", "/iam/") + "Content-Type: application/x-www-form-urlencoded\r\n";
        let body = format!("Version=2010-05-08&{body}");
        String::from_utf8(exchange(guarded.port, "POST /", &headers, body.as_bytes())).unwrap()
    };
    let user = |name: &str| {
        ask(&format!("Action=CreateUser&UserName={name}"));
        let made = ask(&format!("Action=CreateAccessKey&UserName={name}"));
        ["AccessKeyId", "SecretAccessKey"].map(|part| moto::parts(&made, part).remove(0))
    };
    let ([key, secret], [guest, guest_secret]) = (user("owner"), user("guest"));
    let all = "%7B%22Version%22:%222012-10-17%22,%22Statement%22:%5B%7B%22Effect%22:%22Allow%22,%22Action%22:%22s3:*%22,\
               %22Resource%22:%22*%22%7D%5D%7D";
    ask(&format!("Action=PutUserPolicy&UserName=owner&PolicyName=all&PolicyDocument={all}"));
    exchange(guarded.port, "PUT /files", "", &[]);
    place.write("large.bin", LARGE);
    let with = |key: &str, secret: &str, arguments: &[&str]| {
        let mut command = place.command(arguments);
        command.env("AWS_ENDPOINT_URL", format!("http://127.0.0.1:{}", guarded.port));
        command.env("AWS_ACCESS_KEY_ID", key).env("AWS_SECRET_ACCESS_KEY", secret);
        command
    };
    let first = run("a", "file=@large.bin", &["--blobs", "s3://files/x"]);
    for (key, secret, code) in [
        (KEY, SECRET, "InvalidAccessKeyId"),
        (key.as_str(), SECRET, "SignatureDoesNotMatch"),
        (guest.as_str(), guest_secret.as_str(), "AccessDenied"),
    ] {
        let refused = told(&with(key, secret, &first).output().unwrap(), 2);
        let parts = [&format!("cannot use s3://files/x: {code}") as &str, "`AWS_ACCESS_KEY_ID` and its rights"];
        assert!(parts.iter().all(|part| refused.contains(part)), "{refused}");
        assert!(!refused.contains(key) && !refused.contains(secret), "{refused}");
    }
    assert_empty(&place);
    let value = json(&done(&mut with(&key, &secret, &first)))["file"].clone();
    let reading = place.reading(&value);
    let reading: Vec<&str> = reading.iter().map(String::as_str).collect();
    let refused = told(&with(&guest, &guest_secret, &reading).output().unwrap(), 74);
    assert!(refused.contains("cannot save the output `file`") && refused.contains("AccessDenied"), "{refused}");
    done(&mut with(&key, &secret, &reading));
    let read = |name: &str| fs::read(place.path().join(name)).unwrap();
    assert!(read("read/file.bin") == read("large.bin"));
}

/// Commands of a store whose object store is away say so, and lose nothing.
fn check_away(place: &Place) {
    for (name, size) in [("large.bin", LARGE), ("more.bin", LARGE), ("small.bin", SMALL)] {
        place.write(name, size);
    }
    let address = place.address();
    let a = place.run("a", "large.bin");
    // A file that is in memory as a whole stays in the database, and the command says so.
    let small = place.away(&run("b", "file=@small.bin", &["--blobs", &address]));
    let warned = told(&small, 0);
    for warning in ["warning: the files of the store cannot be read for now: ", "so new ones go into the database"] {
        assert!(warned.contains(warning), "{warned}");
    }
    let b = json(&stdout(&small))["file"].clone();
    let refused = told(&place.away(&run("c", "file=@more.bin", &["--blobs", &address])), 74);
    let parts = ["cannot use the file more.bin: the store: cannot write a file to ", &address];
    assert!(parts.iter().all(|part| refused.contains(part)), "{refused}");
    let listed = json(&place.done(&["runs", "list", "--json"]));
    let runs: Vec<_> = listed.as_array().unwrap().iter().map(|run| run["runId"].as_str().unwrap()).collect();
    assert_eq!(runs, ["b", "a"]);
    let reading = place.reading(&a);
    let refused = told(&place.away(&reading.iter().map(String::as_str).collect::<Vec<_>>()), 74);
    assert!(
        refused.contains(&format!("cannot save the output `file`: the store: cannot use {address}: ")),
        "{refused}"
    );
    let refused = told(&place.away(&["store", "check"]), 74);
    assert!(refused.contains(&format!("cannot use {address}: ")) && !refused.contains("damage"), "{refused}");
    let c = place.run("c", "more.bin");
    // So does a file of a command that has no key.
    place.write("keyless.bin", SMALL);
    let without_key = |arguments: &[&str]| place.command(arguments).env_remove("AWS_ACCESS_KEY_ID").output().unwrap();
    let beside = without_key(&run("d", "file=@keyless.bin", &[]));
    let warned = told(&beside, 0);
    let warning = format!(
        "warning: new files stay beside the rows of the store for a while: the files of the store are in {address}: "
    );
    assert!(warned.contains(&warning) && warned.contains("AWS_ACCESS_KEY_ID"), "{warned}");
    let d = json(&stdout(&beside))["file"].clone();
    if place.database.is_some() {
        fs::File::create(place.path().join("huge.bin")).unwrap().set_len(33 << 20).unwrap();
        let refused = told(&without_key(&run("e", "file=@huge.bin", &[])), 2);
        assert!(refused.contains("bytes while its object store cannot be used"), "{refused}");
    }
    for (value, file) in [(&a, "large.bin"), (&b, "small.bin"), (&c, "more.bin"), (&d, "keyless.bin")] {
        place.assert_read(value, file);
    }
    assert_eq!(place.objects().len(), 2);
    let checked = json(&place.done(&["store", "check"]));
    assert_eq!(checked["damage"], serde_json::json!([]), "{checked}");
}

#[test]
fn commands_of_a_folder_say_that_the_object_store_is_away() {
    let Some(place) = in_folder() else { return };
    check_away(&place);
}

#[test]
fn commands_of_postgresql_say_that_the_object_store_is_away() {
    let Some(place) = on_postgres() else { return };
    check_away(&place);
}

/// The object store goes away while runs read and write files. They go on when it is back.
fn check_outage_during_runs(place: &Place) {
    let proxy = Proxy::to(place.moto.port);
    fs::write(place.path().join("waits.yaml"), WAITS).unwrap();
    fs::write(place.path().join("text.txt"), "one line\n".repeat(LARGE / 9)).unwrap();
    place.write("taken.bin", LARGE);
    let address = place.address();
    let input = ["run", "waits.yaml", "--run-id", "a", "-i", "text=@text.txt"];
    let start = [&input[..], &["--files", ".", "--quiet", "--blobs", &address]].concat();
    let parked = place.command(&start).output().unwrap();
    assert_eq!(parked.status.code(), Some(3), "{}", stderr(&parked));
    let mut driver = place.command(&["drive", "--blobs", &address, "--files", "."]);
    driver.env("AWS_ENDPOINT_URL", format!("http://127.0.0.1:{}", proxy.port));
    let mut driver = Serving::spawn(driver);
    driver.wait_for("driving the runs");
    proxy.set_behaviour(Behaviour::Broken);
    place.done(&["answer", "a", "ask", "yes"]);
    let has_failed = |node: &str| {
        let events = place.done(&["runs", "events", "a"]);
        let mut events = events.lines().map(json);
        events.any(|event| {
            event["type"] == "task:retry" && event["nodeId"] == node && event["error"]["code"] == "store_failed"
        })
    };
    wait_until("both nodes have failed", || has_failed("read") && has_failed("take"));
    assert_eq!(place.objects().len(), 1);
    proxy.set_behaviour(Behaviour::Carry);
    let shown = || json(&place.done(&["runs", "show", "a", "--json"]));
    wait_until("the run has ended", || shown()["status"] == "succeeded");
    driver.stop();
    let outputs = json(&place.done(&start));
    assert_eq!(outputs["lines"], serde_json::json!(["one line"]));
    place.assert_read(&outputs["taken"], "taken.bin");
    assert_eq!(place.objects().len(), 2);
    assert_eq!(place.moto.unfinished(&place.bucket), 0, "no parts are left");
}

#[test]
fn a_run_of_a_folder_goes_on_when_the_object_store_is_back() {
    let Some(place) = in_folder() else { return };
    check_outage_during_runs(&place);
}

#[test]
fn a_run_of_postgresql_goes_on_when_the_object_store_is_back() {
    let Some(place) = on_postgres() else { return };
    check_outage_during_runs(&place);
}
