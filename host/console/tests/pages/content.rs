//! The contents of pages: hostile texts of tenants, cuts, empty states, and sizes.

use serde_json::{Value, json};

use crate::{
    OWN,
    client::{Served, ask},
    local, post, store,
};

/// A text that attacks browsers, readers and terminals.
const HOSTILE: &str =
    "<img src=x onerror=alert(1)>\"'><script>alert(2)</script> javascript:alert(3) \u{202e}txt\u{1b}[31m";
/// The allowed size of any page with its style sheet and scripts, and of the list of runs, in bytes as they are sent.
const MOST: [usize; 2] = [60_000, 30_000];

fn start(served: &Served, body: &Value) -> String {
    let answer = served.post("/v1/runs?wait=true", body);
    assert_eq!(answer.status, 201, "{answer:?}");
    answer.json()["runId"].as_str().unwrap().to_owned()
}

#[test]
fn hostile_texts_are_shown_as_text_on_every_page() {
    let served = local();
    let asks = json!({
        "flow": { "name": "asks", "description": HOSTILE, "inputSchema": { "type": "object", "properties": {
            HOSTILE: { "type": "string", "description": HOSTILE, "default": HOSTILE, "examples": [HOSTILE] },
            "kind": { "enum": [HOSTILE] },
        } } },
        "nodes": [{ "id": "ok", "type": "control.gate", "input": { "prompt": HOSTILE, "choices": [HOSTILE] } }],
    });
    let fails = json!({
        "flow": { "name": "fails" },
        "nodes": [{ "id": "bad", "type": "control.fail", "input": { "code": "refused", "message": HOSTILE } }],
    });
    store(&served, &asks);
    store(&served, &fails);
    let label = "<img src=x onerror=alert(1)> javascript:alert(3)";
    let labels = json!({ "team": label });
    let waits =
        start(&served, &json!({ "flow": "asks", "labels": labels, "input": { "kind": HOSTILE, "text": HOSTILE } }));
    let failed = start(&served, &json!({ "flow": "fails", "labels": labels, "runId": "a:b[1]" }));
    let mut pages = vec![
        "/console".to_owned(),
        "/console/runs".into(),
        "/console/inbox".into(),
        "/console/flows".into(),
        "/console/flows/asks".into(),
        "/console/flows/asks/start".into(),
        "/console/login?next=javascript:alert(1)//%22%3E%3Cimg".into(),
        "/console/runs?flow=%3Cimg%20src=x%3E&text=%22%3E%3Cscript%3E".into(),
        "/console/catalog?q=%3Cimg%20src%3Dx%3E%E2%80%AE".into(),
        "/console/manual?q=%3Cscript%3E".into(),
        "/console/jobs".into(),
        "/console/jobs/new?flow=%3Cimg%20src=x%3E&status=failed&action=retry&p-from=%22%3E%3Cimg%3E".into(),
        "/console/jobs/new?text=%E2%80%AE%3Cscript%3E&action=label&p-set=%3Cimg%3E%3D%3Cimg%3E".into(),
        "/console/jobs/%3Cimg%20src=x%3E".into(),
        "/console/packs".into(),
        "/console/packs/%3Cimg%20src=x%3E".into(),
        "/console/tokens".into(),
        "/console/audit".into(),
        "/console/triggers".into(),
        "/console/files".into(),
        "/console/secrets".into(),
        "/console/credentials?kind=%3Cimg%3E&name=%22%3E%3Cimg%20src=x%3E&for=%3Cscript%3E%E2%80%AE&key=%22%3E%3Cimg%3E".into(),
        "/console/credentials?kind=apiKey&key=%22%3E%3Cimg%3E".into(),
        "/console/credentials/%3Cimg%20src=x%3E".into(),
        "/console/connect/finish?state=%3Cimg%3E&error=%3Cimg%20src=x%3E&error_description=%3Cscript%3E".into(),
        "/console/usage".into(),
        "/console/catalog/control.gate".into(),
        "/console/flows/asks/diff".into(),
        "/console/flows/asks/edit".into(),
        "/console/flows/%3Cimg%20src=x%3E/edit".into(),
        "/console/edit".into(),
        "/console/flows/asks?fold=%3Cimg%3E&part=9".into(),
        "/console/%3Cimg%20src=x%3E".into(),
        "/console/runs/%3Cimg%20src=x%3E".into(),
        "/console/flows/%3Cimg%20src=x%3E".into(),
        "/console/manual/%3Cimg%20src=x%3E".into(),
    ];
    for run in [waits.as_str(), "a:b[1]"] {
        let ends = [
            "",
            "/list",
            "/list?status=%3Cimg%3E",
            "/list?under=%3Cimg%3E",
            "/timeline",
            "/timeline?from=%3Cimg%3E",
            "/events?from=0",
            "/events?kind=failures&task=%3Cimg%3E%E2%80%AE",
            "/logs",
            "/raw",
            "/tasks/ok",
            "/tasks/bad",
            "/tasks/%3Cimg%3E",
        ];
        pages.extend(ends.map(|end| format!("/console/runs/{}{end}", run.replace('[', "%5B").replace(']', "%5D"))));
    }
    assert_eq!(failed, "a:b[1]");
    for page in &pages {
        let answer = served.get(page);
        let body = &answer.body;
        assert!(body.starts_with("<!DOCTYPE html>"), "{page}: {answer:?}");
        for bad in ["<img", "<script>", "onerror=alert(1)>\"", "href=\"javascript:", "\u{202e}", "\u{1b}", "style="] {
            assert!(!body.contains(bad), "{page} contains {bad:?}");
        }
        assert_eq!(body.matches("<h1>").count(), 1, "{page}");
        assert_eq!(body.matches("<script").count(), 1, "{page}");
        let ids: Vec<_> = body.split(" id=\"").skip(1).filter_map(|rest| rest.split('"').next()).collect();
        let unique: std::collections::BTreeSet<_> = ids.iter().collect();
        assert_eq!(ids.len(), unique.len(), "{page} has an id twice: {ids:?}");
    }
    let inbox = served.get("/console/inbox").body;
    assert!(
        inbox.contains("&lt;img src=x onerror=alert(1)&gt;") && inbox.contains(r"\u{202e}txt\u{1b}[31m"),
        "{inbox}"
    );
    assert!(served.get("/console/runs/a:b%5B1%5D").body.contains("&lt;script&gt;alert(2)"));
}

