//! Checks posts of all schemes: `posts.yaml` has samples after the documents of their senders, and variants of them.

use std::{collections::BTreeMap, time::Duration};

use flowcell_contract::Json;
use flowcell_flow::triggers::{
    Cause, Webhook,
    schemes::{Place, Proof, SCHEMES, STANDARD, Scheme},
};
use flowcell_services::webhook::SigningKey;
use futures_util::FutureExt;
use http::{HeaderMap, HeaderName, HeaderValue};
use serde::Deserialize;

use super::{
    HookError,
    post::{self, ChallengeReply, Content, Post},
    proof::{SenderProof, Unsigned},
    refusal_time, shown, system_time,
};
use crate::{drive::triggers::live, files::FileError};

#[derive(Deserialize)]
struct Sample {
    name: String,
    webhook: serde_json::Value,
    key: String,
    /// False if the proof does not cover the body.
    #[serde(default = "yes")]
    signs: bool,
    /// The time in seconds since 1970, if posts of the scheme have a time.
    now: Option<u64>,
    headers: BTreeMap<String, String>,
    body: String,
    #[serde(flatten)]
    expected: Expected,
    #[serde(default)]
    variants: Vec<Variant>,
}

#[derive(Clone, Default, Deserialize)]
struct Expected {
    id: Option<String>,
    event: Option<String>,
    value: Option<String>,
    challenge: Option<String>,
    refused: Option<String>,
    wrong: Option<String>,
}

#[derive(Deserialize)]
struct Variant {
    #[serde(default)]
    set: BTreeMap<String, String>,
    body: Option<String>,
    #[serde(flatten)]
    expected: Expected,
}

fn yes() -> bool {
    true
}

fn samples() -> Vec<Sample> {
    serde_yaml::from_str(include_str!("posts.yaml")).unwrap()
}

fn webhook(sample: &Sample) -> Webhook {
    let trigger = serde_json::json!({ "id": "hook", "webhook": sample.webhook });
    match live::read_bound(&trigger).unwrap().cause {
        Cause::Webhook(webhook) => webhook,
        cause => panic!("{cause:?}"),
    }
}

fn key(scheme: &Scheme<'_>, secret: &str) -> SigningKey {
    if scheme.name == STANDARD { SigningKey::new(secret).unwrap() } else { SigningKey::from_text(secret) }
}

fn header_map(headers: &BTreeMap<String, String>) -> HeaderMap {
    let mut map = HeaderMap::new();
    for (name, value) in headers {
        map.insert(name.parse::<HeaderName>().unwrap(), value.parse().unwrap());
    }
    map
}

/// The reasons for which a post starts nothing.
#[derive(Debug, PartialEq)]
enum Refusal {
    Sender(Unsigned),
    Content(String),
}

/// Receives a post like the server: first the proof, then the content.
fn receive(
    scheme: &Scheme<'_>,
    keys: &[SigningKey],
    headers: &HeaderMap,
    body: &[u8],
    seconds: u64,
) -> Result<Content, Refusal> {
    let proof = SenderProof::read(scheme, headers, body, system_time(seconds * 1_000)).map_err(Refusal::Sender)?;
    proof.check(keys).map_err(Refusal::Sender)?;
    read(scheme, headers, body).map_err(|error| Refusal::Content(error.to_string()))
}

/// Reads the content of a post. A file becomes an object with its name and its text.
fn read(scheme: &Scheme<'_>, headers: &HeaderMap, body: &[u8]) -> Result<Content, HookError> {
    let keep = |name: &str, bytes: Vec<u8>| {
        let text = String::from_utf8(bytes).unwrap();
        Ok(Json::object([("name", Json::from(name)), ("text", Json::from(text))]))
    };
    // Nothing waits for I/O.
    post::read(scheme, headers, body, &keep).now_or_never().unwrap()
}

