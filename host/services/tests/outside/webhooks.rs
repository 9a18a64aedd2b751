//! Webhooks: what a post contains, when the host repeats it, and when it gives up.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, SystemTime},
};

use bytes::Bytes;
use flowcell_contract::Failure;
use flowcell_services::{
    client::Client,
    egress::Egress,
    model::{Clock, Wait},
    webhook::{MAX_ATTEMPTS, SigningKey, Webhook},
};
use futures_util::future::BoxFuture;

use crate::outside::{
    kit::{LOCAL, policy},
    server::{Reaction, Server, answer, ok},
};

/// 21 November 2026, 12:00:00.
const NOW: u64 = 1_795_262_400;

/// A clock that stands still. Waits between attempts end at once. The time limit of an attempt expires at once if
/// `late` is true; otherwise it never expires.
#[derive(Default)]
struct RecordingClock {
    between: Mutex<Vec<u128>>,
    late: bool,
}

impl Clock for RecordingClock {
    fn sleep(&self, why: Wait, how_long: Duration) -> BoxFuture<'static, ()> {
        match why {
            Wait::Backoff => self.between.lock().unwrap().push(how_long.as_millis()),
            _ if !self.late => return Box::pin(std::future::pending()),
            _ => {}
        }
        Box::pin(std::future::ready(()))
    }

    fn now(&self) -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_secs(NOW)
    }

    fn chance(&self) -> f64 {
        0.0
    }
}

fn webhook(url: &str, listed: &[&str], clock: &Arc<RecordingClock>) -> Result<Webhook, Failure> {
    let client = Client::new(Egress::new(policy(listed)).unwrap());
    Ok(Webhook::new(client, url, Some(SigningKey::new("secret").unwrap()))?.with_clock(clock.clone()))
}

/// Posts `{}` to a server that sends these answers one after the other, and then the last one forever. Returns the
/// outcome, the server and the waits between the attempts in milliseconds.
async fn posted(answers: Vec<Vec<u8>>) -> (Result<(), Failure>, Server, Vec<u128>) {
    let count = AtomicUsize::new(0);
    let server = Server::start(move |_| {
        let index = count.fetch_add(1, Ordering::AcqRel).min(answers.len() - 1);
        Reaction::Send(answers[index].clone())
    });
    let (server, clock) = (server.await, Arc::new(RecordingClock::default()));
    let url = format!("http://{}/secret-path?token=t", server.address);
    let outcome = webhook(&url, &[LOCAL], &clock).unwrap().post("msg_1", Bytes::from_static(b"{}")).await;
    let waits = clock.between.lock().unwrap().clone();
    (outcome, server, waits)
}

fn status(line: &str) -> Vec<u8> {
    answer(line, &[], b"")
}

#[tokio::test]
async fn a_post_has_an_id_a_time_and_a_signature() {
    let Reaction::Send(taken) = ok("thanks") else { unreachable!() };
    let (outcome, server, waits) = posted(vec![taken]).await;
    outcome.unwrap();
    let seen = server.seen();
    assert_eq!((seen.len(), waits), (1, vec![]));
    assert_eq!(seen[0].line, "POST /secret-path?token=t HTTP/1.1");
    assert_eq!(seen[0].body, b"{}");
    let table = [
        ("content-type", "application/json"),
        ("webhook-id", "msg_1"),
        ("webhook-timestamp", "1795262400"),
        ("webhook-signature", "v1,EHcAUTl75qsGaN1B4eQoBbMVO7bWvhWp4cyAkwv9WqI="),
    ];
    for (name, value) in table {
        assert_eq!(seen[0].header(name), Some(value), "{name}");
    }
    assert!(seen[0].header("user-agent").unwrap().starts_with("flowcell/"));
}

#[tokio::test]
async fn transient_failures_are_posted_again_with_the_same_id() {
    let busy = answer("429 Too Many Requests", &[("retry-after", "7")], b"");
    let date = answer("503 Gone Fishing", &[("retry-after", "Sat, 21 Nov 2026 12:30:00 GMT")], b"");
    let taken = status("204 No Content");
    let (outcome, server, waits) = posted(vec![status("500 Oops"), busy, date, status("408 Slow"), taken]).await;
    outcome.unwrap();
    assert_eq!(waits, [500, 7_000, 60_000, 4_000], "its own waits, and what was asked for up to a minute");
    let seen = server.seen();
    assert!(seen.len() == 5 && seen.iter().all(|seen| seen.header("webhook-id") == Some("msg_1")));
}

#[tokio::test]
async fn a_post_fails_after_the_maximum_of_attempts() {
    let (outcome, server, waits) = posted(vec![status("502 Bad Gateway")]).await;
    let failure = outcome.unwrap_err();
    assert_eq!(server.seen().len(), MAX_ATTEMPTS as usize);
    assert_eq!(waits, [500, 1_000, 2_000, 4_000, 8_000, 16_000, 30_000]);
    assert!(failure.message.contains("it answered 502, after 8 attempts"), "{failure}");
    assert!(!failure.message.contains("secret-path") && !failure.message.contains("token"), "{failure}");
}

#[tokio::test]
async fn a_refusal_is_not_repeated() {
    for line in ["400 Bad Request", "401 Unauthorized", "404 Not Found", "410 Gone", "302 Found"] {
        let (outcome, server, _) = posted(vec![status(line)]).await;
        assert!(outcome.unwrap_err().message.contains(&line[..3]), "{line}");
        assert_eq!(server.seen().len(), 1, "{line}");
    }
}

#[tokio::test]
async fn refused_connections_and_timeouts_are_retried() {
    let nobody = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let silent = Server::start(|_| Reaction::SendAndHang(Vec::new())).await;
    for (address, late, sentence) in
        [(nobody, false, "after 8 attempts"), (silent.address, true, "no answer within 10 s")]
    {
        let clock = Arc::new(RecordingClock { late, ..RecordingClock::default() });
        let webhook = webhook(&format!("http://{address}"), &[LOCAL], &clock).unwrap();
        let failure = webhook.post("msg_1", Bytes::from_static(b"{}")).await.unwrap_err();
        assert!(failure.message.contains(sentence), "{failure}");
        assert_eq!(clock.between.lock().unwrap().len(), MAX_ATTEMPTS as usize - 1);
    }
}

#[tokio::test]
async fn webhooks_pass_the_egress_guard() {
    let clock = Arc::default();
    let table = [
        ("http://127.0.0.1:9", "--allow-private 127.0.0.1:9"),
        ("http://169.254.169.254/latest", "not a public address"),
        ("https://user:pw@example.com/", "refused"),
        ("ftp://example.com/", "must begin with `https://`"),
        ("example.com", "not a URL"),
    ];
    for (url, sentence) in table {
        let failure = webhook(url, &[], &clock).err().unwrap();
        assert!(failure.message.contains(sentence), "{url}: {failure}");
    }
    let clock = Arc::default();
    let failure = webhook("http://localhost:9/", &[], &clock).unwrap().post("msg_1", Bytes::new()).await.unwrap_err();
    assert!(failure.code == "http_protocol" && failure.message.contains("loopback"), "{failure}");
    assert!(clock.between.lock().unwrap().is_empty(), "a denial does not pass by itself");
}
