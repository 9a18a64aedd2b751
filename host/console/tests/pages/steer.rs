//! Pages that change something: jobs, tokens, triggers and files; and the pages of tasks and versions.

use std::sync::Arc;

use flowcell_server::identity::Local;
use serde_json::{Value, json};

use crate::{
    OWN, built,
    client::Served,
    cookie_of, encoded, hidden,
    issuer::{Server, answer},
    local, post, store, with_tenants,
};

/// Starts a run, waits for it, and returns its id.
fn start(served: &Served, flow: &str, input: &Value) -> String {
    let answer = served.post("/v1/runs?wait=true", &json!({ "flow": flow, "input": input }));
    assert_eq!(answer.status, 201, "{answer:?}");
    answer.json()["runId"].as_str().unwrap().to_owned()
}

fn failing() -> Value {
    json!({
        "flow": { "name": "fails" },
        "nodes": [
            { "id": "first", "type": "control.noop", "input": { "value": "{{ flow.input.number }}" } },
            { "id": "bad", "type": "control.fail", "input": { "code": "refused", "message": "no" } },
        ],
        "edges": [{ "from": "first", "to": "bad" }],
    })
}

#[test]
fn a_job_acts_on_the_runs_that_its_preview_has_counted() {
    let served = local();
    store(&served, &failing());
    for number in 0..3 {
        start(&served, "fails", &json!({ "number": number }));
    }
    let list = served.get("/console/runs?status=failed").body;
    assert!(list.contains(r#"href="/console/jobs/new?status=failed""#), "{list}");
    assert!(!served.get("/console/runs").body.contains("/console/jobs/new"), "a job needs a filter");
    let choose = served.get("/console/jobs/new?status=failed").body;
    assert!(choose.contains("/console/jobs/new?status=failed&amp;action=retry"), "{choose}");
    let preview = served.get("/console/jobs/new?status=failed&action=retry&p-from=bad").body;
    assert!(
        preview.contains("3 runs") && preview.contains("runs bulk retry --status failed --from bad --max-runs 3 --yes"),
        "{preview}"
    );
    let job: Value = serde_json::from_str(&hidden(&preview, "job")).unwrap();
    assert_eq!(job["maxRuns"], 3, "{job}");
    let made = post(&served, "/console/jobs", &[OWN], &format!("job={}", encoded(&job.to_string())));
    assert_eq!(made.status, 303, "{made:?}");
    let page = made.header("location").unwrap().to_owned();
    assert!((0..4_000).any(|_| served.get(&page).body.contains("3 done of 3")), "{:?}", served.get(&page));
    assert!(served.get("/console/jobs").body.contains("retry"));
    // A mistake is said, and nothing happens.
    for (query, why) in [
        ("?action=retry", "choose at least one filter"),
        ("?status=failed&action=answer", "fill in"),
        ("?status=failed&action=label&p-set=team", "NAME=VALUE"),
        ("?status=failed&action=migrate&p-to=x", "not a version"),
        ("?version=x&action=cancel", "not a version"),
        ("?status=failed&action=migrate&p-to=2", "flow"),
        ("?flow=none&action=cancel", "No run fits"),
        ("?flow=fails&labels=nonsense&action=cancel", "NAME=VALUE"),
        ("?flow=fails&labels=team=x,team=y&action=cancel", "once"),
        ("?flow=fails&within=zzz&action=cancel", "not a period"),
    ] {
        let page = served.get(&format!("/console/jobs/new{query}")).body;
        assert!(page.contains(why) && !page.contains(r#"name="job""#), "{query}: {page}");
    }
    assert_eq!(post(&served, "/console/jobs", &[OWN], "job=%7B").status, 400);
    assert_eq!(post(&served, "/console/jobs/none/pause", &[OWN], "").status, 404);
    assert_eq!(post(&served, "/console/jobs/none/explode", &[OWN], "").status, 404);
}

#[test]
fn commands_of_a_tenant_name_it_and_controls_need_their_scopes() {
    let served = with_tenants();
    let flow = json!({ "flow": { "name": "asks" }, "nodes": [{ "id": "ok", "type": "control.gate", "input": { "prompt": "Go on?" } }] });
    let all = cookie_of(&served, "a", &["run:create", "run:read", "run:control", "gate:decide", "flow:read"]);
    let headers = [("Cookie", all.as_str()), OWN];
    let start = json!({ "flow": flow, "runId": "-r" }).to_string();
    let started = crate::client::ask(served.address, "POST", "/v1/runs?wait=true", &headers, &start);
    assert_eq!(started.status, 201, "{started:?}");
    let page =
        |cookie: &str, path: &str| crate::client::ask(served.address, "GET", path, &[("Cookie", cookie), OWN], "").body;
    let run = page(&all, "/console/runs/-r");
    assert!(run.contains("flowcell runs cancel --tenant a -- -r"), "{run}");
    assert!(run.contains("flowcell answer --tenant a -- -r ok TEXT") && run.contains("Send the text"), "{run}");
    assert!(!run.contains("<!--"), "{run}");
    assert!(page(&all, "/console/flows").contains("flows create shop/triage.yaml --tenant a"));
    let reader = cookie_of(&served, "a", &["run:read"]);
    let run = page(&reader, "/console/runs/-r");
    assert!(!run.contains("Send the text") && run.contains("gate:decide"), "{run}");
    assert!(!run.contains("Cancel…") && run.contains("run:control"), "{run}");
    assert!(!local().get("/console/runs").body.contains("--tenant"));
}

#[test]
fn a_busy_run_shows_its_open_question_and_a_skipped_task_its_state() {
    let served = local();
    let gate = json!({ "id": "ok", "type": "control.gate", "input": { "prompt": "Go on?" } });
    let again = json!({ "id": "again", "type": "control.fail", "input": { "code": "busy", "message": "no", "retryable": true },
        "policy": { "retry": { "maxAttempts": 3, "backoffMs": 50_000, "jitter": "none" } } });
    store(&served, &json!({ "flow": { "name": "busy" }, "nodes": [gate, again] }));
    let answer = served.post("/v1/runs", &json!({ "flow": "busy" })).json();
    let run = answer["runId"].as_str().unwrap();
    let path = format!("/console/runs/{run}");
    assert!((0..4_000).any(|_| served.get(&path).body.contains("retrying")), "{:?}", served.get(&path));
    assert!(served.get(&path).body.contains("Go on?"), "{:?}", served.get(&path));
    assert_eq!(served.post(&format!("/v1/runs/{run}/cancel"), &json!({})).status, 200);
    // A task behind more than a thousand others.
    let nodes = (0..1_100).map(|at| json!({ "id": format!("n{at}"), "type": "control.noop" }));
    let last = json!({ "id": "last", "type": "control.noop", "when": "1 == 2" });
    let nodes: Vec<_> = nodes.chain([last]).collect();
    store(&served, &json!({ "flow": { "name": "long" }, "nodes": nodes }));
    let run = start(&served, "long", &json!({}));
    let page = served.get(&format!("/console/runs/{run}/tasks/last"));
    assert!(page.status == 200 && page.body.contains("skipped"), "{page:?}");
    // Its picture has parts, and says so.
    let picture = served.get(&format!("/console/runs/{run}?part=2"));
    assert!(picture.body.contains("Part 3 of 3") && picture.body.len() < 400_000, "{}", picture.body.len());
}

#[test]
fn a_task_shows_its_output_and_its_error_and_begins_a_retry() {
    let served = local();
    store(&served, &failing());
    let run = start(&served, "fails", &json!({ "number": 4711 }));
    let page = |end: &str| served.get(&format!("/console/runs/{run}{end}")).body;
    let first = page("/tasks/first");
    assert!(first.contains("<h4>Output</h4>") && first.matches("4711").count() >= 2, "{first}");
    let bad = page("/tasks/bad");
    assert!(bad.contains("<code>refused</code>") && bad.contains("Retry from here"), "{bad}");
    let again = post(&served, &format!("/console/runs/{run}/retry"), &[OWN], "from=bad");
    let new = again.header("location").unwrap();
    assert!((0..4_000).any(|_| served.get(&format!("{new}/tasks/first")).body.contains("succeeded")));
    let facts = served.get(&new.replace("/console/", "/v1/")).json();
    assert_eq!(facts["retryOf"], run.as_str(), "{facts}");
    let failures = page("/events?kind=failures");
    assert!(failures.contains("task:failed") && !failures.contains("task:complete"), "{failures}");
}

#[test]
fn passes_are_counted_in_the_picture_and_listed_with_failures_first() {
    let served = local();
    let each = json!({ "id": "each", "type": "control.foreach", "input": { "list": [1, 2, 3], "maxFailures": 1 }, "body": ["one"] });
    let one = json!({ "id": "one", "type": "control.fail", "when": "each.item == 2", "input": { "code": "bad", "message": "two" } });
    store(&served, &json!({ "flow": { "name": "loops" }, "nodes": [each, one] }));
    let run = start(&served, "loops", &json!({}));
    let page = |end: &str| served.get(&format!("/console/runs/{run}{end}")).body;
    let picture = page("");
    assert!(picture.contains("1 failed, 2 skipped"), "{picture}");
    assert!(picture.contains(r#"aria-label="Fold each""#) && picture.contains(r#"href="/console/runs/"#));
    let folded = page("?fold=each");
    assert!(folded.contains("Show the 1 nodes in each") && !folded.contains("<title>one"), "{folded}");
    let list = page("/list?under=each&order=urgent");
    assert!(list.find("each[1]").unwrap() < list.find("each[0]").unwrap(), "{list}");
    assert!(page("/list?under=each%5B1%5D").contains("each[1].one"));
    assert!(page("/list?status=failed").contains("each[1].one"), "a filter looks into bodies");
}

#[test]
fn a_run_is_shown_as_it_was_at_each_of_its_events() {
    let served = local();
    store(&served, &failing());
    let run = start(&served, "fails", &json!({ "number": 1 }));
    let page = |end: &str| served.get(&format!("/console/runs/{run}{end}")).body;
    let events = served.get(&format!("/v1/runs/{run}/events")).json()["events"].as_array().unwrap().clone();
    let complete = events.iter().find(|event| event["type"] == "task:complete").unwrap()["seq"].as_u64().unwrap();
    let states = |before: u64| {
        let page = page(&format!("?before={before}"));
        let titles = page.split("<title>").skip(2).filter_map(|rest| rest.split('<').next());
        (titles.map(str::to_owned).collect::<Vec<_>>(), page.contains("data-live=\"/v1"))
    };
    let shown = |first: &str, bad: &str| {
        (vec![format!("first: control.noop, {first}"), format!("bad: control.fail, {bad}")], false)
    };
    assert_eq!(states(0), shown("pending", "pending"));
    assert_eq!(states(complete), shown("running", "pending"));
    assert_eq!(states(complete + 1), shown("succeeded", "pending"));
    assert_eq!(states(events.len() as u64), shown("succeeded", "failed"));
    assert_eq!(states(u64::MAX), shown("succeeded", "failed"), "later than the last event");
    let moment = page(&format!("?before={}", complete + 1));
    assert!(
        moment.contains(&format!("As it was after event {complete} of")) && moment.contains("task:complete"),
        "{moment}"
    );
    let tasks = page(&format!("/list?before={complete}"));
    assert!(tasks.contains("running") && !tasks.contains("/tasks/bad\"><"), "{tasks}");
    assert!(!page("?before=x").contains("As it was"));
}

#[test]
fn versions_of_a_flow_are_compared_line_by_line() {
    let served = local();
    let flow = |text: &str| {
        format!("flow: {{ name: doc }}\nnodes:\n- {{ id: say, type: control.noop, input: {{ value: {text} }} }}\n")
    };
    for text in ["one", "\"<two>\""] {
        let stored = served.post("/v1/flows", &json!({ "flow": flow(text) }));
        assert_eq!(stored.status, 201, "{stored:?}");
    }
    let page = served.get("/console/flows/doc").body;
    assert!(page.contains("/console/flows/doc/diff?from=1&amp;to=2"), "{page}");
    let diff = served.get("/console/flows/doc/diff?from=1&to=2").body;
    assert!(diff.contains("1 line added, 1 line removed") && diff.contains("&lt;two&gt;"), "{diff}");
    assert!(served.get("/console/flows/doc/diff?from=2&to=2").body.contains("The texts are equal"));
    assert_eq!(served.get("/console/flows/doc/diff?from=7&to=2").status, 404);
}

#[test]
fn a_new_token_is_shown_once_and_has_at_most_the_scopes_of_its_maker() {
    let served = with_tenants();
    let admin = cookie_of(&served, "a", &["admin", "flow:read", "run:read"]);
    let with = |cookie: &str| crate::client::ask(served.address, "GET", "/console/tokens", &[("Cookie", cookie)], "");
    let page = with(&admin).body;
    assert!(page.contains(r#"value="flow:read""#) && !page.contains(r#"value="secret:write""#), "{page}");
    assert!(page.contains("does not end with yours"), "{page}");
    let headers = [OWN, ("Cookie", &*admin)];
    let made = post(
        &served,
        "/console/tokens",
        &headers,
        "name=ci&scope=flow:read&scope=run:read&note=%3Cb%3E&lasts=86400000",
    );
    assert_eq!(made.status, 201, "{made:?}");
    let token = made.body.split("fct_").nth(1).unwrap().split('<').next().unwrap().to_owned();
    assert!(made.body.contains("&lt;b&gt;") && !made.body.contains("<b>"));
    let bearer = format!("Bearer fct_{token}");
    let me = crate::client::ask(served.address, "GET", "/v1/me", &[("Authorization", &bearer)], "").json();
    assert_eq!((&me["tenant"], &me["scopes"]), (&json!("a"), &json!(["flow:read", "run:read"])));
    let list = with(&admin).body;
    assert!(list.contains("ci") && !list.contains(token.split('_').nth(1).unwrap()), "the secret is shown once");
    let beyond = post(&served, "/console/tokens", &headers, "scope=secret:write&lasts=1000");
    assert_eq!(beyond.status, 403, "{beyond:?}");
    let id = token.split('_').next().unwrap();
    let revoked = post(&served, &format!("/console/tokens/{id}/revoke"), &headers, "");
    assert_eq!(revoked.header("location"), Some("/console/tokens"));
    let gone = crate::client::ask(served.address, "GET", "/v1/me", &[("Authorization", &bearer)], "");
    assert_eq!(gone.status, 401);
    let audit = crate::client::ask(served.address, "GET", "/console/audit", &[("Cookie", &admin)], "").body;
    assert!(audit.contains("token.create") && audit.contains("token.revoke"), "{audit}");
    assert!(audit.contains(&format!("{id} flow:read,run:read")), "{audit}");
    let other = cookie_of(&served, "b", &["flow:read"]);
    assert_eq!(with(&other).status, 403, "the page needs the scope");
}

#[test]
fn triggers_are_fired_and_disabled_and_files_removed() {
    let served = local();
    store(
        &served,
        &json!({
            "flow": { "name": "timed", "triggers": [{ "id": "nightly", "cron": "0 3 1 1 *" }] },
            "nodes": [{ "id": "a", "type": "control.noop" }],
        }),
    );
    let fired = post(&served, "/console/triggers/timed/nightly/fire", &[OWN], "");
    let runs = fired.header("location").unwrap().to_owned();
    assert_eq!(runs, "/console/runs?flow=timed&trigger=nightly");
    assert!((0..4_000).any(|_| served.get(&runs).body.contains("succeeded")), "{:?}", served.get(&runs));
    assert_eq!(post(&served, "/console/triggers/timed/nightly/disable", &[OWN], "").status, 303);
    assert!(served.get("/console/triggers").body.contains("trigger enable timed nightly"));
    assert_eq!(post(&served, "/console/triggers/timed/nightly/explode", &[OWN], "").status, 404);
    let octets = [("Content-Type", "application/octet-stream")];
    let stored = crate::client::ask(served.address, "POST", "/v1/files?name=%3Cimg%3E.txt", &octets, "hello");
    let id = stored.json()["fileId"].as_str().unwrap().to_owned();
    assert!(served.get("/console/files").body.contains("&lt;img&gt;.txt"));
    assert_eq!(post(&served, &format!("/console/files/{id}/remove"), &[OWN], "").status, 303);
    assert!(served.get("/console/files").body.contains("No file is stored"));
}

/// Returns the hidden ids of the forms of a page that begin something.
fn ids_of_forms(page: &str) -> Vec<&str> {
    let parts = page.split(r#"name="once" value=""#).skip(1);
    parts.map(|rest| rest.split('"').next().unwrap()).collect()
}

#[test]
fn a_form_that_is_sent_twice_begins_one_run_or_job() {
    let served = local();
    let mut flow = failing();
    flow["flow"]["triggers"] = json!([{ "id": "nightly", "cron": "0 3 1 1 *" }]);
    store(&served, &flow);
    let run = start(&served, "fails", &json!({ "number": 1 }));
    let runs = || served.get("/v1/runs?limit=100").json()["runs"].as_array().unwrap().len();
    // A form, its page, its action, its other members, and the number of runs that a second form adds.
    let task = format!("/console/runs/{run}/tasks/bad");
    let retry = format!("/console/runs/{run}/retry");
    let whole = format!("/console/runs/{run}");
    let input = format!("input={}", encoded(r#"{"number":2}"#));
    for (page, action, members) in [
        (&*whole, &*retry, ""),
        (&task, &retry, "from=bad"),
        ("/console/flows/fails/start", "/console/flows/fails/start", &*input),
    ] {
        let id = ids_of_forms(&served.get(page).body)[0].to_owned();
        let send = |id: &str, members: &str| {
            let sent = post(&served, action, &[OWN], &format!("once={}&{members}", encoded(id)));
            assert_eq!(sent.status, 303, "{page}: {sent:?}");
            sent.header("location").unwrap().to_owned()
        };
        let before = runs();
        let first = send(&id, members);
        assert_eq!((send(&id, members), runs()), (first.clone(), before + 1), "{page}");
        // The page that is opened again has another form.
        let new = ids_of_forms(&served.get(page).body)[0].to_owned();
        assert_ne!(send(&new, members), first, "{page}");
        // A form without an id, as of an older page, begins a run each time.
        assert_ne!(post(&served, action, &[OWN], members).header("location"), Some(&*first), "{page}");
        assert_eq!(runs(), before + 3, "{page}");
    }
    // The plan of a retry in another version has a form of its own.
    let plan = post(&served, &retry, &[OWN], "version=latest").body;
    let members = format!("once={}&version=1&sure=yes", encoded(ids_of_forms(&plan)[0]));
    let before = runs();
    let first = post(&served, &retry, &[OWN], &members).header("location").unwrap().to_owned();
    assert_eq!(post(&served, &retry, &[OWN], &members).header("location"), Some(&*first));
    // Another content of the same form is another run, and no error.
    let other = post(&served, &retry, &[OWN], &format!("{members}&from=bad"));
    assert!(other.status == 303 && other.header("location") != Some(&*first), "{other:?}");
    assert_eq!(runs(), before + 2);
    // A job.
    let preview = served.get("/console/jobs/new?status=failed&action=retry").body;
    let job = encoded(&hidden(&preview, "job"));
    let members = format!("once={}&job={job}", encoded(ids_of_forms(&preview)[0]));
    let first = post(&served, "/console/jobs", &[OWN], &members).header("location").unwrap().to_owned();
    assert_eq!(post(&served, "/console/jobs", &[OWN], &members).header("location"), Some(&*first));
    assert_eq!(served.get("/v1/jobs").json()["jobs"].as_array().unwrap().len(), 1);
    // A trigger: the first form of its row fires it.
    let id = ids_of_forms(&served.get("/console/triggers").body)[0].to_owned();
    let fire = |id: &str| {
        let sent = post(&served, "/console/triggers/fails/nightly/fire", &[OWN], &format!("once={}", encoded(id)));
        assert_eq!(sent.status, 303, "{sent:?}");
    };
    // A server starts the runs in the order of the requests.
    let fired_before = |key: &str| {
        let headers = [("Idempotency-Key", key)];
        let asked = crate::client::ask(served.address, "POST", "/v1/triggers/fails/nightly/fire", &headers, "");
        let path = format!("/v1/runs/{}", asked.json()["runId"].as_str().unwrap());
        assert!((0..20_000).any(|_| served.get(&path).status == 200), "{asked:?}");
        (path, served.get("/v1/runs?trigger=nightly").json()["runs"].as_array().unwrap().len())
    };
    [&*id, &*id].into_iter().for_each(fire);
    let (run, number) = fired_before("k");
    assert_eq!(number, 2);
    // The keys still count when the runs have begun.
    fire(&id);
    assert_eq!(fired_before("k"), (run, 2));
    assert_eq!(fired_before("k2").1, 3);
}

#[test]
fn a_large_reply_of_a_call_is_shown_in_part_with_the_place_of_all_of_it() {
    let body = json!({ "big": "x".repeat(10_000) }).to_string();
    let endpoint = Server::start(move |_, _| answer("200 OK", &[("content-type", "application/json")], &body));
    let range = endpoint.address.to_string().parse().unwrap();
    let served = built(|builder| builder.allow_private([range]), |_| Arc::new(Local));
    let origin = endpoint.origin();
    let get =
        json!({ "id": "get", "type": "http.request", "input": { "url": origin }, "grants": { "http": [origin] } });
    let flow = json!({ "flow": { "name": "gets" }, "nodes": [get] });
    let ran = served.post("/v1/runs?wait=true", &json!({ "flow": flow, "runId": "r" }));
    assert_eq!(ran.json()["status"], "succeeded", "{ran:?}");
    let page = served.get("/console/runs/r/tasks/get").body;
    let path = "/v1/runs/r/tasks/get?from=0&amp;limit=1&amp;call=1";
    assert!(page.contains("Shown in part: 1000 bytes of ") && page.contains(&format!(r#"href="{path}""#)), "{page}");
    let call = |path: &str| served.get(path).json()["attempts"][0]["calls"][0].clone();
    let whole = call(&path.replace("&amp;", "&"));
    assert!(whole["reply"].to_string().contains(&"x".repeat(10_000)) && whole["replyCut"].is_null(), "{whole}");
    let cut = call("/v1/runs/r/tasks/get?call=2");
    assert!(cut["reply"].is_null() && cut["replyCut"]["bytes"].as_u64() > Some(10_000), "{cut}");
    assert_eq!(served.get("/v1/runs/r/tasks/get?call=x").status, 400);
}