fn compare(name: &str, came: Result<Content, Refusal>, expected: &Expected) {
    match (came, expected) {
        (Err(Refusal::Sender(why)), Expected { refused: Some(part), .. }) => {
            assert!(why.to_string().contains(part), "{name}: {why}");
        }
        (Err(Refusal::Content(why)), Expected { wrong: Some(part), .. }) => {
            assert!(why.contains(part), "{name}: {why}")
        }
        (Ok(Content::Challenge(text)), Expected { challenge: Some(expected), .. }) => {
            let told = match text {
                ChallengeReply::Empty => String::new(),
                ChallengeReply::Repeat(text) => text,
                other => format!("{other:?}"),
            };
            assert_eq!(told, *expected, "{name}");
        }
        (Ok(Content::Event(post)), Expected { refused: None, wrong: None, challenge: None, .. }) => {
            compare_post(name, &post, expected);
        }
        (came, _) => panic!("{name}: {came:?}"),
    }
}

fn compare_post(name: &str, post: &Post, expected: &Expected) {
    match &expected.id {
        Some(id) => assert_eq!(post.id, *id, "{name}"),
        None => assert!(post.id.len() == 32, "{name}: {}", post.id),
    }
    assert_eq!(post.event, expected.event.as_deref().map(Json::from), "{name}");
    if let Some(value) = &expected.value {
        assert_eq!(post.body, Json::parse(value).unwrap(), "{name}");
    }
}

#[test]
fn h7_posts_of_all_schemes_are_accepted_and_refused() {
    let mut schemes: Vec<_> = SCHEMES.iter().map(|row| row.name).collect();
    for sample in samples() {
        let webhook = webhook(&sample);
        let scheme = webhook.scheme();
        schemes.retain(|name| *name != scheme.name);
        let (keys, now) = ([key(&scheme, &sample.key)], sample.now.unwrap_or(7));
        let base = receive(&scheme, &keys, &header_map(&sample.headers), sample.body.as_bytes(), now);
        compare(&sample.name, base, &sample.expected);
        for (index, variant) in sample.variants.iter().enumerate() {
            let mut headers = sample.headers.clone();
            headers.extend(variant.set.clone());
            let body = variant.body.as_ref().unwrap_or(&sample.body);
            let came = receive(&scheme, &keys, &header_map(&headers), body.as_bytes(), now);
            let mut expected = variant.expected.clone();
            if expected.refused.is_none() && expected.wrong.is_none() && expected.challenge.is_none() {
                expected.id = expected.id.or_else(|| sample.expected.id.clone());
                expected.event = expected.event.or_else(|| sample.expected.event.clone());
                expected.value = expected.value.or_else(|| sample.expected.value.clone());
            }
            compare(&format!("{}, variant {index}", sample.name), came, &expected);
        }
    }
    assert!(schemes.is_empty(), "no sample of {schemes:?}");
}

#[test]
fn h7_each_part_of_a_post_is_needed_once() {
    for sample in samples() {
        let webhook = webhook(&sample);
        let (scheme, name) = (webhook.scheme(), &sample.name);
        let keys = [key(&scheme, &sample.key)];
        let receive = |headers: &HeaderMap, body: &[u8]| {
            receive(&scheme, &keys, headers, body, sample.now.unwrap_or(7)).map(|_| ())
        };
        let whole = header_map(&sample.headers);
        for header in sample.headers.keys() {
            if header.eq_ignore_ascii_case("content-type") || Some(header.as_str()) == scheme.event {
                continue;
            }
            // The id that is not signed is missed only after the sender is known.
            let is_id = scheme.id == Some(Place::Header(header.as_str())) && !signs_id(&scheme);
            let mut without = whole.clone();
            without.remove(header.as_str());
            let mut twice = whole.clone();
            twice.append(header.parse::<HeaderName>().unwrap(), whole[header.as_str()].clone());
            let mut odd = whole.clone();
            odd.insert(header.parse::<HeaderName>().unwrap(), HeaderValue::from_bytes(b"\xff\xfe").unwrap());
            let mut long = whole.clone();
            long.insert(header.parse::<HeaderName>().unwrap(), HeaderValue::from_str(&"1".repeat(1 << 20)).unwrap());
            for (case, headers) in [("without", without), ("twice", twice), ("odd", odd), ("long", long)] {
                match receive(&headers, sample.body.as_bytes()) {
                    Err(Refusal::Content(_)) if is_id => {}
                    Err(Refusal::Sender(_)) if !is_id => {}
                    came => panic!("{name} {case} `{header}`: {came:?}"),
                }
            }
        }
        if sample.signs {
            let other = format!("{} ", sample.body);
            let came = receive(&whole, other.as_bytes());
            assert_eq!(came, Err(Refusal::Sender(Unsigned::NoSignatureFits)), "{name}");
        }
    }
}