#[test]
fn an_answer_of_the_inbox_is_for_the_question_that_it_has_shown() {
    let served = local();
    let gate =
        json!({ "id": "ok", "type": "control.gate", "input": { "prompt": "Use `<b>`?", "choices": ["yes", "no"] } });
    store(
        &served,
        &json!({ "flow": { "name": "asks", "outputs": { "said": "{{ ok.response.choice }}" } }, "nodes": [gate] }),
    );
    let run = start(&served, &json!({ "flow": "asks" }));
    let inbox = served.get("/console/inbox").body;
    assert!(inbox.contains("Use <code>&lt;b&gt;</code>?"), "{inbox}");
    let digest = inbox.split_once(r#"name="digest" value=""#).unwrap().1.split('"').next().unwrap().to_owned();
    let path = format!("/console/runs/{run}/gates/ok");
    let wrong = post(&served, &path, &[OWN], "choice=yes&digest=00000000000000000000000000000000");
    assert!(wrong.status == 409 && wrong.body.contains("gate_closed"), "{wrong:?}");
    let sent = post(&served, &path, &[OWN], &format!("choice=yes&digest={digest}&attempt=1&back=%2Fconsole%2Finbox"));
    assert_eq!((sent.status, sent.header("location")), (303, Some("/console/inbox")));
    let late = post(&served, &path, &[OWN], &format!("choice=no&digest={digest}&attempt=1&back=//evil.test"));
    assert!(late.status == 409 && late.body.contains("Too late"), "the second person sees it: {late:?}");
    let ended = served.ask("GET", &format!("/v1/runs/{run}"), "");
    assert!(
        ended.body.contains("succeeded")
            || (0..2_000).any(|_| served.get(&format!("/v1/runs/{run}")).body.contains("succeeded"))
    );
    assert!(served.get("/console/inbox").body.contains("Nothing waits for you"));
}

#[test]
fn controls_do_what_they_say() {
    let served = local();
    let gate = json!({ "id": "ok", "type": "control.gate", "input": { "prompt": "Go on?" } });
    store(&served, &json!({ "flow": { "name": "asks" }, "nodes": [gate] }));
    let run = start(&served, &json!({ "flow": "asks" }));
    let path = format!("/console/runs/{run}");
    let page = served.get(&path).body;
    assert!(page.contains(&format!("flowcell runs cancel {run}")) && page.contains("Resume…"), "{page}");
    assert_eq!(post(&served, &format!("{path}/cancel"), &[OWN], "").header("location"), Some(&*path));
    assert!((0..2_000).any(|_| served.get(&path).body.contains("Retry…")));
    let again = post(&served, &format!("{path}/retry"), &[OWN], "");
    let new = again.header("location").unwrap();
    assert!(new != path && served.get(new).body.contains("Repeats"), "{again:?}");
    assert_eq!(post(&served, &format!("{path}/explode"), &[OWN], "").status, 405);
    assert_eq!(post(&served, "/console/runs/none/cancel", &[OWN], "").status, 404);
}

#[test]
fn long_values_and_lists_are_cut_with_their_size() {
    let served = local();
    let nodes: Vec<_> =
        (0..200).map(|index| json!({ "id": format!("node_{index}"), "type": "control.noop" })).collect();
    store(&served, &json!({ "flow": { "name": "wide" }, "nodes": nodes }));
    let run = start(&served, &json!({ "flow": "wide", "input": { "text": "ü".repeat(300_000) } }));
    let page = |end: &str| served.get(&format!("/console/runs/{run}{end}")).body;
    assert!(page("").contains("Shown in part") && page("").matches("<title>node_").count() == 200, "{}", page(""));
    let list = page("/list");
    assert!(list.contains("1 to 150 of 200") && list.contains("?from=150\"") && !list.contains("node_150<"), "{list}");
    assert!(page("/list?from=150").contains("node_199<"));
    let timeline = page("/timeline");
    assert!(timeline.matches("<svg class=\"bar").count() == 200, "{timeline}");
    let events = page("/events");
    assert!(events.contains(r#"rel="prev""#) && !events.contains(r#"rel="next""#), "the latest events are first");
    let first = page("/events?from=0");
    assert!(first.contains(r#"rel="next""#) && first.contains("KiB"), "{first}");
}

#[test]
fn empty_pages_teach_the_first_step_with_the_address_of_the_server() {
    let served = local();
    let address = served.address.to_string();
    for (page, step) in [
        ("/console", "flowcell flows create"),
        ("/console/runs", &*address),
        ("/console/flows", "flowcell init"),
        ("/console/inbox", "/console/manual/approvals"),
        ("/console/triggers", "cron:"),
        ("/console/secrets", "flowcell secret set"),
        ("/console/credentials", "flowcell credential set"),
        ("/console/files", "flowcell files put"),
        ("/console/jobs", "/console/runs?status=failed"),
        ("/console/packs", "flowcell node install"),
        ("/console/tokens", "asks for no tokens"),
        ("/console/audit", "appear here"),
        ("/console/runs?status=failed", "Show all runs"),
    ] {
        let body = served.get(page).body;
        assert!(body.contains(step), "{page} does not contain {step}: {body}");
    }
}

#[test]
fn the_inbox_has_pages_and_an_answer_leads_back_to_its_page() {
    let served = local();
    store(
        &served,
        &json!({
            "flow": { "name": "asks" },
            "nodes": [{ "id": "ok", "type": "control.gate", "input": { "prompt": "Go on?", "choices": ["yes"] } }],
        }),
    );
    for index in 0..52 {
        start(&served, &json!({ "flow": "asks", "runId": format!("ask-{index}") }));
    }
    let shown = |page: &str| page.matches(r#"<article class="card""#).count();
    let link = |page: &str, rel: &str| {
        let (_, rest) = page.split_once(&format!(r#"rel="{rel}" href=""#))?;
        rest.split('"').next().map(str::to_owned)
    };
    let first = served.get("/console/inbox").body;
    let next = link(&first, "next").unwrap();
    assert!(shown(&first) == 50 && link(&first, "first").is_none(), "{first}");
    assert!(served.get("/console").body.contains("At least 50 runs wait for you"));
    let second = served.get(&next).body;
    assert_eq!(
        (shown(&second), link(&second, "next"), link(&second, "first").as_deref()),
        (2, None, Some("/console/inbox"))
    );
    for run in ["ask-50", "ask-51"] {
        let at = format!("/console/runs/{run}/gates/ok");
        assert!(second.contains(&at) && !first.contains(&at), "{second}");
        let sent = post(&served, &at, &[OWN], &format!("choice=yes&back={}", next.replace('/', "%2F")));
        assert_eq!((sent.status, sent.header("location")), (303, Some(&*next)), "{sent:?}");
    }
    let empty = served.get(&next).body;
    assert!(empty.contains("Nothing on this page waits for you") && link(&empty, "first").is_some(), "{empty}");
    let wrong = served.get("/console/inbox?cursor=%3Cimg%3E");
    assert!(wrong.status == 400 && !wrong.body.contains("<img"), "{wrong:?}");
}

#[test]
fn pages_are_small_as_they_are_sent() {
    let served = local();
    let nodes: Vec<_> =
        (0..100).map(|index| json!({ "id": format!("node_{index}"), "type": "control.noop" })).collect();
    let text = json!({ "text": "x".repeat(1_000) });
    store(&served, &json!({ "flow": { "name": "many", "description": "Runs a hundred nodes." }, "nodes": nodes }));
    for index in 0..60 {
        let labels = json!({ "team": format!("team {index}"), "tier": "gold" });
        start(&served, &json!({ "flow": "many", "runId": format!("run-{index}"), "labels": labels, "input": text }));
    }
    let sent = |path: &str| {
        let answer = ask(served.address, "GET", path, &[("Accept-Encoding", "br, gzip")], "");
        let bytes = answer.body_bytes;
        let is_packed = answer.header("content-encoding") == Some("gzip");
        assert!(answer.status == 200 && (is_packed || bytes < 1_024), "{path}: {answer:?}");
        bytes
    };
    let page = served.get("/console/runs").body;
    let style = page.split("href=\"").find(|rest| rest.contains("console.css")).unwrap().split('"').next().unwrap();
    let of = |name: &str| sent(&style.replace("console.css", name));
    let assets = ["console.css", "console.js", "live.js", "times.js", "keys.js", "drafts.js"];
    let assets = assets.map(of).into_iter().sum::<usize>();
    let editor = ["editor.js", "offers.js", "kept.js", "lexer.js", "colours.js", "rename.js"];
    let editor = editor.map(of).into_iter().sum::<usize>();
    for (path, most) in [
        ("/console", MOST[0]),
        ("/console/runs", MOST[1]),
        ("/console/flows/many", MOST[0]),
        ("/console/flows/many/edit", MOST[0] - editor),
        ("/console/edit", MOST[0] - editor),
        ("/console/runs/run-7", MOST[0]),
        ("/console/runs/run-7/list", MOST[0]),
        ("/console/runs/run-7/events?from=0", MOST[0]),
        ("/console/runs/run-7/raw", MOST[0]),
        ("/console/catalog", MOST[0]),
        ("/console/manual", MOST[0]),
        ("/console/manual/limits", MOST[0]),
    ] {
        let bytes = sent(path) + assets;
        println!("{path}: {bytes} bytes with {assets} of assets");
        assert!(bytes <= most, "{path} has {bytes} bytes with its assets, more than {most}");
    }
}
