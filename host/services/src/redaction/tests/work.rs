//! Tests of the bounds of the work of a search, and of the thread that it runs on.

use std::{cell::Cell, pin::pin};

use flowcell_contract::Tenant;
use futures_util::FutureExt;
use parking_lot::Mutex;
use rustix::time::{ClockId, clock_gettime};
use tokio::sync::oneshot;

use super::*;
use crate::redaction::{
    budget::{MAX_INLINE_STEPS, MAX_STEPS, MAX_UNPACKED},
    permits::{Permit, Permits},
};

/// Returns the budget of a call that has only this number of steps.
fn with_steps(left: u64) -> SearchBudget {
    SearchBudget::new(&Tenant::local(), left, MAX_UNPACKED, Permits::of_process())
}

/// A pool of permits whose only permit for a tenant is taken. The search of the tenant waits until it is dropped.
struct Busy {
    budget: SearchBudget,
    held: Permit,
}

impl Busy {
    fn new() -> Busy {
        let budget = SearchBudget::new(&Tenant::local(), MAX_STEPS, MAX_UNPACKED, Permits::new(1));
        let held = now(budget.permit());
        Busy { budget, held }
    }
}

/// Runs `search`, which must wait for a permit, together with another task on the same thread. Returns the result of the
/// search, and the number of steps that the task had made when the search ended: all of them, if it did not hold the thread.
fn beside<T>(busy: Busy, search: impl Future<Output = T>) -> (T, u32) {
    let (steps, held) = (Cell::new(0), Cell::new(Some(busy.held)));
    let other = async {
        for _ in 0..10 {
            steps.set(steps.get() + 1);
            yield_now().await;
        }
        drop(held.take());
    };
    let search = async { (search.await, steps.get()) };
    now(async { tokio::join!(biased; search, other) }).0
}

/// Encodes compressed data as a text that fits into a header.
fn packed_line(content: &[u8]) -> String {
    String::from_utf8(base64(&gzip(content), &mut StdRng::seed_from_u64(1), b"+/")).unwrap()
}

#[test]
fn n24_headers_that_unpack_to_much_do_not_hold_the_thread() {
    let line = packed_line(&vec![b'A'; 1 << 20]);
    let mut headers: HeaderMap =
        (0..4).map(|at| (format!("x-{at}").parse::<HeaderName>().unwrap(), line.parse().unwrap())).collect();
    headers.insert("x-key", "s3cr3t-Value/1".parse().unwrap());
    let busy = Busy::new();
    let redaction = redaction_within("s3cr3t-Value/1", busy.budget.clone());
    let (headers, steps) = beside(busy, async {
        redaction.headers(&mut headers).await;
        headers
    });
    assert_eq!(steps, 10);
    assert_eq!((&headers["x-key"], headers["x-3"].len()), (&"[key]".parse().unwrap(), line.len()));
}

#[test]
fn n24_a_failure_that_unpacks_to_much_does_not_hold_the_thread() {
    let line = packed_line(&vec![b'A'; 1 << 20]);
    let busy = Busy::new();
    let redaction = redaction_within("s3cr3t-Value/1", busy.budget.clone());
    let failure = Failure { details: Some(Json::from("s3cr3t-Value/1")), ..Failure::new("x", line.clone()) };
    let (failure, steps) = beside(busy, redaction.failure(failure));
    assert_eq!((steps, failure.message, failure.details), (10, line, Some(Json::from("[key]"))));
}

#[test]
fn n24_lines_that_are_hard_to_search_do_not_hold_the_thread() {
    for hard in [packed_line(&vec![b'A'; 1 << 20]), "%25".repeat(5 << 10)] {
        let busy = Busy::new();
        let mut pieces = StreamRedactor::new(redaction_within("another-key", busy.budget.clone()), Unit::Line);
        let (told, steps) = beside(busy, pieces.add(&format!("{hard}\n")));
        assert_eq!((told, steps), (format!("{hard}\n"), 10));
    }
}

#[test]
fn a_search_that_is_easy_waits_for_no_permit() {
    let busy = Busy::new();
    let redaction = redaction_within("s3cr3t-Value/1", busy.budget.clone());
    let text = format!("x^ y {}", "the value of s3cr3t-Value/1! ".repeat(100));
    let hidden = redaction.text(&text).now_or_never().unwrap();
    assert_eq!(hidden, text.replace("s3cr3t-Value/1", "[key]"));
    assert_eq!(redaction.text_now("a s3cr3t-Value/1"), "a [key]");
    assert!(!redaction.has_withheld());
    let hard = "%25".repeat(5 << 10);
    assert!(redaction.text(&hard).now_or_never().is_none());
    assert!(redaction.text("plain").now_or_never().is_none(), "so the peer gets no more of the thread");
    assert_eq!(redaction.text_now("plain"), WITHHELD);
    assert!(redaction.has_withheld());
}

#[test]
fn easy_searches_yield_to_other_tasks() {
    let redaction = redaction("s3cr3t-Value/1");
    let (text, others) = ("one word after the other ".repeat(100), Cell::new(0));
    let most = MAX_INLINE_STEPS / (text.len() as u64 / 16);
    let searches = async {
        for count in 0..most {
            assert_eq!(redaction.text(&text).await, text);
            if others.get() > 0 {
                return count;
            }
        }
        most
    };
    let other = async { others.set(1) };
    let (count, ()) = now(async { tokio::join!(biased; searches, other) });
    assert!((1..most).contains(&count), "{count}");
}

