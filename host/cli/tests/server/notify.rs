//! Tests `flowcell serve --notify`: the targets hear of each event at least once, with the same id if a process is killed.

use std::{
    collections::HashMap,
    fs,
    io::{BufRead, BufReader, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    path::Path,
    process::Command,
    sync::{
        Mutex,
        mpsc::{Receiver, Sender, channel},
    },
    thread,
    time::{Duration, Instant},
};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use flowcell_runtime::sql::Dialect;
use ring::hmac;
use serde_json::{Value, json};

use crate::{
    client::ask,
    kit::{Running, output_of, stderr},
    outside::server::{Seen, Server, answer},
    samples::asks,
    server::process::{serve, serve_with_output, stop},
    servers,
};

/// The time limit for a message to arrive.
const SOON: Duration = Duration::from_secs(60);
const SECRET: &str = "a-secret-of-many-characters";
/// A text of a tenant that tries to be more than a text.
const HOSTILE: &str = "<!channel> <https://evil.test|click>\r\nBcc: evil@evil.test";

/// A receiver of posts. `react` gets the number of earlier posts, and returns a status, or `None` for no answer.
pub(super) struct Hook {
    server: Server,
    posts: Receiver<Seen>,
    _hang: Sender<()>,
}

impl Hook {
    pub(super) fn start(react: impl Fn(usize) -> Option<&'static str> + Send + Sync + 'static) -> Hook {
        let (tell, posts) = channel();
        let (hang, hung) = channel::<()>();
        let (tell, hung) = (Mutex::new(tell), Mutex::new(hung));
        let server = Server::start(move |seen, before| {
            let _ = tell.lock().unwrap().send(seen.clone());
            match react(before) {
                Some(status) => answer(status, &[("retry-after", "1")], ""),
                None => {
                    // Ends with the test.
                    let _ = hung.lock().unwrap().recv();
                    String::new()
                }
            }
        });
        Hook { server, posts, _hang: hang }
    }

    pub(super) fn good() -> Hook {
        Hook::start(|_| Some("200 OK"))
    }

    pub(super) fn target(&self, name: &str, rest: &str) -> String {
        let url = format!("{}/secret-path", self.server.origin());
        format!("  - {{ name: {name}, channel: webhook, url: '{url}', allowPrivate: true{rest} }}\n")
    }

    /// Waits for the next post.
    #[track_caller]
    pub(super) fn next(&self) -> (Seen, Value) {
        let seen = self.posts.recv_timeout(SOON).unwrap();
        let body = serde_json::from_str(&seen.body).unwrap();
        (seen, body)
    }
}

/// Writes the file of targets, and starts a server with it.
fn start(folder: &Path, targets: &str) -> (Running, SocketAddr) {
    fs::write(folder.join("notify.yaml"), format!("targets:\n{targets}")).unwrap();
    serve(folder, &["--notify", "notify.yaml"])
}

fn fails(name: &str) -> Value {
    json!({
        "flow": { "name": name },
        "nodes": [{ "id": "no", "type": "control.fail", "input": { "message": HOSTILE, "code": "sold_out" } }],
    })
}

#[track_caller]
fn run(address: SocketAddr, flow: &Value, id: &str) {
    let body = json!({ "flow": flow, "runId": id }).to_string();
    let answer = ask(address, "POST", "/v1/runs?wait=true", &[], &body);
    assert_eq!(answer.status, 201, "{answer:?}");
}

fn kill(mut child: Running) {
    child.kill().unwrap();
    child.wait().unwrap();
}

#[test]
fn gates_and_failures_arrive_signed_once_and_as_plain_texts() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("key"), SECRET).unwrap();
    let (ops, slack, plain) = (Hook::good(), Hook::good(), Hook::good());
    let targets = ops.target("ops", ", secretFrom: 'file:key', contents: true")
        + &slack.target("chat", ", format: slack, contents: true, kinds: [run_failed]")
        + &plain.target("plain", ", flows: [sells]");
    // What happened before the first start with the file is no news.
    let (child, address) = serve(folder.path(), &[]);
    run(address, &fails("old"), "old");
    run(address, &asks(), "old-gate");
    assert_eq!(stop(child), Some(0));
    let (child, address) = start(folder.path(), &targets);
    run(address, &asks(), "g");
    let (seen, gate) = ops.next();
    assert_eq!((&gate["kind"], &gate["run"], &gate["address"]), (&json!("gate_opened"), &json!("g"), &json!("ok")));
    assert_eq!((&gate["text"], &gate["flow"], &gate["tenant"]), (&json!("Go on?"), &json!("asks"), &json!("local")));
    let id = gate["id"].as_str().unwrap();
    let signed = format!("{id}.{}.{}", seen.header("webhook-timestamp").unwrap(), seen.body);
    let key = hmac::Key::new(hmac::HMAC_SHA256, SECRET.as_bytes());
    let signature = format!("v1,{}", STANDARD.encode(hmac::sign(&key, signed.as_bytes())));
    assert_eq!((seen.header("webhook-id"), seen.header("webhook-signature")), (Some(id), Some(signature.as_str())));
    run(address, &fails("sells"), "f");
    let (_, failure) = ops.next();
    assert_eq!(
        (&failure["kind"], &failure["run"], &failure["code"]),
        (&json!("run_failed"), &json!("f"), &json!("sold_out"))
    );
    assert!(failure["text"].as_str().unwrap().starts_with("<!channel>"), "{failure}");
    let (_, card) = slack.next();
    assert!(
        !card["text"].as_str().unwrap().contains('<') && card["blocks"][1]["text"]["type"] == "plain_text",
        "{card}"
    );
    let (seen, bare) = plain.next();
    assert!(bare.get("text").is_none() && !seen.body.contains("Bcc") && seen.header("webhook-signature").is_none());
    // A new process sends only new messages.
    assert_eq!(stop(child), Some(0));
    let (child, address) = start(folder.path(), &targets);
    let reply = ask(address, "POST", "/v1/runs/g/gates/ok/reply", &[], r#"{"answer":"yes"}"#);
    assert_eq!(reply.status, 200, "{reply:?}");
    run(address, &fails("sells"), "f2");
    assert_eq!((&ops.next().1["run"], &plain.next().1["run"]), (&json!("f2"), &json!("f2")));
    // The receiver has the message before the server has its answer.
    let metrics = || ask(address, "GET", "/metrics", &[], "").body;
    let sent = r#"flowcell_notifications_total{target="ops",outcome="sent"} 1"#;
    let began = Instant::now();
    while !metrics().contains(sent) {
        assert!(began.elapsed() < SOON, "{}", metrics());
    }
    assert!(!metrics().contains("secret-path"));
    assert_eq!(stop(child), Some(0));
}

