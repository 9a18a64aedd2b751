//! Tests the file, the formats, the queues and the looks at runs.

#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

use std::time::{Duration, Instant};

use flowcell_contract::Tenant;
use flowcell_flow::Source;
use flowcell_runtime::{RunCommand, RunOptions, RunStatus};
use serde_json::{Value, json};

use super::{
    config::{Format, NotifyFile, QuietHours},
    format::{body, plain},
    message::{Link, MAX_NAME_CHARS, Message, NoticeKind, cut, message_id, name},
    queue::{MAX_WAITING, Queues, Wanted},
    record::{LEASE, Lease, MAX_REPORTED, MAX_SEEN, OVERLAP_MS, Progress},
    scan::Look,
    sender::{FIRST_WAIT, LoggedRefusal, REFUSAL_INTERVAL, wait_after},
    watch::{StoreWatch, secrets},
};
use crate::{Host, operate::settings_file::SettingsFile};

/// A text that tries to be more than a text in each format.
const HOSTILE: &str =
    "<!channel> <https://evil.test|click> @here [x](https://evil.test) \"}],\"a\":\r\nBcc: x\u{202e}&";

fn failed(run: &str, at: u64) -> Message {
    let mut message = Message::new(NoticeKind::RunFailed, "acme", Some(run), &[], at);
    message.flow = Some(name(HOSTILE));
    message.text = Some(cut(HOSTILE, 500));
    message
}

#[test]
fn a_file_is_checked_with_place_and_reason() {
    let target =
        |rest: &str| format!("targets:\n  - name: ops\n    channel: webhook\n    url: https://a.test/x\n{rest}");
    for (text, why) in [
        (target("    uri: x\n"), "line 5, column 5"),
        (target("    uri: x\n"), "uri"),
        (target("    kinds: [run_fail]\n"), "run_fail"),
        (target("    kinds: []\n"), "hears nothing"),
        (target("    kinds: [left_out]\n"), "each target gets"),
        (target("    to: [a@b.test]\n"), "`to` does not fit"),
        (target("    secretFrom: hunter2\n"), "env:NAME"),
        (target("    format: slack\n    secretFrom: env:X\n"), "fits only the formats"),
        (target("    urlFrom: env:X\n"), "and not both"),
        (target("    perMinute: 0\n"), "from 1 to 600"),
        (target("    quiet: { zone: Mars/Base, from: '22:00', to: '07:00' }\n"), "unknown time zone"),
        (target("    quiet: { zone: UTC, from: '7:00', to: '08:00' }\n"), "write it in quotes"),
        (target("  - name: ops\n    channel: program\n    command: [a]\n"), "same name"),
        (target("  - name: m\n    channel: mail\n    to: [a@b.test]\n"), "needs the mail server"),
        ("targets:\n  - { name: a, channel: webhook, url: 'https://user:hunter2@a.test' }".into(), "user name"),
        ("targets:\n  - { name: a, channel: webhook, url: 'ftp://hunter2' }".into(), "must begin"),
        ("targets:\n  - { name: a, channel: webhook, format: pagerduty }".into(), "routing key"),
        ("mail: { server: s.test, from: a@b.test, tls: none, user: u, passwordFrom: 'env:P' }".into(), "plain text"),
        ("mail: { server: s.test, from: \"a@b.test\\r\\nBcc: c@d\" }".into(), "not a mail address"),
    ] {
        let told = NotifyFile::parse(&text).unwrap_err();
        assert!(told.contains(why) && !told.contains("hunter2"), "{text}\n{told}");
    }
    assert!(NotifyFile::parse("# nothing\n").unwrap().targets.is_empty());
    assert_eq!(NotifyFile::parse(&target("    kinds: [run_failed]\n")).unwrap().targets.len(), 1);
}