#[test]
fn the_values_of_a_json_text_share_one_budget() {
    let hostile = Json::from("%25".repeat(400));
    let redaction = redaction_within("another-key", with_steps(1 << 18));
    assert_eq!(now(redaction.json(hostile.clone())), hostile, "one value is within the budget");
    let all = Json::object((0..200).map(|number| (format!("m{number:03}"), hostile.clone())));
    let hidden = now(redaction.json(all));
    assert_eq!(hidden.get("m000"), Some(&hostile));
    assert_eq!(hidden.get(WITHHELD), Some(&Json::from(WITHHELD)), "the last members, with their names");
    // After that, everything is withheld: other texts of the call, numbers, lists and headers.
    assert_eq!(now(redaction.text("plain")), WITHHELD);
    let sent = Json::parse(r#"[1, null, "a", ""]"#).unwrap();
    let told = [Json::from(WITHHELD), Json::Null, Json::from(WITHHELD), Json::from(WITHHELD)];
    assert_eq!(now(redaction.json(sent)), Json::array(told));
    let mut headers = HeaderMap::from_iter([(HeaderName::from_static("x-a"), HeaderValue::from_static("b"))]);
    now(redaction.headers(&mut headers));
    assert_eq!((headers.len(), &headers["flowcell-withheld"]), (1, &WITHHELD.parse().unwrap()));
    assert!(redaction.has_withheld());
    let other = redaction.with_budget(SearchBudget::default());
    assert_eq!(now(other.text("plain")), "plain", "another call has its own budget");
}

#[test]
fn bytes_beyond_the_budget_are_withheld() {
    let bytes = b"%25".repeat(1 << 10);
    let few = redaction_within("another-key", with_steps(1 << 12));
    assert_eq!(now(few.bytes(bytes.clone())), WITHHELD.as_bytes());
    assert_eq!(now(redaction("another-key").bytes(bytes.clone())), bytes);
}

#[test]
fn a_stream_has_one_budget_over_its_life() {
    let line = format!("{}\n", "%25".repeat(400));
    let mut pieces = StreamRedactor::new(redaction_within("another-key", with_steps(1 << 18)), Unit::Line);
    let told: Vec<_> = (0..200).map(|_| now(pieces.add(&line))).collect();
    let whole = told.iter().take_while(|told| **told == line).count();
    assert!((1..199).contains(&whole) && told[whole] == WITHHELD, "{whole}");
    assert!(told[whole + 1..].iter().all(String::is_empty), "the rest is withheld too");
    assert_eq!(now(pieces.end()), "");
}

#[test]
fn unpacked_bytes_count_against_the_budget_of_the_call() {
    let redaction = redaction("another-key");
    let packed = gzip(&vec![0; 1 << 20]);
    let zeros = packed.repeat(4);
    assert_eq!(now(redaction.bytes(zeros.clone())), zeros);
    let spent = MAX_STEPS - redaction.budget.steps();
    assert!(spent >= 4 << 16, "at least a step for 16 bytes: {spent:?}");
}

#[test]
fn what_unpacks_to_too_much_is_withheld() {
    let budget = SearchBudget::new(&Tenant::local(), MAX_STEPS, 2 << 20, Permits::of_process());
    let redaction = redaction_within("another-key", budget);
    let bomb = gzip(&vec![0; (2 << 20) + 1]);
    assert_eq!(now(redaction.bytes(bomb.clone())), WITHHELD.as_bytes());
    assert_eq!(now(redaction.text("plain")), "plain", "the rest of the call has its steps");
    let nested = gzip(&bomb);
    assert_eq!(now(redaction.bytes(nested)), WITHHELD.as_bytes(), "the call has no bytes left");
}

#[test]
fn a_search_ends_when_its_caller_gives_up() {
    now(async {
        let (begin, begun) = oneshot::channel();
        let (give_up, given_up) = std::sync::mpsc::channel::<()>();
        let (tell, told) = oneshot::channel();
        let redaction = redaction("another-key");
        let input = Mutex::new(Some((begin, given_up, tell)));
        let mut search = pin!(redaction.search_with(input, false, |redaction, input, work| {
            let (begin, given_up, tell) = input.lock().take().unwrap();
            _ = begin.send(());
            _ = given_up.recv();
            _ = tell.send(redaction.redacted_text("plain", work));
        }));
        tokio::select! {
            _ = &mut search => panic!("the search has ended"),
            begun = begun => begun.unwrap(),
        }
        search.set(redaction.search_with(Mutex::new(None), false, |_, _, _| ()));
        give_up.send(()).unwrap();
        assert_eq!(told.await.unwrap().as_deref(), Some(WITHHELD), "no step is left");
    });
}

#[test]
fn the_time_of_a_search_is_bounded() {
    let almost = format!("{}b", "a".repeat(4_000));
    let hostile: [Vec<u8>; 6] = [
        vec![b'a'; 1 << 18],
        vec![b'\\'; 1 << 18],
        b"%25".repeat(1 << 16),
        b"\\u005c".repeat(1 << 15),
        gzip(b"").repeat(1 << 13),
        gzip(&gzip(&vec![0; 200 << 20])),
    ];
    // The processor time of the thread of the search, which other work on the machine does not lengthen.
    let spent = || clock_gettime(ClockId::ThreadCPUTime).tv_sec;
    for (number, bytes) in hostile.into_iter().enumerate() {
        let redaction = redaction(&almost);
        let cancelled = AtomicBool::default();
        let begun = spent();
        _ = redaction.redacted(&bytes, &Work::on_thread(&redaction.budget, &cancelled));
        let seconds = spent() - begun;
        assert!(seconds < 60, "{number}: {seconds} s");
    }
}
