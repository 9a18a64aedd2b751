//! Tests webhooks: a request without a valid signature gets no information and starts nothing, and a repeated request
//! starts one run.

use std::{
    fs,
    sync::Arc,
    time::{Instant, SystemTime, UNIX_EPOCH},
};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use flowcell::triggers::webhook::REFUSAL_INTERVAL;
use flowcell_server::{Limits, identity::Local};
use ring::hmac;

use crate::{
    client::{Answer, Served, ask},
    triggers::household::{builder, write},
};

pub(crate) const SECRET: &str = "a-secret-of-many-characters";
const PATH: &str = "/v1/hooks/local/posted/hook";

fn serve() -> Served {
    let folder = tempfile::tempdir().unwrap();
    let secrets = folder.path().join("secrets.yaml");
    fs::write(folder.path().join("key"), SECRET).unwrap();
    fs::write(folder.path().join("other"), "https://a.test is for this").unwrap();
    let known = "hook-key: { keyFile: key, for: webhook }\nother: { keyFile: other, for: [\"https://a.test\"] }\n";
    fs::write(&secrets, known).unwrap();
    let hook = "{ id: hook, webhook: { secret: [old-key, hook-key] } }, { id: keyless, webhook: { secret: nothing } }, \
                { id: other, webhook: { secret: other } }, { id: nightly, cron: \"0 2 * * *\" }";
    write(folder.path(), "posted", hook);
    let host = builder().state_dir(folder.path()).secrets_file(secrets).build().unwrap();
    let served = Served::over(host, folder, Arc::new(Local), Limits::default());
    // The server has found the triggers of the folder.
    assert_eq!(served.get("/v1/triggers").json()["triggers"].as_array().unwrap().len(), 4);
    for (cursor, left) in [("posted/hook", 3), ("posted/nightly", 1), ("posted/other", 0), ("post", 4)] {
        let page = served.get(&format!("/v1/triggers?cursor={cursor}")).json();
        assert_eq!(page["triggers"].as_array().unwrap().len(), left, "{cursor}");
    }
    served
}

pub(crate) fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs()
}

fn signature(secret: &str, id: &str, timestamp: u64, body: &str) -> String {
    let key = hmac::Key::new(hmac::HMAC_SHA256, secret.as_bytes());
    format!("v1,{}", STANDARD.encode(hmac::sign(&key, format!("{id}.{timestamp}.{body}").as_bytes())))
}

pub(crate) fn post(served: &Served, path: &str, headers: &[(&str, String)], body: &str) -> Answer {
    let headers: Vec<_> = headers.iter().map(|(name, value)| (*name, value.as_str())).collect();
    ask(served.address, "POST", path, &headers, body)
}

/// Returns the headers of a request that the key of the trigger signs.
fn signature_headers(id: &str, timestamp: u64, body: &str) -> Vec<(&'static str, String)> {
    headers_signed_by(SECRET, id, timestamp, body)
}

/// Returns the headers of a request that this key signs.
pub(crate) fn headers_signed_by(key: &str, id: &str, timestamp: u64, body: &str) -> Vec<(&'static str, String)> {
    let signature = signature(key, id, timestamp, body);
    vec![("webhook-id", id.into()), ("webhook-timestamp", timestamp.to_string()), ("webhook-signature", signature)]
}

pub(crate) fn count_runs(served: &Served) -> usize {
    served.get("/v1/runs").json()["runs"].as_array().unwrap().len()
}