#[test]
fn quiet_hours_follow_their_zone_and_may_pass_midnight() {
    let hours = |zone: &str, from: &str, to: &str| {
        QuietHours { zone: zone.into(), from: from.into(), to: to.into() }.parse().unwrap()
    };
    let at = |text: &str| u64::try_from(text.parse::<jiff::Timestamp>().unwrap().as_millisecond()).unwrap();
    let night = hours("Europe/Berlin", "22:00", "07:00");
    for (time, quiet) in [
        ("2026-07-01T19:59:59Z", false),
        ("2026-07-01T20:00:00Z", true),
        ("2026-07-02T04:59:59Z", true),
        ("2026-07-02T05:00:00Z", false),
        ("2026-01-01T20:30:00Z", false),
        ("2026-01-01T21:00:00Z", true),
    ] {
        assert_eq!(night.contains(at(time)), quiet, "{time}");
    }
    let noon = hours("UTC", "12:00", "13:00");
    assert!(noon.contains(at("2026-01-01T12:30:00Z")) && !noon.contains(at("2026-01-01T13:00:00Z")));
    assert!(!noon.contains(u64::MAX));
}

#[test]
fn texts_of_tenants_are_only_texts_in_each_format() {
    let message = failed(&format!("r{HOSTILE}"), 0);
    let slack = body(Format::Slack, &message, true, None, 0);
    assert!(!slack["text"].as_str().unwrap().contains(['<', '>']), "{slack}");
    let types = |body: &Value, key: &str| body.to_string().matches(key).count();
    assert_eq!(types(&slack, "mrkdwn\":false"), 1);
    assert!(slack["blocks"].as_array().unwrap().iter().all(|block| block["text"]["type"] == "plain_text"), "{slack}");
    let teams = body(Format::Teams, &message, true, None, 0);
    let blocks = teams["attachments"][0]["content"]["body"].as_array().unwrap();
    assert!(blocks.iter().all(|block| block["type"] == "RichTextBlock"), "{teams}");
    let mail = plain(&message, true);
    assert!(!mail.contains(['\r', '\u{202e}']) && !mail.contains("\nBcc"), "{mail}");
    let pager = body(Format::PagerDuty, &message, true, Some("the-key"), 0);
    assert_eq!((&pager["routing_key"], &pager["dedup_key"]), (&json!("the-key"), &json!(message.id)));
    let alerts = body(Format::AlertManager, &message, true, None, 0);
    assert_eq!(alerts[0]["labels"]["id"], json!(message.id));
    assert!(!alerts[0]["annotations"].to_string().contains(['<', '>']), "{alerts}");
    // The id of a run may be an address, which a receiver of plain text makes a link.
    let named = failed("https://evil.test/x", 0);
    let alerts = body(Format::AlertManager, &named, true, None, 0);
    for text in [plain(&named, true), alerts[0]["annotations"].to_string()] {
        assert!(text.contains("https[:]//evil.test/x") && !text.contains("https://evil.test"), "{text}");
    }
    assert_eq!(alerts[0]["labels"]["run"], json!("https://evil.test/x"), "the labels are exact");
    let standard = body(Format::Standard, &message, false, None, 0);
    assert!(standard.get("text").is_none() && standard["flow"].as_str().unwrap().starts_with("<!channel>"));
    for form in [Format::Standard, Format::Slack, Format::Teams, Format::PagerDuty, Format::AlertManager] {
        let text = body(form, &message, true, None, 0).to_string();
        assert!(serde_json::from_str::<Value>(&text).is_ok() && !text.contains('\u{202e}'), "{text}");
        assert!(
            !body(form, &Message { text: Some("the-contents".into()), ..message.clone() }, false, None, 0)
                .to_string()
                .contains("the-contents")
        );
    }
}

#[test]
fn each_format_has_the_link_where_its_receiver_shows_one() {
    let url = "https://flows.example.com/console/answer#fca_a.b-_";
    let link = Some(Link { url: url.into(), ends: Some(0) });
    let message = Message { link, ..failed("r", 0) };
    let of = |format| body(format, &message, true, Some("key"), 0);
    let label = "Answer until 1970-01-01T00:00:00Z";
    let standard = of(Format::Standard);
    assert_eq!((&standard["link"], &standard["linkEnds"]), (&json!(url), &json!("1970-01-01T00:00:00Z")));
    let slack = of(Format::Slack);
    let markup: Vec<_> = slack["blocks"].as_array().unwrap().iter().map(|block| &block["text"]).collect();
    let markup: Vec<_> = markup.into_iter().filter(|text| text["type"] == "mrkdwn").collect();
    assert_eq!(markup, [&json!({ "type": "mrkdwn", "text": format!("<{url}|{label}>"), "verbatim": true })]);
    let action = json!([{ "type": "Action.OpenUrl", "title": label, "url": url }]);
    assert_eq!(of(Format::Teams)["attachments"][0]["content"]["actions"], action);
    assert_eq!(of(Format::PagerDuty)["links"], json!([{ "href": url, "text": label }]));
    let alert = &of(Format::AlertManager)[0];
    assert_eq!((&alert["generatorURL"], &alert["annotations"]["link"]), (&json!(url), &json!(url)));
    assert!(plain(&message, true).contains(&format!("\n{label}: {url}\n")), "{}", plain(&message, true));
}

