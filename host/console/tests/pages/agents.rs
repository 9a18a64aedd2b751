//! The pages of agents: their conversations, the forms to talk with them, and hostile texts of models.

use std::{collections::BTreeSet, path::Path, sync::Arc};

use flowcell_platform::{Host, Providers};
use flowcell_server::identity::{Identify, Local};
use serde_json::{Value, json};

use crate::{
    OWN, built,
    client::{Served, ask},
    cookie_of, local, post, store, tenants,
};

/// Starts a server whose model follows a script.
fn scripted(script: &Value, identity: impl FnOnce(&Host) -> Arc<dyn Identify>) -> Served {
    let profile = json!({ "dialect": "simulated", "model": "m", "script": script });
    let providers = json!({ "default": "one", "profiles": { "one": profile } });
    let providers = Providers::parse(&providers.to_string(), Path::new("")).unwrap();
    built(|builder| builder.providers(providers), identity)
}

fn no_tenants(_: &Host) -> Arc<dyn Identify> {
    Arc::new(Local)
}

/// A flow with an agent that listens, and asks before it calls `data.set`.
fn assistant(prompt: &str) -> Value {
    let permissions = json!({ "default": "ask", "rules": [{ "tool": "data.merge", "action": "allow" }] });
    json!({
        "flow": { "name": "assistant" },
        "nodes": [{ "id": "bot", "type": "agent.run", "input": { "prompt": prompt, "tools": ["data.set", "data.merge"] },
            "config": { "inbox": { "capacity": 8 }, "permissions": permissions },
            "grants": { "model": ["*"], "tools": ["data.*"] } }],
    })
}

/// The script of a model that asks for a tool, answers, and answers a message.
fn counting() -> Value {
    json!([
        { "match": "Count", "text": "I **look**.", "toolCalls": [
            { "name": "data_set", "input": { "object": {}, "path": "parcels", "value": 3 } },
            { "name": "data_merge", "input": { "objects": [{ "merged": true }] } },
        ] },
        { "match": "Count", "text": "There are 3 parcels." },
        { "match": "boxes", "text": "There is 1 box." },
    ])
}

/// Starts the run `r`, and returns the path of the page of its agent when the run is parked.
fn begin(served: &Served, flow: &Value) -> String {
    store(served, flow);
    let parked = served.post("/v1/runs?wait=true", &json!({ "flow": "assistant", "runId": "r" }));
    assert_eq!((parked.status, &parked.json()["status"]), (201, &json!("parked")), "{parked:?}");
    format!("/console/runs/r/agents/{}", only_agent(served)["agentRunId"].as_str().unwrap())
}

fn only_agent(served: &Served) -> Value {
    served.get("/v1/runs/r/agents").json()["agents"][0].clone()
}

/// Reads a page until it has a text.
fn wait_for(served: &Served, path: &str, text: &str) -> String {
    let page = (0..4_000).map(|_| served.get(path).body).find(|page| page.contains(text));
    page.unwrap_or_else(|| panic!("{path} never has {text}: {}", served.get(path).body))
}

