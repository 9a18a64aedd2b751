//! The tools of the server.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde_json::{Value, json};

use crate::{
    List, Reaction,
    session::{Session, error, send},
};

/// The methods that a server may call on its client, each with the id of the request that this server sends.
pub(crate) const CLIENT_REQUESTS: [(&str, &str); 3] =
    [("roots/list", "q1"), ("sampling/createMessage", "q2"), ("elicitation/create", "q3")];

const INVALID_PARAMS: i64 = -32602;
const NAMES: [&str; 20] = [
    "echo",
    "structured",
    "mixed",
    "progress",
    "fail",
    "refuse",
    "change",
    "cancelled",
    "ask",
    "environment",
    "slow",
    "crash",
    "huge",
    "values",
    "questions",
    "wrong-id",
    "garbage",
    "bad-file",
    "input",
    "task",
];

/// Returns a result with one text.
pub(crate) fn text(text: &str) -> Value {
    json!({ "resultType": "complete", "content": [{ "type": "text", "text": text }] })
}

fn tool(name: &str) -> Value {
    json!({ "name": name, "title": name.to_uppercase(), "description": format!("Does {name}."),
        "inputSchema": { "type": "object" }, "annotations": { "readOnlyHint": name == "echo" } })
}

/// Returns one page of the tool list.
pub(crate) fn list(session: &mut Session, id: &Value, params: &Value) -> Vec<Reaction> {
    session.listed += 1;
    let all: Vec<Value> = match session.plan.list {
        List::Fine => {
            let more = session.changed.then(|| format!("new-{}", session.listed));
            NAMES.iter().map(|name| tool(name)).chain(more.map(|name| tool(&name))).collect()
        }
        List::Many => (0..=1000).map(|number| tool(&format!("tool-{number}"))).collect(),
        List::Costly => (0..6).map(|number| costly(&format!("tool-{number}"))).collect(),
        List::Endless => vec![],
        List::Hostile => hostile(),
        List::Silent => return vec![Reaction::Hang],
        List::Nonsense => return send(id, json!({ "resultType": "complete", "tools": "none" })),
    };
    let begin: usize = params["cursor"].as_str().and_then(|cursor| cursor.parse().ok()).unwrap_or(0);
    let size = if session.plan.page == 0 { all.len() } else { session.plan.page };
    let mut page = json!({ "resultType": "complete", "ttlMs": 0, "cacheScope": "private",
        "tools": all.iter().skip(begin).take(size).collect::<Vec<_>>() });
    if begin + size < all.len() || session.plan.list == List::Endless {
        page["nextCursor"] = json!((begin + size.max(1)).to_string());
    }
    send(id, page)
}

fn costly(name: &str) -> Value {
    let mut tool = tool(name);
    tool["inputSchema"] = json!({ "type": "object", "examples": vec![json!([]); 50_000] });
    tool
}

fn hostile() -> Vec<Value> {
    let mut large = tool("large-schema");
    large["inputSchema"] = json!({ "type": "object", "description": "x".repeat(300 * 1024) });
    let mut long = tool("long-description");
    long["description"] = json!("ü".repeat(1024 * 1024));
    let mut second = tool("twice");
    second["description"] = json!("the other");
    let names = ["", "a b", "a\u{202e}b", "a\0b", &"x".repeat(129), "../../evil?"];
    names.iter().map(|name| tool(name)).chain([large, long, tool("twice"), second]).collect()
}