#[test]
fn a_cut_is_named_and_ids_differ() {
    let long = name(&"é".repeat(10_000));
    assert!(long.starts_with("éé") && long.ends_with("… (cut)") && long.chars().count() < MAX_NAME_CHARS + 10);
    assert_eq!(name("a\nb\u{0}\u{61c}"), "a b\u{fffd}\u{fffd}");
    assert_ne!(message_id(&["ab", "c"]), message_id(&["a", "bc"]));
    assert_eq!(failed("r", 1).id, failed("r", 2).id);
    let gate = |since: &str| Message::new(NoticeKind::GateOpened, "acme", Some("r"), &["ask", since], 0).id;
    assert_ne!(gate("1"), gate("2"));
}

#[test]
fn the_end_of_a_trouble_resolves_its_begin() {
    let (start, mut watch) = (Instant::now(), StoreWatch::new("p".into()));
    let mut see =
        |trouble: Option<&str>, seconds| watch.see(trouble.map(str::to_owned), start + Duration::from_secs(seconds), 7);
    assert_eq!((see(None, 0), see(Some("away"), 1), see(None, 2), see(Some("away"), 3)), (None, None, None, None));
    let begin = see(Some("away"), 9).unwrap();
    assert_eq!(see(Some("away"), 60), None);
    let end = see(None, 61).unwrap();
    assert_eq!((end.resolves.as_ref(), see(None, 62)), (Some(&begin.id), None));
    for (form, place) in [(Format::PagerDuty, "/dedup_key"), (Format::AlertManager, "/0/labels")] {
        let of = |message| body(form, message, false, None, 0).pointer(place).unwrap().clone();
        assert_eq!(of(&begin), of(&end));
    }
    assert_eq!(body(Format::PagerDuty, &end, false, None, 0)["event_action"], "resolve");
    see(Some("away"), 70);
    assert_ne!(see(Some("away"), 80).unwrap().id, begin.id);
}

fn wanted<'a>(after: &'a Tenant, process: &'a Tenant) -> Wanted<'a> {
    Wanted { target: "ops", after, only_urgent: false, stored: true, process }
}

#[test]
fn a_flood_is_counted_in_one_message_and_delays_no_other_tenant() {
    let (queues, acme, calm, process) =
        (Queues::default(), Tenant::from("acme"), Tenant::from("calm"), Tenant::from(""));
    let mut queued = 0;
    for index in 0..10_000 {
        queued += u32::from(queues.push(&acme, "ops", failed(&index.to_string(), 0), 30, 100_000));
    }
    assert!(queues.push(&calm, "ops", failed("other", 0), 30, 100_000));
    assert_eq!((queued, queues.waiting("ops")), (30, 31));
    let (mut last, mut order) = (process.clone(), Vec::new());
    while let Some((tenant, message)) = queues.pick(&wanted(&last, &process), Instant::now()) {
        queues.remove(&tenant, "ops", &message.id);
        order.push(tenant.as_str().to_owned());
        last = tenant;
    }
    assert_eq!((order.len(), &order[..3]), (31, &["acme".to_owned(), "calm".into(), "acme".into()][..]));
    queues.close_windows(&acme, 159_999);
    assert_eq!(queues.waiting("ops"), 0);
    queues.close_windows(&acme, 160_000);
    let (_, summary) = queues.pick(&wanted(&last, &process), Instant::now()).unwrap();
    assert_eq!(summary.about, "9970 more were left out: 9970 run_failed");
    assert_eq!((summary.kind, summary.tenant.as_str()), (NoticeKind::LeftOut, "acme"));
}