#[test]
fn a_receiver_that_was_down_gets_the_same_message_again() {
    let folder = tempfile::tempdir().unwrap();
    let hook = Hook::start(|before| match before {
        0 => Some("503 Service Unavailable"),
        1 => Some("429 Too Many Requests"),
        2 => Some("302 Found"),
        _ => Some("204 No Content"),
    });
    let (child, address) = start(folder.path(), &hook.target("ops", ""));
    run(address, &fails("sells"), "f");
    let ids: Vec<_> = (0..4).map(|_| hook.next().1["id"].clone()).collect();
    assert!(ids.iter().all(|id| *id == ids[0] && id.is_string()), "{ids:?}");
    run(address, &fails("sells"), "g");
    assert_eq!(hook.next().1["run"], "g");
    assert_eq!(stop(child), Some(0));
}

#[test]
fn a_process_that_is_killed_before_it_records_a_message_sends_it_again() {
    let folder = tempfile::tempdir().unwrap();
    let hook = Hook::start(|before| (before > 0).then_some("200 OK"));
    let target = hook.target("ops", "");
    let (child, address) = start(folder.path(), &target);
    run(address, &asks(), "g");
    let first = hook.next().1;
    kill(child);
    let (child, address) = start(folder.path(), &target);
    assert_eq!(hook.next().1["id"], first["id"]);
    run(address, &fails("sells"), "f");
    let failure = hook.next().1;
    assert_eq!(failure["run"], "f");
    kill(child);
    // Events while no process looks are reported afterwards.
    let (child, address) = serve(folder.path(), &[]);
    run(address, &fails("sells"), "meanwhile");
    assert_eq!(stop(child), Some(0));
    let (child, address) = start(folder.path(), &target);
    run(address, &fails("sells"), "last");
    // Messages that the killed process had sent without recording it come again, with the same ids.
    let known = HashMap::from([(json!("g"), first["id"].clone()), (json!("f"), failure["id"].clone())]);
    let mut told = Vec::new();
    while told.last() != Some(&json!("last")) {
        let message = hook.next().1;
        match known.get(&message["run"]) {
            Some(id) => assert_eq!(*id, message["id"]),
            None => told.push(message["run"].clone()),
        }
    }
    assert_eq!(told, ["meanwhile", "last"]);
    assert_eq!(stop(child), Some(0));
}

#[test]
fn a_target_that_hangs_holds_up_no_other_one() {
    let folder = tempfile::tempdir().unwrap();
    let (hanging, good) = (Hook::start(|_| None), Hook::good());
    let (child, address) = start(folder.path(), &(hanging.target("hangs", "") + &good.target("good", "")));
    for id in ["a", "b", "c"] {
        run(address, &fails("sells"), id);
        assert_eq!(good.next().1["run"], id);
    }
    assert_eq!(hanging.next().1["run"], "a");
    kill(child);
}

