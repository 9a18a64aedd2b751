//! Checks the replies that people record for calls. An invalid reply would fail the run, and a retry would repeat the
//! call.

use flowcell_contract::{BuiltIn, Json, Value};

/// Checks the reply that a person records for a call. Capabilities other than HTTP, tools and models accept any JSON.
pub(super) fn check(interface: &str, function: &str, reply: &Json) -> Result<(), String> {
    let (form, checked) = match BuiltIn::named(interface) {
        Some(BuiltIn::Http) => (
            r#"{ "status": 200, "headers": [["content-type", "application/json"]], "body": { "text": "…" } }"#,
            check_http(reply),
        ),
        Some(BuiltIn::Tools) => (r#"{ "output": … }, with the output of the tool"#, check_tool(reply)),
        Some(BuiltIn::Model) => {
            (r#"{ "content": [{ "type": "text", "text": "…" }], "stop": "end" }"#, check_model(reply))
        }
        _ => return Ok(()),
    };
    checked.map_err(|why| format!("{why}; write the reply of `{interface}.{function}` as {form}"))
}

fn check_http(reply: &Json) -> Result<(), String> {
    check_members(reply, "a reply", &["status", "headers", "body"])?;
    let status = reply.get("status").and_then(Json::as_u64);
    if !status.is_some_and(|status| (100..1_000).contains(&status)) {
        return Err("`status` must be a number from 100 to 999".to_owned());
    }
    let is_pair = |pair: &Json| matches!(pair.as_array(), Some([Json::String(_), Json::String(_)]));
    let headers = reply.get("headers").filter(|headers| !headers.is_null());
    if !headers.is_none_or(|headers| headers.as_array().is_some_and(|pairs| pairs.iter().all(is_pair))) {
        return Err("`headers` must be a list of `[name, value]` pairs".to_owned());
    }
    let Some(body) = reply.get("body").filter(|body| !body.is_null()) else { return Ok(()) };
    check_members(body, "`body`", &["text", "file"])?;
    match (body.get("text"), body.get("file")) {
        (Some(Json::String(_)), None) => Ok(()),
        (None, Some(file)) if Value::from(file.clone()).blob().is_some() => Ok(()),
        _ => Err("`body` must have either `text` (a text) or `file` (a file value)".to_owned()),
    }
}

fn check_tool(reply: &Json) -> Result<(), String> {
    check_members(reply, "a reply", &["output"])?;
    reply.get("output").map(|_| ()).ok_or_else(|| "the reply has no `output`".to_owned())
}

fn check_model(reply: &Json) -> Result<(), String> {
    let is_block = |block: &Json| block.get("type").and_then(Json::as_str).is_some();
    let content = reply.get("content").and_then(Json::as_array);
    if !content.is_some_and(|blocks| blocks.iter().all(is_block)) {
        return Err("`content` must be a list of objects with a `type`".to_owned());
    }
    match reply.get("stop").and_then(Json::as_str) {
        Some(stop) if STOP_VALUES.contains(&stop) => Ok(()),
        _ => Err(format!("`stop` must be one of {}", STOP_VALUES.join(", "))),
    }
}

/// The values of `stop` in a reply of a model.
const STOP_VALUES: [&str; 8] =
    ["end", "tool_calls", "max_tokens", "stop_sequence", "refusal", "content_filter", "context_exceeded", "paused"];

fn check_members(value: &Json, what: &str, known: &[&str]) -> Result<(), String> {
    let members = value.as_object().ok_or_else(|| format!("{what} must be an object, not {}", value.type_name()))?;
    match members.keys().find(|key| !known.contains(&&***key)) {
        Some(key) => Err(format!("{what} has no member `{key}`")),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

    use super::*;

    #[test]
    fn replies_must_match_their_capability() {
        for (interface, reply, problem) in [
            ("http", r#"{"status":201}"#, None),
            ("http", r#"{"status":200,"headers":[["a","b"]],"body":{"text":""}}"#, None),
            ("http", r#"{"status":200,"headers":null,"body":{"file":{"kind":"file","fileId":"ab"}}}"#, None),
            ("http", r#"{"status":200,"json":{"id":9}}"#, Some("a reply has no member `json`")),
            ("http", r#"{"status":20}"#, Some("`status` must be a number from 100 to 999")),
            ("http", r#"{"status":"200"}"#, Some("`status` must be a number from 100 to 999")),
            ("http", r#"{}"#, Some("`status` must be a number from 100 to 999")),
            ("http", r#""done""#, Some("a reply must be an object, not a text")),
            (
                "http",
                r#"{"status":200,"headers":{"a":"b"}}"#,
                Some("`headers` must be a list of `[name, value]` pairs"),
            ),
            ("http", r#"{"status":200,"headers":[["a"]]}"#, Some("`headers` must be a list of `[name, value]` pairs")),
            ("http", r#"{"status":200,"body":"{}"}"#, Some("`body` must be an object, not a text")),
            ("http", r#"{"status":200,"body":{"json":{}}}"#, Some("`body` has no member `json`")),
            ("http", r#"{"status":200,"body":{}}"#, Some("`body` must have either `text`")),
            ("http", r#"{"status":200,"body":{"text":{"id":9}}}"#, Some("`body` must have either `text`")),
            ("http", r#"{"status":200,"body":{"file":"a.png"}}"#, Some("`body` must have either `text`")),
            ("tools", r#"{"output":null}"#, None),
            ("tools", r#"{"id":9}"#, Some("a reply has no member `id`")),
            ("tools", r#"{}"#, Some("the reply has no `output`")),
            ("model", r#"{"content":[{"type":"text","text":"a"}],"stop":"end","usage":{}}"#, None),
            ("model", r#"{"content":"a","stop":"end"}"#, Some("`content` must be a list")),
            ("model", r#"{"content":[],"stop":"done"}"#, Some("`stop` must be one of end, ")),
            ("services", r#"7"#, None),
        ] {
            let checked = check(interface, "send", &Json::parse(reply).unwrap());
            match (&checked, problem) {
                (Ok(()), None) => {}
                (Err(why), Some(problem)) => {
                    assert!(why.starts_with(problem) && why.contains("; write the reply of `"), "{reply}: {why}");
                }
                _ => panic!("{interface} {reply}: {checked:?}"),
            }
        }
    }
}