#[test]
fn a_queue_of_a_target_that_is_down_is_bounded_and_its_document_too() {
    let (queues, acme) = (Queues::default(), Tenant::from("acme"));
    for index in 0..10_000_u64 {
        queues.push(&acme, "ops", failed(&index.to_string(), 0), 600, 100_000 + index * 1_000);
    }
    assert_eq!(queues.waiting("ops") as usize, MAX_WAITING);
    assert_eq!(queues.of(&acme).0["ops"].len(), 10_000);
    let text = serde_json::to_string(&queues.of(&acme)).unwrap();
    assert!(text.len() < 100_000, "{}", text.len());
    let read: super::queue::TenantQueues = serde_json::from_str(&text).unwrap();
    assert_eq!(read, queues.of(&acme));
    assert_eq!(queues.drop_old("ops", u64::MAX) as usize, MAX_WAITING);
}

#[test]
fn quiet_hours_and_other_processes_hold_messages_back() {
    let (queues, acme, process) = (Queues::default(), Tenant::from("acme"), Tenant::from(""));
    queues.push(&acme, "ops", failed("r", 0), 30, 0);
    let pick = |wanted: Wanted<'_>| queues.pick(&wanted, Instant::now()).map(|(_, message)| message.kind);
    let usual = || wanted(&process, &process);
    assert_eq!(pick(Wanted { only_urgent: true, ..usual() }), None);
    assert_eq!(pick(Wanted { target: "other", ..usual() }), None);
    assert_eq!(pick(Wanted { stored: false, ..usual() }), None);
    assert_eq!(pick(usual()), Some(NoticeKind::RunFailed));
    let urgent = Message::new(NoticeKind::CrashLoop, "acme", Some("s"), &[], 0);
    queues.push(&acme, "ops", urgent, 30, 0);
    assert_eq!(pick(Wanted { only_urgent: true, ..usual() }), Some(NoticeKind::CrashLoop));
    queues.delay(&acme, "ops", &failed("r", 0).id, Some(Instant::now() + Duration::from_secs(60)));
    assert_eq!(pick(usual()), Some(NoticeKind::CrashLoop), "a refused message holds up no other one");
}

#[test]
fn progress_is_bounded_and_survives_a_clock_that_is_set_back() {
    let mut progress = Progress::starting(1_000_000);
    assert_eq!(progress.overlap(), 1_000_000);
    (progress.time, progress.complete, progress.run) = (9_000_000, 9_000_000, Some("r".into()));
    for index in 0..MAX_SEEN as u64 + 1 {
        assert!(progress.see(index.to_string(), 9_000_000 - OVERLAP_MS + index));
    }
    assert!(!progress.see("7".into(), 1));
    progress.prune(9_000_000);
    assert!(progress.seen.len() <= MAX_SEEN * 3 / 4 + 1 && progress.forgotten > 0);
    for index in 0..MAX_REPORTED as u64 + 1 {
        progress.reported.entry((index % 3).to_string()).or_default().insert(index.to_string(), index);
    }
    progress.prune(9_000_000);
    let reported: usize = progress.reported.values().map(|waits| waits.len()).sum();
    assert!(reported <= MAX_REPORTED * 3 / 4 + 1 && progress.reported_from > 0, "{reported}");
    progress.set_clock(8_000_000);
    assert_eq!((progress.time, progress.complete, progress.run.as_ref()), (8_000_000, 8_000_000, None));
    assert!(progress.forgotten <= 8_000_000 && progress.floor == 1_000_000);
    progress.set_clock(500_000);
    assert_eq!((progress.floor, progress.overlap()), (500_000, 500_000));
    assert!(progress.tell_once("q".into(), 600_000) && !progress.tell_once("q".into(), 600_000));
    progress.prune(600_000);
    assert!(progress.once.is_empty());
}