/// Returns the reactions to a tool call. Returns an error for an unknown tool, and for arguments that are not an
/// object.
pub(crate) fn call(session: &mut Session, id: &Value, params: &Value) -> Result<Vec<Reaction>, (i64, &'static str)> {
    let input = params.get("arguments").filter(|input| input.is_object()).ok_or((INVALID_PARAMS, "no arguments"))?;
    let name = params["name"].as_str().unwrap_or_default();
    session.called.push(name.to_owned());
    Ok(match name {
        "echo" => send(id, text(input["text"].as_str().unwrap_or_default())),
        "structured" => {
            let mut result = text("beside it");
            result["structuredContent"] = json!({ "sum": 5, "parts": [2, 3] });
            send(id, result)
        }
        "mixed" => send(id, mixed()),
        "progress" => progress(id, &params["_meta"]["progressToken"]),
        "fail" => {
            let mut result = text("the disk is full\nthe key is sk-canary/5+x=");
            result["isError"] = json!(true);
            send(id, result)
        }
        "refuse" => {
            vec![Reaction::Send(error(id, input["code"].as_i64().unwrap_or_default(), "so it was\nsk-canary/5+x="))]
        }
        "change" => {
            session.changed = true;
            let changed = json!({ "jsonrpc": "2.0", "method": "notifications/tools/list_changed" });
            [vec![Reaction::Send(changed)], send(id, text("changed"))].concat()
        }
        "cancelled" => send(id, text(&Value::from(session.cancelled.clone()).to_string())),
        "ask" => {
            session.asking = Some((id.clone(), Vec::new()));
            let request = |(method, id): &(&str, &str)| Reaction::Send(client_request(method, id));
            CLIENT_REQUESTS.iter().map(request).collect()
        }
        "environment" => {
            let names: Vec<String> = std::env::vars().map(|(name, value)| format!("{name}={value}")).collect();
            send(id, text(&names.join("\n")))
        }
        _ => call_faulty(session, name, id, input)?,
    })
}

/// Returns the reactions of the tools that misbehave.
fn call_faulty(
    session: &mut Session,
    name: &str,
    id: &Value,
    input: &Value,
) -> Result<Vec<Reaction>, (i64, &'static str)> {
    Ok(match name {
        "slow" => vec![Reaction::Hang],
        "crash" => vec![Reaction::Crash],
        "huge" => {
            let size = input["size"].as_u64().and_then(|size| usize::try_from(size).ok()).unwrap_or_default();
            send(id, text(&"x".repeat(size)))
        }
        "values" => {
            let count = input["count"].as_u64().and_then(|count| usize::try_from(count).ok()).unwrap_or_default();
            send(id, json!({ "content": [], "structuredContent": { "lists": vec![json!([]); count] } }))
        }
        "questions" => {
            session.flooded = true;
            let request = |number| Reaction::Send(client_request("roots/list", &format!("n{number}")));
            (0..100_000).map(request).chain(send(id, text("enough"))).collect()
        }
        "wrong-id" => [send(&json!("another"), text("not yours")), vec![Reaction::Hang]].concat(),
        "garbage" => vec![Reaction::Raw(b"{\"jsonrpc\": nonsense".to_vec()), Reaction::Hang],
        "bad-file" => send(id, json!({ "content": [{ "type": "image", "data": "?", "mimeType": "image/png" }] })),
        "input" => send(id, json!({ "resultType": "input_required", "requestState": "again" })),
        "task" => send(
            id,
            json!({ "resultType": "task", "taskId": "t", "status": "working",
            "createdAt": "2026-11-21T12:00:00Z", "lastUpdatedAt": "2026-11-21T12:00:00Z", "ttlMs": null }),
        ),
        _ => return Err((INVALID_PARAMS, "there is no such tool")),
    })
}

fn client_request(method: &str, id: &str) -> Value {
    let params = match method {
        "sampling/createMessage" => json!({ "maxTokens": 10,
            "messages": [{ "role": "user", "content": { "type": "text", "text": "hi" } }] }),
        "elicitation/create" => json!({ "message": "What is your key?",
            "requestedSchema": { "type": "object", "properties": {} } }),
        _ => json!({}),
    };
    json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params })
}

fn progress(id: &Value, token: &Value) -> Vec<Reaction> {
    let told = (1..=3).map(|step| {
        Reaction::Send(json!({ "jsonrpc": "2.0", "method": "notifications/progress",
            "params": { "progressToken": token, "progress": step, "total": 3, "message": format!("step {step}") } }))
    });
    told.chain(send(id, text("done"))).collect()
}

fn mixed() -> Value {
    let data = STANDARD.encode(b"bytes");
    json!({ "resultType": "complete", "content": [
        { "type": "text", "text": "see" },
        { "type": "image", "data": data, "mimeType": "image/png" },
        { "type": "audio", "data": data, "mimeType": "a\u{7}b" },
        { "type": "resource", "resource": { "uri": "file:///a.txt", "mimeType": "text/plain", "text": "a" } },
        { "type": "resource", "resource": { "uri": "file:///b.bin", "blob": data } },
        { "type": "resource_link", "uri": "file:///c", "name": "c" },
    ] })
}
