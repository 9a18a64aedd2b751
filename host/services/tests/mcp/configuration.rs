//! The operator's configuration of MCP servers: what is accepted, and the errors.

use std::path::Path;

use flowcell_services::mcp::Servers;
use serde_json::json;

use crate::mcp::kit::Kit;

fn parse(text: &str) -> Result<Servers, String> {
    Servers::parse(text, Path::new("")).map_err(|failure| {
        assert_eq!(failure.code, "invalid_input");
        failure.message
    })
}

#[test]
fn servers_have_names() {
    let servers = parse("b: { command: x }\na: { url: 'https://x.example/mcp?team=1' }").unwrap();
    assert_eq!(servers.names().collect::<Vec<_>>(), ["b", "a"]);
    assert_eq!(parse("{}").unwrap().names().count(), 0);
    assert_eq!(parse("null").unwrap().names().count(), 0);
}

#[test]
fn errors_name_the_wrong_member() {
    let many: Vec<String> = (0..65).map(|number| format!("s{number}: {{ command: x }}")).collect();
    let many = many.join("\n");
    let table = [
        ("a: [", "mcp: "),
        ("[]", "mcp: must be an object"),
        (&many, "mcp: more than 64 servers"),
        ("'a/b': { command: x }", "mcp.a/b: a name may have only letters"),
        ("a: {}", "mcp.a: `command` or `url` is missing"),
        ("a: { command: x, url: 'https://x' }", "either `command` or `url`"),
        ("a: { command: '' }", "`command` is empty"),
        ("a: { comand: x }", "mcp.a: comand: unknown field `comand`"),
        ("a: { command: x, args: y }", "mcp.a: args"),
        ("a: { command: x, headers: { X: y } }", "`headers` and `allowPrivate` are not allowed"),
        ("a: { command: x, env: [PATH, 'a=b'] }", "env: `a=b` is not the name"),
        ("a: { command: x, env: PATH }", "env: must be a list of names or an object"),
        (
            "a: { command: x, env: { A: { keyEnv: B, keyFile: c } } }",
            "env.A must be a text, `{ keyEnv }` or `{ keyFile }`",
        ),
        ("a: { command: x, env: { A: { keyenv: B } } }", "env.A: unknown field `keyenv`"),
        ("a: { command: x, timeoutMs: 0 }", "timeoutMs must be 1 to 3600000"),
        ("a: { command: x, startMs: 3600001 }", "startMs must be 1 to 3600000"),
        ("a: { command: x, maxCalls: 0 }", "maxCalls must be 1 to 256"),
        ("a: { command: x, maxCalls: -1 }", "maxCalls"),
        ("a: { url: 'ftp://x' }", "url: "),
        ("a: { url: 'https://u:p@x.example' }", "it must not name a user"),
        ("a: { url: 'https://x.example', args: [z] }", "`args`, `env` and `cwd` are not allowed"),
        ("a: { url: 'https://x.example', allowPrivate: [localhost] }", "allowPrivate"),
        ("a: { url: 'https://x.example', headers: { Host: y } }", "headers: the host sets `Host`"),
        ("a: { url: 'https://x.example', headers: { 'a b': y } }", "headers: `a b` is not a valid header"),
    ];
    for (text, sentence) in table {
        let message = parse(text).map(|_| ()).unwrap_err();
        assert!(message.contains(sentence), "{text}: {message}");
    }
}

#[tokio::test]
async fn errors_name_unknown_servers() {
    let kit = Kit::of(&json!({ "files": { "command": "x" } }));
    assert_eq!(kit.tools.servers().collect::<Vec<_>>(), ["files"]);
    let failure = kit.call("file", "read", json!({})).await.unwrap_err();
    assert_eq!(failure.code, "tool_not_found");
    assert!(failure.message.contains("the servers are `files`"), "{failure}");
    let none = Kit::of(&json!({}));
    assert!(none.tools.list("files").await.unwrap_err().message.contains("the operator has configured none"));
}