/// Looks at the runs of `local`. Returns the kinds and addresses of the messages, and whether the look is done.
fn look(host: &Host, progress: &mut Progress, reads_left: usize, again: bool) -> (Vec<String>, bool) {
    let mut look = Look {
        host,
        progress,
        waits: true,
        contents: true,
        reads_left,
        until: Instant::now() + Duration::from_secs(60),
        has_read: false,
        found: Vec::new(),
    };
    let is_done = look.look(again).unwrap();
    let shown = |message: &Message| {
        let address = message.address.as_deref().unwrap_or_default();
        format!("{} {address} {}", message.kind.name(), message.text.as_deref().unwrap_or_default())
    };
    (look.found.iter().map(shown).collect(), is_done)
}

fn drive(host: &Host, text: &str, run: &str) -> RunStatus {
    let flow = host.load_source(Source { name: "flow.yaml".into(), text: text.into() }).unwrap();
    let runner = host.runner(&flow, RunOptions { run_id: Some(run.into()), ..RunOptions::default() }).unwrap();
    runtime().block_on(runner.run()).status
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
}

#[test]
fn a_wait_is_told_once_whatever_happens_to_its_run() {
    let folder = tempfile::tempdir().unwrap();
    let host = Host::builder().state_dir(folder.path()).build().unwrap();
    let asks = "
flow: { name: two }
nodes:
  - { id: a, type: control.gate, input: { prompt: 'A?', choices: ['yes'] } }
  - { id: b, type: control.gate, input: { prompt: 'B?', choices: ['yes'] } }
edges: []
";
    let fails = "
flow: { name: fails }
nodes:
  - { id: no, type: control.fail, input: { message: 'sold out' } }
";
    assert_eq!(drive(&host, asks, "r"), RunStatus::Parked);
    assert_eq!(drive(&host, fails, "f"), RunStatus::Failed);
    let mut progress = Progress::starting(0);
    assert_eq!(look(&host, &mut progress, 0, false), (vec![], false), "no events may be read");
    assert_eq!(
        look(&host, &mut progress, 1, false),
        (vec!["gate_opened a A?".to_owned(), "gate_opened b B?".into()], false)
    );
    assert_eq!(look(&host, &mut progress, 9, false), (vec!["run_failed no sold out".to_owned()], true));
    assert_eq!(look(&host, &mut progress, 9, false), (vec![], true));
    assert_eq!(look(&host, &mut progress, 0, true), (vec![], true), "a second look finds nothing new");
    // The run is resumed, and parks again with its questions.
    let runner = host.resume(&"r".into(), RunOptions::default()).unwrap();
    assert_eq!(runtime().block_on(runner.run()).status, RunStatus::Parked);
    assert_eq!(look(&host, &mut progress, 9, false), (vec![], true));
    // Looks long after the first park, of which none fell into it. The run was parked with `b` before, and `b` was not told.
    let long_after = host.now() + OVERLAP_MS + 1_000;
    let mut later = Progress { complete: long_after, ..Progress::starting(0) };
    assert!(look(&host, &mut later, 9, false).0.contains(&"gate_opened b B?".to_owned()));
    // Waits that were reported and forgotten, because they were too many, are not reported again.
    let mut forgetful = Progress { complete: long_after, reported_from: host.now() + 1, ..Progress::starting(0) };
    assert!(!look(&host, &mut forgetful, 9, false).0.iter().any(|told| told.starts_with("gate_opened")));
    // No process has looked since then, although the run was parked in between.
    let told = look(&host, &mut Progress::starting(0), 9, false).0;
    assert!(
        told.contains(&"run_failed no sold out".to_owned()) && told.contains(&"gate_opened b B?".to_owned()),
        "{told:?}"
    );
    // A failure is committed late, so the first look is past its time, and the second look alone finds it.
    progress.time = host.now() + 1_000;
    assert_eq!(drive(&host, fails, "late"), RunStatus::Failed);
    let complete = progress.complete;
    assert_eq!(look(&host, &mut progress, 9, false), (vec![], true));
    assert_eq!(look(&host, &mut progress, 0, true), (vec![], false), "no events may be read");
    assert_eq!(progress.complete, complete, "a second look that is not done completes nothing");
    assert_eq!(look(&host, &mut progress, 9, true), (vec!["run_failed no sold out".to_owned()], true));
    assert!(progress.complete >= complete && progress.second.is_none());
    // The waits of a run that has ended are forgotten.
    assert_eq!(progress.reported.len(), 1);
    let resume = || host.resume(&"r".into(), RunOptions::default()).unwrap();
    runtime().block_on(resume().ask(RunCommand::Cancel)).unwrap();
    assert_eq!(runtime().block_on(resume().run()).status, RunStatus::Cancelled);
    assert_eq!(look(&host, &mut progress, 9, true), (vec![], true));
    assert!(progress.reported.is_empty());
    // What happened before the first start is old news.
    assert_eq!(look(&host, &mut Progress::starting(host.now() + 1), 9, true), (vec![], true));
}