#[test]
fn h7_posts_without_a_valid_signature_start_nothing() {
    let served = serve();
    let (now, body) = (now(), r#"{"a":1}"#);
    let good = signature_headers("m1", now, body);
    let with = |index: usize, value: String| {
        let mut headers = good.clone();
        headers[index].1 = value;
        headers
    };
    let mut cases = vec![
        ("nothing", Vec::new()),
        ("no signature", good[..2].to_vec()),
        ("another key", with(2, signature("another secret", "m1", now, body))),
        ("another version", with(2, signature(SECRET, "m1", now, body).replace("v1,", "v2,"))),
        ("another id", with(0, "m2".into())),
        ("another time", with(1, (now + 1).to_string())),
        ("an old post", signature_headers("m1", now - 400, body)),
        ("a post of the future", signature_headers("m1", now + 400, body)),
        ("another body", signature_headers("m1", now, r#"{"a":2}"#)),
    ];
    for (name, value) in &good {
        cases.push(("a header twice", [good.clone(), vec![(*name, value.clone())]].concat()));
    }
    for (case, headers) in cases {
        assert_eq!(post(&served, PATH, &headers, body).fault(), (401, "unsigned".into()), "{case}");
        assert_eq!(count_runs(&served), 0, "{case}");
    }
    let token = ask(served.address, "POST", PATH, &[("Authorization", "Bearer x")], body);
    assert_eq!(token.fault(), (401, "unsigned".into()), "a token is no signature");
    assert_eq!(post(&served, PATH, &good, body).status, 202);
}

#[test]
fn h7_a_repeated_post_starts_no_second_run() {
    let served = serve();
    let (now, body) = (now(), r#"{"order":7}"#);
    let first = post(&served, PATH, &signature_headers("m1", now, body), body);
    assert_eq!(first.status, 202, "{first:?}");
    let run = first.json()["runId"].as_str().unwrap().to_owned();
    for timestamp in [now, now + 1] {
        let again = post(&served, PATH, &signature_headers("m1", timestamp, body), body);
        assert_eq!((again.status, again.json()["runId"].as_str().unwrap()), (200, run.as_str()));
    }
    let altered = post(&served, PATH, &signature_headers("m1", now, r#"{"order":8}"#), r#"{"order":8}"#);
    assert_eq!(altered.fault(), (409, "webhook_conflict".into()));
    assert_eq!(count_runs(&served), 1);
    // Simultaneous repetitions start one run.
    let headers = signature_headers("m2", now, body);
    let ids: Vec<_> = std::thread::scope(|scope| {
        let posts: Vec<_> = (0..8).map(|_| scope.spawn(|| post(&served, PATH, &headers, body))).collect();
        posts.into_iter().map(|post| post.join().unwrap()).map(|answer| answer.json()["runId"].clone()).collect()
    });
    assert!(ids.iter().all(|id| *id == ids[0] && id.is_string()), "{ids:?}");
    assert_eq!(count_runs(&served), 2);
    let body = json_of(&served, &run);
    assert_eq!(body["outputs"]["say"]["value"]["body"]["order"], 7, "{body}");
    assert_eq!(body["outputs"]["say"]["value"]["messageId"], "m1");
}

#[test]
fn h7_of_simultaneous_posts_with_one_id_and_other_bodies_one_is_taken() {
    let served = serve();
    let now = now();
    for round in 0..4 {
        let id = format!("m{round}");
        let answers: Vec<Answer> = std::thread::scope(|scope| {
            let send = |order: usize| {
                let body = format!(r#"{{"order":{order}}}"#);
                post(&served, PATH, &signature_headers(&id, now, &body), &body)
            };
            let posts: Vec<_> = (0..8).map(|order| scope.spawn(move || send(order))).collect();
            posts.into_iter().map(|post| post.join().unwrap()).collect()
        });
        let taken: Vec<_> = (0..8).filter(|order| answers[*order].status == 202).collect();
        assert_eq!(taken.len(), 1, "{answers:?}");
        for (order, answer) in answers.iter().enumerate().filter(|(order, _)| *order != taken[0]) {
            assert_eq!(answer.fault(), (409, "webhook_conflict".into()), "{order}: {answer:?}");
        }
        let run = json_of(&served, answers[taken[0]].json()["runId"].as_str().unwrap());
        assert_eq!(run["outputs"]["say"]["value"]["body"]["order"], taken[0], "{run}");
    }
    assert_eq!(count_runs(&served), 4);
}

#[test]
fn a_run_of_a_post_is_not_opened_again_to_start() {
    let served = serve();
    let (now, body) = (now(), "{}");
    let run =
        post(&served, PATH, &signature_headers("m1", now, body), body).json()["runId"].as_str().unwrap().to_owned();
    assert_eq!(json_of(&served, &run)["status"], "succeeded");
    let events = served.get(&format!("/v1/runs/{run}/events")).json();
    let kinds: Vec<_> = events["events"].as_array().unwrap().iter().map(|event| event["type"].clone()).collect();
    assert!(kinds.iter().any(|kind| kind == "harness:complete"), "{kinds:?}");
    // The first event after a run is opened from its journal says that it was resumed.
    assert!(kinds.iter().all(|kind| kind != "harness:resumed"), "{kinds:?}");
}

/// Waits for the end of a run, which closes its event stream. Returns the run.
pub(crate) fn json_of(served: &Served, run: &str) -> serde_json::Value {
    let stream = crate::client::connect(served.address);
    let path = format!("/v1/runs/{run}/events/stream");
    crate::client::send(&stream, served.address, "GET", &path, &[("Connection", "close")], "");
    std::io::read_to_string(stream).unwrap();
    served.get(&format!("/v1/runs/{run}")).json()
}

#[test]
fn h7_a_post_without_a_key_learns_nothing() {
    let served = serve();
    let (now, body) = (now(), "{}");
    let headers = signature_headers("m1", now, body);
    let wrong = post(&served, PATH, &[&headers[..2], &[("webhook-signature", "v1,AAAA".into())]].concat(), body);
    let places = [
        "local/posted/none",
        "local/none/hook",
        "nobody/posted/hook",
        "local/posted/keyless",
        "local/posted/nightly",
        "local/posted/other",
    ];
    for place in places {
        let (sent, answer) = (Instant::now(), post(&served, &format!("/v1/hooks/{place}"), &headers, body));
        assert_eq!((answer.status, &answer.body), (wrong.status, &wrong.body), "{place}");
        assert!(sent.elapsed() >= REFUSAL_INTERVAL, "{place}: the time tells whether a key was looked for");
    }
    // An existing trigger takes the same time to refuse a request.
    let sent = Instant::now();
    assert_eq!(post(&served, PATH, &signature_headers("m1", now, "another body"), body).status, 401);
    assert!(sent.elapsed() >= REFUSAL_INTERVAL);
    let large = "x".repeat(flowcell::triggers::webhook::POST_BYTES + 1);
    assert_eq!(post(&served, PATH, &headers, &large).fault(), (413, "too_large".into()));
    assert_eq!(count_runs(&served), 0);
}

#[test]
fn posts_are_counted_by_outcome_and_made_up_names_are_not_kept() {
    let served = serve();
    let (now, body) = (now(), "{}");
    let good = signature_headers("m1", now, body);
    let other = r#"{"a":1}"#;
    for (path, headers, body, status) in [
        (PATH, good.clone(), body, 202),
        (PATH, good.clone(), body, 200),
        (PATH, signature_headers("m1", now, other), other, 409),
        (PATH, headers_signed_by("another-key-of-many-characters", "m2", now, body), body, 401),
        (PATH, Vec::new(), body, 401),
        ("/v1/hooks/canary/posted/hook", good.clone(), body, 401),
        ("/v1/hooks/local/canary/hook", good.clone(), body, 401),
        ("/v1/hooks/local/posted/canary", Vec::new(), body, 401),
    ] {
        assert_eq!(post(&served, path, &headers, body).status, status, "{path} {headers:?}");
    }
    let text = served.get("/metrics").body;
    let mut counted: Vec<_> = text.lines().filter(|line| line.starts_with("flowcell_webhook_posts_total{")).collect();
    counted.sort();
    let expected = [
        r#"flowcell_webhook_posts_total{tenant="local",outcome="other_body"} 1"#,
        r#"flowcell_webhook_posts_total{tenant="local",outcome="repeated"} 1"#,
        r#"flowcell_webhook_posts_total{tenant="local",outcome="started"} 1"#,
        r#"flowcell_webhook_posts_total{tenant="local",outcome="unsigned"} 2"#,
        r#"flowcell_webhook_posts_total{tenant="other",outcome="unknown_trigger"} 3"#,
    ];
    assert_eq!(counted, expected);
    assert!(!text.contains("canary"), "{text}");
}
