//! The page of a link that answers a gate.

use std::{
    io::{Read, Write},
    net::TcpListener,
    sync::mpsc::channel,
    thread,
    time::Duration,
};

use flowcell_platform::Host;
use flowcell_server::identity::Local;
use serde_json::{Value, json};

use crate::{OWN, client::Served, encoded, hidden, post};

/// A prompt that tries to be more than a text.
const HOSTILE: &str = "<script>alert(1)</script> \u{202e}pay";

/// Starts a server whose notifications have links, and a run that asks. Returns the code of its link.
fn asked() -> (Served, String) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let (port, (tell, told)) = (listener.local_addr().unwrap().port(), channel());
    thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let (mut seen, mut part) = (Vec::new(), [0; 4_096]);
        // The message is the whole post up to its last brace.
        while !seen.ends_with(b"}") {
            let length = stream.read(&mut part).unwrap();
            seen.extend_from_slice(&part[..length]);
        }
        stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n").unwrap();
        tell.send(String::from_utf8(seen).unwrap()).unwrap();
    });
    let file = format!(
        "console: http://localhost:7171\ntargets:\n  - {{ name: ops, channel: webhook, url: 'http://127.0.0.1:{port}/', \
         allowPrivate: true, answer: true, kinds: [gate_opened] }}\n"
    );
    let folder = tempfile::tempdir().unwrap();
    let cache = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("cache");
    let host = Host::builder().cache_dir(cache).instances(16).state_dir(folder.path()).build().unwrap();
    let pages = Some(flowcell_console::router as flowcell_server::Pages);
    let served = Served::with_notifications(pages, host, folder, std::sync::Arc::new(Local), &file);
    let flow = json!({ "flow": { "name": "asks" }, "nodes": [{ "id": "ok", "type": "control.gate",
        "input": { "prompt": HOSTILE, "choices": ["yes", "no"] } }] });
    let begun = served.post("/v1/runs?wait=true", &json!({ "flow": flow, "runId": "r" }));
    assert_eq!(begun.json()["status"], "parked", "{begun:?}");
    let post = told.recv_timeout(Duration::from_secs(60)).unwrap();
    let message: Value = serde_json::from_str(&post[post.find("\r\n\r\n").unwrap()..]).unwrap();
    let code = message["link"].as_str().unwrap().strip_prefix("http://localhost:7171/console/answer#").unwrap();
    (served, code.to_owned())
}

#[test]
fn a_page_shows_its_question_after_the_code_and_takes_one_answer() {
    let (served, code) = asked();
    let bare = served.get("/console/answer");
    assert!(bare.status == 200 && bare.body.contains("data-by-link") && !bare.body.contains("asks"), "{bare:?}");
    let open = || post(&served, "/console/answer", &[OWN], &format!("code={}", encoded(&code)));
    let page = open();
    assert!(page.status == 200 && page.body.contains("&lt;script&gt;") && page.body.contains("pay"), "{page:?}");
    assert!(!page.body.contains("<script>") && !page.body.contains('\u{202e}'), "{page:?}");
    assert!(!page.body.contains("/console/runs"), "no page of the console is linked: {page:?}");
    assert_eq!(hidden(&page.body, "code"), code);
    let pasted = format!("code={}", encoded(&format!("https://flows.example.com/console/answer#{code}")));
    assert_eq!(post(&served, "/console/answer", &[OWN], &pasted).status, 200);
    let send = |choice: &str, text: &str| {
        let form = format!("code={}&text={}&choice={}", encoded(&code), encoded(text), encoded(choice));
        post(&served, "/console/answer/send", &[OWN], &form)
    };
    let wrong = send("maybe", "");
    assert!((400..500).contains(&wrong.status) && wrong.body.contains("Refused"), "{wrong:?}");
    let sent = send("yes", "");
    assert_eq!((sent.status, sent.header("location")), (303, Some("/console/answer/done")), "{sent:?}");
    assert!(served.get("/console/answer/done").body.contains("is recorded"));
    for late in [send("no", ""), open()] {
        assert!(late.status == 409 && late.body.contains("was answered at") && late.body.contains("<time"), "{late:?}");
    }
    let said = served.ended("r");
    assert_eq!(said["status"], "succeeded", "{said}");
}

#[test]
fn a_wrong_code_shows_nothing_of_the_run() {
    let (served, code) = asked();
    for wrong in ["", "x", &code[..code.len() - 2], "#", "<b>"] {
        for path in ["/console/answer", "/console/answer/send"] {
            let page = post(&served, path, &[OWN], &format!("code={}&choice=yes", encoded(wrong)));
            assert_eq!(page.status, 404, "{page:?}");
            let told = ["asks", "script&gt;", "<b>"].iter().any(|text| page.body.contains(text));
            assert!(page.body.contains("link_invalid") && !told, "{page:?}");
        }
    }
    assert_eq!(served.get("/v1/runs/r").json()["status"], "parked");
}