#[test]
fn a_secret_that_ends_is_told_a_week_before_and_on_the_day() {
    const DAY: u64 = 24 * 3_600_000;
    let host = Host::builder().build().unwrap();
    let set = |name: &str, days: Option<u64>| {
        let lasts = days.map(|days| days * DAY);
        host.vault().set(host.tenant(), "test", name, "hunter2-hunter2", &[], lasts).unwrap()
    };
    set("endless", None);
    set("short", Some(13));
    let ends = set("api-token", Some(14)).expires.unwrap();
    let told = |now: u64| {
        let found = secrets(&host, now).unwrap();
        assert!(found.iter().all(|(_, until)| *until == ends + 2 * DAY), "{found:?}");
        found.into_iter().map(|(message, _)| (message.id, message.about)).collect::<Vec<_>>()
    };
    assert_eq!((told(ends - 7 * DAY - 1), told(ends + DAY + 1)), (vec![], vec![]));
    let [(soon, before), (over, after)] = [&told(ends - 7 * DAY)[..], &told(ends)].concat().try_into().unwrap();
    assert!(before.starts_with("the secret `api-token` expires at 2"), "{before}");
    assert!(after.starts_with("the secret `api-token` has expired at 2"), "{after}");
    assert_eq!((told(ends - 1)[0].0.as_str(), told(ends + DAY)[0].0.as_str()), (&*soon, &*over));
    assert_ne!(soon, over);
    // A new value has an end of its own, or none.
    assert!(set("api-token", Some(15)).expires.unwrap() >= ends + DAY);
    assert_ne!(secrets(&host, ends + DAY - 1).unwrap()[0].0.id, soon);
    set("api-token", None);
    assert_eq!(secrets(&host, ends).unwrap(), vec![]);
    // All secrets of a tenant are read, so this happens once an hour.
    let mut progress = Progress::starting(0);
    let begins = [0, 1, 3_599_999, 3_600_000, 3_600_001].map(|now| progress.begins_look_at_secrets(now));
    assert_eq!(begins, [true, false, false, true, false]);
}

#[test]
fn one_process_has_the_lease_until_it_no_longer_renews_it() {
    let host = Host::builder().build().unwrap();
    let (mut first, mut second) = (Lease::new("a".into()), Lease::new("b".into()));
    let start = Instant::now() + LEASE;
    let at = |part: u32| start + LEASE * part / 4;
    assert_eq!(first.take(&host, at(0)).unwrap(), Some(at(4)));
    assert_eq!(second.take(&host, at(1)).unwrap(), None);
    assert_eq!(first.take(&host, at(1)).unwrap(), Some(at(4)), "it is not renewed yet");
    assert_eq!(first.take(&host, at(3)).unwrap(), Some(at(7)));
    // The second process sees the change, and counts from then on by its own clock.
    assert_eq!(second.take(&host, at(5)).unwrap(), None);
    assert_eq!(second.take(&host, at(8)).unwrap(), None);
    assert_eq!(second.take(&host, at(9)).unwrap(), Some(at(13)));
    assert_eq!(first.take(&host, at(9)).unwrap(), None);
    // A lease that is given back is free at once, and only its holder gives it back.
    first.release(&host).unwrap();
    assert_eq!(first.take(&host, at(10)).unwrap(), None);
    second.release(&host).unwrap();
    assert_eq!(first.take(&host, at(10)).unwrap(), Some(at(14)));
}