#[test]
fn a_person_allows_a_tool_talks_with_an_agent_and_closes_it_by_forms() {
    let served = scripted(&counting(), no_tenants);
    let path = begin(&served, &assistant("Count the parcels."));
    let page = served.get(&path).body;
    assert!(page.contains(r#"<a href="/console/runs/r/agents" aria-current="true">Agents</a>"#), "{page}");
    for part in
        ["Count the parcels.", "I <strong>look</strong>.", "<code>data.set</code>", "asking", "merged", "about "]
    {
        assert!(page.contains(part), "the page lacks {part}: {page}");
    }
    let agent = path.rsplit('/').next().unwrap();
    for command in [format!("flowcell send r 'TEXT' --to {agent}"), format!("flowcell send r --to {agent} --close")] {
        assert!(page.contains(&command), "the page lacks {command}: {page}");
    }
    // The question is in place, and not in the head of the page, too.
    assert_eq!(page.matches(r#"<form class="answer""#).count(), 1, "{page}");
    assert!(served.get("/console/runs/r").body.contains(&format!(r#"<a href="{path}">Write to it</a>"#)));
    let list = served.get("/console/runs/r/agents").body;
    assert!(list.contains(&format!(r#"href="{path}""#)) && list.contains("asking"), "{list}");

    let digest = page.split_once(r#"name="digest" value=""#).unwrap().1.split('"').next().unwrap();
    let back = path.replace('/', "%2F");
    let answer = format!("choice=allow&digest={digest}&attempt=1&back={back}");
    let sent = post(&served, "/console/runs/r/gates/bot%233", &[OWN], &answer);
    assert_eq!((sent.status, sent.header("location")), (303, Some(&*format!("{path}#write"))), "{sent:?}");
    let answered = wait_for(&served, &path, "There are 3 parcels.");
    assert!(answered.contains("a person allowed it") && answered.contains("parcels&quot;:3"), "{answered}");
    assert!(!answered.contains(r#"class="answer""#), "{answered}");

    let empty = post(&served, &format!("{path}/send"), &[OWN], "text=+%0A");
    assert!(empty.status == 400 && empty.body.contains("it is empty"), "{empty:?}");
    wait_for(&served, &path, "listening");
    for _ in 0..2 {
        let sent = post(&served, &format!("{path}/send"), &[OWN], "text=and+boxes%3F&message=m1");
        assert_eq!((sent.status, sent.header("location")), (303, Some(&*format!("{path}#write"))), "{sent:?}");
    }
    let talked = wait_for(&served, &path, "There is 1 box.");
    assert!(talked.contains("and boxes?") && talked.contains("Message <span class=\"faint\">read"), "{talked}");
    assert_eq!(only_agent(&served)["messages"], 1, "a message that a browser sends twice counts once");
    let other = post(&served, &format!("{path}/send"), &[OWN], "text=and+bags%3F&message=m1");
    assert_eq!(other.status, 303, "{other:?}");
    wait_for(&served, &path, "simulated reply to: and bags?");
    assert_eq!(only_agent(&served)["messages"], 2, "another text is another message, also after a step back");

    let closed = post(&served, &format!("{path}/close"), &[OWN], "");
    assert_eq!((closed.status, closed.header("location")), (303, Some(&*path)), "{closed:?}");
    let ended = wait_for(&served, &path, "The agent has ended.");
    assert!(ended.contains("ended: closed") && !ended.contains("/send\""), "{ended}");
    let late = post(&served, &format!("{path}/send"), &[OWN], "text=late");
    assert!(late.status == 409, "{late:?}");
}

#[test]
fn a_run_with_many_agents_lists_them_by_page() {
    let served = scripted(&json!([]), no_tenants);
    store(
        &served,
        &json!({ "flow": { "name": "many", "outputs": {} }, "nodes": [
            { "id": "each", "type": "control.foreach", "input": { "list": "{{ range(103) }}" }, "body": ["bot"] },
            { "id": "bot", "type": "agent.run", "input": { "prompt": "Hello" }, "grants": { "model": ["*"] } },
        ] }),
    );
    let ended = served.post("/v1/runs?wait=true", &json!({ "flow": "many", "runId": "m" })).json();
    assert_eq!(ended["status"], "succeeded", "{ended}");
    let rows = |page: &str| page.matches("/console/runs/m/agents/").count();
    let first = served.get("/console/runs/m/agents").body;
    assert!(rows(&first) == 100 && first.contains(r#"rel="next" href="/console/runs/m/agents?from=100""#), "{first}");
    assert!(!first.contains(r#"rel="prev""#), "{first}");
    let second = served.get("/console/runs/m/agents?from=100").body;
    assert!(rows(&second) == 3 && second.contains(r#"rel="prev" href="/console/runs/m/agents?from=0""#), "{second}");
    assert!(!second.contains(r#"rel="next""#), "{second}");
    assert!(served.get("/console/runs/m/agents?from=103").body.contains("No agents follow."));
    let page = served.get("/v1/runs/m/agents?from=101&limit=1").json();
    assert_eq!((page["agents"].as_array().map(Vec::len), &page["next"]), (Some(1), &json!(102)), "{page}");
    for wrong in ["limit=0", "limit=501", "from=-1", "x=1"] {
        assert_eq!(served.get(&format!("/v1/runs/m/agents?{wrong}")).status, 400, "{wrong}");
    }
    let all = served.get("/v1/runs/m/agents").json();
    assert_eq!((all["agents"].as_array().map(Vec::len), &all["next"]), (Some(103), &Value::Null));
}

#[test]
fn hostile_texts_of_models_are_shown_as_text_and_cut() {
    let hostile = "<img src=x onerror=alert(1)> [click](javascript:alert(2)) ![pixel](https://evil.test/x.png) \u{202e}txt\u{1b}[31m \
        <script>alert(3)</script> <javascript:alert(4)> [site](https://example.com)\n\n# Title\n\n| a |\n|--:|\n| b |\n";
    let large = format!("{}{hostile}", "A".repeat(1 << 20));
    let script = json!([
        { "match": "Begin", "text": hostile, "toolCalls": [
            { "name": "<img src=x>", "input": { hostile: hostile } },
            { "name": "data_merge", "input": { "objects": [{ "text": hostile }] } },
        ] },
        { "match": "Begin", "text": large },
    ]);
    let served = scripted(&script, no_tenants);
    let path = begin(&served, &assistant(&format!("Begin {hostile}")));
    let to = format!("{}/send", path.replace("/console/", "/v1/"));
    let told = served.post(&to, &json!({ "content": hostile }));
    assert_eq!(told.status, 200, "{told:?}");
    for page in [
        path.as_str(),
        "/console/runs/r/agents",
        "/console/runs/r",
        "/console/runs/r/events",
        &format!("{path}?before=1"),
    ] {
        let body = served.get(page).body;
        assert!(body.starts_with("<!DOCTYPE html>"), "{page}: {body}");
        for bad in ["<img", "<script>", "href=\"javascript:", "href=\"JAVASCRIPT:", "\u{202e}", "\u{1b}", "style="] {
            assert!(!body.contains(bad), "{page} contains {bad:?}: {body}");
        }
        assert_eq!((body.matches("<h1>").count(), body.matches("<script").count()), (1, 1), "{page}");
        let ids: Vec<_> = body.split(" id=\"").skip(1).filter_map(|rest| rest.split('"').next()).collect();
        assert_eq!(ids.len(), ids.iter().collect::<BTreeSet<_>>().len(), "{page} has an id twice: {ids:?}");
        assert!(body.len() < 200_000, "{page} has {} bytes", body.len());
    }
    let page = served.get(&path).body;
    for part in [
        "&lt;img src=x onerror=alert(1)&gt;",
        r"\u{202e}txt\u{1b}[31m",
        r#"<a href="https://example.com">site</a> (https://example.com)"#,
        "[image: pixel] (https://evil.test/x.png)",
        "<p><strong>Title</strong></p>",
        "<code>&lt;img src=x&gt;</code>",
        "not called",
        "of 1.0 MiB",
        "/v1/runs/r/events?from=",
    ] {
        assert!(page.contains(part), "the page lacks {part}: {page}");
    }
}

#[test]
fn a_token_without_scopes_sees_a_conversation_without_forms() {
    let served = scripted(&counting(), tenants);
    let all = cookie_of(&served, "a", &["run:create", "run:read", "run:control", "gate:decide", "flow:read"]);
    let headers = [("Cookie", all.as_str()), OWN];
    let start = json!({ "flow": assistant("Count"), "runId": "r" }).to_string();
    assert_eq!(ask(served.address, "POST", "/v1/runs?wait=true", &headers, &start).status, 201);
    let get = |cookie: &str, path: &str| ask(served.address, "GET", path, &[("Cookie", cookie), OWN], "");
    let agent = get(&all, "/v1/runs/r/agents").json()["agents"][0]["agentRunId"].as_str().unwrap().to_owned();
    let path = format!("/console/runs/r/agents/{agent}");
    let own = get(&all, &path).body;
    assert!(own.contains(r#"class="answer""#) && own.contains(&format!("{path}/send")), "{own}");
    assert!(own.contains(&format!("flowcell send r 'TEXT' --to {agent} --tenant a")), "{own}");
    let reader = cookie_of(&served, "a", &["run:read"]);
    let read = get(&reader, &path).body;
    assert!(read.contains("I <strong>look</strong>.") && !read.contains(r#"class="answer""#), "{read}");
    assert!(!read.contains("/send\"") && !read.contains("/close\""), "{read}");
    assert!(read.contains("<code>run:control</code>") && read.contains("<code>gate:decide</code>"), "{read}");
    for verb in ["send", "close"] {
        let refused = post(&served, &format!("{path}/{verb}"), &[("Cookie", &reader), OWN], "text=x");
        assert!(refused.status == 403 && refused.body.contains("run:control"), "{refused:?}");
    }
    let other = cookie_of(&served, "b", &["run:read"]);
    assert_eq!((get(&other, &path).status, get(&other, "/console/runs/r/agents").status), (404, 404));
}

#[test]
fn a_run_without_agents_has_no_tab_and_an_empty_page_teaches() {
    let served = local();
    let gate = json!({ "id": "ok", "type": "control.gate", "input": { "prompt": "Go on?" } });
    store(&served, &json!({ "flow": { "name": "asks" }, "nodes": [gate] }));
    let mut flow = assistant("Count");
    flow["nodes"].as_array_mut().unwrap().push(gate);
    flow["edges"] = json!([{ "from": "ok", "to": "bot" }]);
    store(&served, &flow);
    for (name, run) in [("asks", "plain"), ("assistant", "later")] {
        let started = served.post("/v1/runs?wait=true", &json!({ "flow": name, "runId": run }));
        assert_eq!(started.status, 201, "{started:?}");
    }
    let tab = |run: &str| served.get(&format!("/console/runs/{run}")).body.contains(">Agents</a>");
    assert_eq!((tab("plain"), tab("later")), (false, true));
    let page = |run: &str| served.get(&format!("/console/runs/{run}/agents")).body;
    assert!(page("plain").contains("has no agents") && page("plain").contains("/console/manual/first-agent"));
    assert!(page("later").contains("No agent has begun.") && page("later").contains("/console/manual/agents"));
    assert_eq!(served.get("/console/runs/later/agents/%3Cimg%3E").status, 404);
}