/// Takes mail on one connection after the other. Returns the address, and the received lines of each mail.
fn mail_sink() -> (SocketAddr, Receiver<Vec<String>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let (tell, mails) = channel();
    thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            let _ = take_mail(stream, &tell);
        }
    });
    (address, mails)
}

fn take_mail(mut stream: TcpStream, tell: &Sender<Vec<String>>) -> std::io::Result<()> {
    let mut lines = BufReader::new(stream.try_clone()?).lines();
    let mut seen = Vec::new();
    stream.write_all(b"220 sink\r\n")?;
    while let Some(line) = lines.next().transpose()? {
        let reply = match line.split(' ').next().unwrap_or_default() {
            "EHLO" => "250 sink\r\n",
            "DATA" => {
                stream.write_all(b"354 go on\r\n")?;
                while let Some(line) = lines.next().transpose()?.filter(|line| line != ".") {
                    seen.push(line);
                }
                let _ = tell.send(std::mem::take(&mut seen));
                "250 taken\r\n"
            }
            "QUIT" => return stream.write_all(b"221 bye\r\n"),
            _ => "250 fine\r\n",
        };
        if line.starts_with("RCPT") {
            seen.push(line);
        }
        stream.write_all(reply.as_bytes())?;
    }
    Ok(())
}

#[test]
fn a_mail_has_the_texts_of_a_run_in_its_body_alone() {
    let folder = tempfile::tempdir().unwrap();
    let (sink, mails) = mail_sink();
    let targets = format!(
        "  - {{ name: team, channel: mail, to: [team@a.test, 'Boss <boss@a.test>'], contents: true }}\n\
         mail: {{ server: 127.0.0.1, port: {}, tls: none, from: 'Flowcell <flowcell@a.test>' }}\n",
        sink.port()
    );
    let (child, address) = start(folder.path(), &targets);
    run(address, &fails("sells"), "f");
    let mail = mails.recv_timeout(SOON).unwrap();
    assert_eq!(mail[..2], ["RCPT TO:<team@a.test>", "RCPT TO:<boss@a.test>"]);
    let end = mail.iter().position(String::is_empty).unwrap();
    let (head, body) = (&mail[2..end], mail[end..].join("\n"));
    assert!(head.iter().any(|line| line == "Subject: A run has failed: sells [local]"), "{head:?}");
    assert!(head.iter().any(|line| line.starts_with("Message-ID: <ntf_")), "{head:?}");
    assert!(!mail.iter().any(|line| line.starts_with("Bcc")), "{mail:?}");
    assert!(body.contains("Code: sold_out") && body.contains("channel> "), "{body}");
    assert_eq!(stop(child), Some(0));
}

#[test]
fn a_wrong_file_is_refused_with_its_place_and_a_missing_secret_by_its_name() {
    let folder = tempfile::tempdir().unwrap();
    for (text, why) in [
        ("targets:\n  - { name: a, chanel: mail }\n", "chanel"),
        ("targets:\n  - { name: a, chanel: mail }\n", "line 2, column"),
        ("targets:\n  - { name: a, channel: webhook, urlFrom: 'env:NOT_SET_HERE' }\n", "NOT_SET_HERE"),
        ("targets:\n  - { name: a, channel: webhook, url: 'https://canary:canary@a.test' }\n", "user name"),
        ("targets:\n  - { name: a, channel: webhook, url: 'http://127.0.0.1:1/canary' }\n", "127.0.0.1"),
        ("targets:\n  - { name: a, channel: program, command: [a], answer: true }\n", "needs the public address"),
        ("console: http://flows.example.com\n", "must begin with `https://`"),
    ] {
        fs::write(folder.path().join("notify.yaml"), text).unwrap();
        for check in [&["--check"][..], &[]] {
            let all = [&["serve", "--listen", "127.0.0.1:0", "--notify", "notify.yaml"], check].concat();
            let output = output_of(folder.path(), &all);
            let told = stderr(&output);
            assert_eq!(output.status.code(), Some(2), "{text}: {told}");
            assert!(told.contains(why) && !told.contains("canary"), "{text}: {told}");
        }
    }
    fs::write(folder.path().join("notify.yaml"), "# nothing yet\n").unwrap();
    let output = output_of(folder.path(), &["serve", "--notify", "notify.yaml", "--check"]);
    assert!(output.status.success() && stderr(&output).contains("has no targets"), "{}", stderr(&output));
}