#[test]
fn urgent_messages_have_room_of_their_own_and_so_has_each_tenant() {
    let (queues, process) = (Queues::default(), Tenant::from(""));
    let push = |kind, tenant: &str, place: &str| {
        queues.push(&process, "ops", Message::new(kind, tenant, None, &[place], 0), 30, 100_000)
    };
    let queued =
        |tenant: &str| (0..100).filter(|index| push(NoticeKind::WebhookRefused, tenant, &index.to_string())).count();
    assert_eq!((queued("acme"), queued("calm")), (30, 30));
    assert!(push(NoticeKind::StoreTrouble, "", "begin"));
    let acme = Tenant::from("acme");
    for index in 0..MAX_WAITING as u64 + 1 {
        queues.push(&acme, "ops", failed(&index.to_string(), 0), 600, 100_000);
    }
    let loops = |run: &str| Message::new(NoticeKind::CrashLoop, "acme", Some(run), &[], 0);
    assert!(queues.push(&acme, "ops", loops("r"), 600, 100_000));
    let urgent = (0..100).filter(|run| queues.push(&acme, "ops", loops(&run.to_string()), 600, 100_000)).count();
    assert_eq!(urgent, MAX_WAITING - 1, "urgent messages are bounded, too");
}

#[test]
fn waiting_messages_that_a_target_does_not_hear_any_more_are_dropped() {
    let (queues, acme) = (Queues::default(), Tenant::from("acme"));
    for index in 0..40 {
        queues.push(&acme, "ops", failed(&index.to_string(), 0), 30, 0);
    }
    queues.push(&acme, "gone", failed("r", 0), 30, 0);
    let urgent = Message::new(NoticeKind::CrashLoop, "acme", Some("s"), &[], 0);
    queues.push(&acme, "ops", Message { text: Some("the-contents".into()), ..urgent }, 30, 0);
    let dropped = |rest: &str| {
        let text = format!("targets: [{{ name: ops, channel: program, command: [a]{rest} }}]");
        let file = NotifyFile::parse(&text).unwrap();
        let mut kept = queues.of(&acme);
        (kept.drop_unheard(&acme, file.targets.iter()), serde_json::to_string(&kept).unwrap())
    };
    let (gone, kept) = dropped(", contents: true");
    assert_eq!(gone, [("gone".to_owned(), 1)]);
    assert!(kept.contains("the-contents") && kept.contains("evil"), "{kept}");
    let (gone, kept) = dropped(", kinds: [crash_loop]");
    assert_eq!(gone, [("gone".to_owned(), 1), ("ops".to_owned(), 40)]);
    assert!(kept.contains("crash_loop") && !kept.contains("the-contents") && !kept.contains("run_failed"), "{kept}");
    let (gone, kept) = dropped(", tenants: [calm]");
    assert_eq!(gone.iter().map(|(_, count)| count).sum::<u64>(), 42);
    assert!(!kept.contains("evil"), "{kept}");
}

#[test]
fn an_alert_that_waited_is_not_over_when_it_arrives() {
    let message = Message { queued: 0, ..failed("r", 0) };
    let alerts = body(Format::AlertManager, &message, false, None, 7_200_000);
    assert_eq!(
        (&alerts[0]["startsAt"], &alerts[0]["endsAt"]),
        (&json!("1970-01-01T00:00:00Z"), &json!("1970-01-01T03:00:00Z"))
    );
}

#[test]
fn a_target_that_refuses_all_messages_is_logged_once_an_hour_for_each_reason() {
    let (mut logged, begin) = (LoggedRefusal::default(), Instant::now());
    let step = Duration::from_secs(1);
    let table = [
        ("302", begin, true),
        ("302", begin + step, false),
        ("404", begin + step * 2, true),
        ("404", begin + step * 3, false),
        ("302", begin + step * 4, true),
        ("302", begin + step * 4 + REFUSAL_INTERVAL - step, false),
        ("302", begin + step * 4 + REFUSAL_INTERVAL, true),
    ];
    for (why, at, expected) in table {
        assert_eq!(logged.is_new(why, at), expected, "{why} {:?}", at.duration_since(begin));
    }
}

#[test]
fn a_target_that_requests_no_wait_gets_one() {
    assert_eq!(wait_after(Some(Duration::ZERO), 1), FIRST_WAIT);
    assert_eq!(wait_after(Some(Duration::from_secs(60)), 1), Duration::from_secs(60));
    assert!(wait_after(None, 3) > FIRST_WAIT * 2);
}