fn signs_id(scheme: &Scheme<'_>) -> bool {
    matches!(scheme.proof, Proof::Hmac(hmac) if hmac.signed.contains("{id}"))
}

#[test]
fn h7_a_post_needs_the_key_of_the_webhook_and_a_recent_time() {
    for sample in samples() {
        let webhook = webhook(&sample);
        let (scheme, name) = (webhook.scheme(), &sample.name);
        let (ours, other) = (key(&scheme, &sample.key), SigningKey::from_text("another secret"));
        let (headers, now) = (header_map(&sample.headers), sample.now.unwrap_or(7));
        let check = |keys: &[SigningKey], now| {
            SenderProof::read(&scheme, &headers, sample.body.as_bytes(), system_time(now * 1_000))?.check(keys)
        };
        assert_eq!(check(&[other.clone(), ours.clone()], now), Ok(()), "{name}, while keys change");
        assert_eq!(check(&[other], now), Err(Unsigned::NoSignatureFits), "{name}");
        assert_eq!(check(&[], now), Err(Unsigned::NoSignatureFits), "{name}");
        let Some(now) = sample.now else { continue };
        for (now, known) in [(now + 300, true), (now + 301, false), (now - 300, true), (now - 301, false), (0, false)] {
            let came = check(std::slice::from_ref(&ours), now).err();
            assert_eq!(came, (!known).then_some(Unsigned::Stale), "{name} at {now}");
        }
    }
}

#[test]
fn posts_without_an_id_have_distinct_ids() {
    let sample = samples().into_iter().find(|sample| sample.expected.id.is_none()).unwrap();
    let webhook = webhook(&sample);
    let read = || match read(&webhook.scheme(), &header_map(&sample.headers), b"{}").unwrap() {
        Content::Event(post) => post.id,
        Content::Challenge(_) => panic!("not a challenge"),
    };
    assert_ne!(read(), read());
}

#[test]
fn a_file_with_a_wrong_name_is_no_fault_of_the_form() {
    let scheme = SCHEMES.iter().find(|scheme| scheme.name == "gitlab").unwrap();
    let headers = [("content-type", "multipart/form-data; boundary=x"), ("idempotency-key", "1")];
    let headers = header_map(&headers.map(|(name, value)| (name.to_owned(), value.to_owned())).into());
    let keep = |_: &str, _: Vec<u8>| Err(FileError::Name);
    for (part, told) in [("f", "f"), ("f\u{202e}", "f\\u{202e}"), (&*"p".repeat(5_000), &*"p".repeat(64))] {
        let body = format!(
            "--x\r\nContent-Disposition: form-data; name=\"{part}\"; filename=\"a\u{202e}\"\r\n\r\nb\r\n--x--\r\n"
        );
        let read = post::read(scheme, &headers, body.as_bytes(), &keep).now_or_never().unwrap();
        let why = read.unwrap_err().to_string();
        let expected =
            format!("the form cannot be the input of a run: the part `{told}`: the name of a file must have ");
        assert!(why.starts_with(&expected) && !why.contains("multipart"), "{why}");
    }
}

#[test]
fn h7_the_time_of_a_refusal_reveals_nothing() {
    let ms = Duration::from_millis;
    for (known, told) in [(0, 50), (1, 50), (49, 50), (50, 100), (51, 100), (149, 150)] {
        assert_eq!(refusal_time(ms(known)), ms(told), "{known}");
    }
    assert_eq!(refusal_time(Duration::from_micros(159)), refusal_time(Duration::from_micros(264)));
}

#[test]
fn texts_of_senders_are_cut_and_escaped_in_the_log() {
    assert_eq!(shown("evt_1"), "evt_1");
    assert_eq!(shown("a\nb\u{1b}[2J\u{202e}"), "a\\nb\\u{1b}[2J\\u{202e}");
    assert_eq!(shown(&"é".repeat(100)), "é".repeat(64));
}