#[test]
fn a_file_that_is_read_again_replaces_the_targets_and_a_broken_one_does_not() {
    let folder = tempfile::tempdir().unwrap();
    let (first, second) = (Hook::start(|before| (before == 0).then_some("200 OK")), Hook::good());
    let (child, address, output) = {
        fs::write(folder.path().join("notify.yaml"), format!("targets:\n{}", first.target("first", ""))).unwrap();
        serve_with_output(folder.path(), &["--notify", "notify.yaml"])
    };
    run(address, &fails("sells"), "a");
    assert_eq!(first.next().1["run"], "a");
    let reload = |text: &str| {
        fs::write(folder.path().join("notify.yaml"), text).unwrap();
        output_of(folder.path(), &["reload", "--json"])
    };
    let broken = reload("targets:\n  - { name: first, channel: pigeon }\n");
    assert_eq!(broken.status.code(), Some(2));
    let told: Value = serde_json::from_slice(&broken.stdout).unwrap();
    assert!(told["errors"][0].as_str().unwrap().contains("stay in force") && told["notifications"].is_null(), "{told}");
    // The first target does not answer any more. Its message is dropped with it.
    run(address, &fails("sells"), "b");
    assert_eq!(first.next().1["run"], "b", "the earlier file stays in force");
    fs::write(folder.path().join("key"), SECRET).unwrap();
    let good = reload(&format!("targets:\n{}", second.target("second", ", secretFrom: 'file:key'")));
    let told: Value = serde_json::from_slice(&good.stdout).unwrap();
    assert_eq!((&told["notifications"]["targets"], &told["errors"]), (&json!(1), &Value::Null), "{told}");
    run(address, &fails("sells"), "c");
    let (seen, message) = second.next();
    assert_eq!(message["run"], "c", "a new target hears of what happens from then on");
    assert!(seen.header("webhook-signature").is_some());
    // No target, and one again.
    assert!(reload("# nothing\n").status.success());
    let again = format!("targets:\n{}", second.target("second", ""));
    fs::write(folder.path().join("notify.yaml"), &again).unwrap();
    assert!(Command::new("kill").args(["-HUP", &child.id().to_string()]).status().unwrap().success());
    run(address, &fails("sells"), "d");
    // The reload by the signal may come before or after the failure of `d`, which both is told of at most once.
    assert!(reload(&again).status.success());
    run(address, &fails("sells"), "e");
    let mut told = Vec::new();
    while told.last() != Some(&json!("e")) {
        told.push(second.next().1["run"].clone());
    }
    assert!(told == ["e"] || told == ["d", "e"], "{told:?}");
    assert_eq!(stop(child), Some(0));
    let log = output.join().unwrap().join("\n");
    assert!(log.contains("1 notifications about `local` are dropped") && log.contains("`first`"), "{log}");
    assert!(log.contains("notifications: 1 target"), "{log}");
}

/// Starts a server on a shared store with the file of targets in the folder.
fn serve_on(folder: &Path, url: &str) -> (Running, SocketAddr) {
    serve(folder, &["--notify", "notify.yaml", "--store", url])
}

fn another_process_goes_on(dialect: Dialect) {
    let Some(server) = servers::server(dialect) else { return };
    let url = server.url(&server.database());
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let migrated = output_of(folder, &["store", "migrate", "--store", &url]);
    assert!(migrated.status.success(), "{}", stderr(&migrated));
    // The receiver holds the answer to the third post, so its process dies with this message under way.
    let hook = Hook::start(|before| (before != 2).then_some("200 OK"));
    fs::write(folder.join("notify.yaml"), format!("targets:\n{}", hook.target("ops", ""))).unwrap();
    let processes = [serve_on(folder, &url), serve_on(folder, &url)];
    let address = processes[1].1;
    let mut ids: HashMap<Value, Value> = HashMap::new();
    let mut hear = |message: Value| {
        let (run, id) = (message["run"].clone(), message["id"].clone());
        assert_eq!(*ids.entry(run).or_insert_with(|| id.clone()), id, "{message}");
        ids.len()
    };
    for run_id in ["a", "b", "c"] {
        run(address, &fails("sells"), run_id);
        hear(hook.next().1);
    }
    // It is not known which process sends, so each is killed in turn; the other one or its successor goes on.
    let [first, second] = processes;
    kill(first.0);
    run(second.1, &fails("sells"), "d");
    while hear(hook.next().1) < 4 {}
    let third = serve_on(folder, &url);
    kill(second.0);
    run(third.1, &fails("sells"), "e");
    while hear(hook.next().1) < 5 {}
    assert_eq!(stop(third.0), Some(0));
}

#[test]
fn another_process_on_mariadb_sends_what_a_killed_one_did_not() {
    another_process_goes_on(Dialect::MySql);
}

#[test]
fn another_process_on_postgres_sends_what_a_killed_one_did_not() {
    another_process_goes_on(Dialect::Postgres);
}
