//! Credentials of nodes: their declarations in manifests, and their grants in flows.

use std::cell::RefCell;

use flowcell_contract::{Catalog, Digest, Json, Manifest};
use flowcell_flow::{CheckContext, Checked, Source};

const MANIFEST: &str = "
name: shop
version: 1.0.0
nodes:
  - type: shop.post
    title: Post
    capabilities: [{ name: http, reason: it posts }]
    credentials:
      - { name: slack, kind: oauth2, hosts: [slack.com], reason: it posts as you }
      - { name: maps, kind: apiKey, in: query, key: k, optional: true }
  - type: shop.send
    title: Send
    capabilities: [{ name: http, reason: it sends }]
  - { type: shop.add, title: Add }
  - type: shop.chat
    title: Chat
    capabilities: [{ name: tools, reason: it calls tools, optional: true }]
";

/// A context that records the checked grants, and has every credential but `missing`.
#[derive(Default)]
struct Recorded(RefCell<Vec<String>>);

impl CheckContext for Recorded {
    fn read(&self, _path: &str) -> Result<String, String> {
        Err("file not found".into())
    }

    fn flow(&self, _name: &str) -> Option<Source> {
        None
    }

    fn check_grant(&self, capability: &str, item: &Json) -> Result<(), String> {
        if capability != "credentials" {
            return Ok(());
        }
        self.0.borrow_mut().push(item.to_text());
        match item.get("credential").and_then(Json::as_str) {
            Some("missing") => Err("the credential `missing` does not exist".into()),
            _ => Ok(()),
        }
    }

    fn locked_credential(&self, name: &str) -> Option<String> {
        (name == "locked").then(|| "it is locked".into())
    }
}

fn load(node_type: &str, grants: &str) -> (Checked, Vec<String>) {
    let mut catalog = Catalog::default();
    catalog.add(Manifest::parse(MANIFEST).unwrap(), &Digest("00".into()));
    let text = format!("flow: {{ name: one }}\nnodes:\n  - {{ id: a, type: {node_type}, grants: {grants} }}\n");
    let context = Recorded::default();
    let checked = flowcell_flow::load(&Source { name: "one.yaml".into(), text }, &catalog, &context);
    (checked, context.0.into_inner())
}

fn codes(checked: &Checked) -> Vec<(&'static str, usize)> {
    checked.diagnostics.iter().map(|found| (found.code, found.location.line)).collect()
}

#[test]
fn the_graph_has_the_demands_of_the_node_type() {
    for (grant, credential) in [("[slack]", "slack"), ("{ slack: mine }", "mine"), ("slack", "slack")] {
        let (checked, asked) = load("shop.post", &format!("{{ http: ['https://slack.com'], credentials: {grant} }}"));
        assert_eq!(codes(&checked), []);
        let expected =
            format!(r#"{{"name":"slack","credential":"{credential}","kind":"oauth2","hosts":["https://slack.com"]}}"#);
        assert_eq!(asked, std::slice::from_ref(&expected));
        let graph = checked.graph.unwrap();
        assert_eq!(graph.nodes[0].grants.0["credentials"].to_text(), format!("[{expected}]"));
    }
    // A type without declarations gets the credentials that the flow grants.
    let (checked, asked) = load("shop.send", "{ http: ['https://slack.com'], credentials: [any] }");
    assert_eq!((codes(&checked), asked), (vec![], vec![r#"{"name":"any","credential":"any"}"#.to_owned()]));
}

#[test]
fn wrong_grants_of_credentials_are_reported_with_their_line() {
    let http = "http: ['https://slack.com']";
    let cases = [
        ("shop.post", format!("{{ {http} }}"), vec![("missing_credential", 3)]),
        ("shop.post", format!("{{ {http}, credentials: [maps] }}"), vec![("missing_credential", 3)]),
        ("shop.post", format!("{{ {http}, credentials: [slack, slak] }}"), vec![("unknown_credential", 3)]),
        ("shop.post", format!("{{ {http}, credentials: {{ slack: missing }} }}"), vec![("wrong_grant", 3)]),
        ("shop.post", format!("{{ {http}, credentials: {{ slack: locked }} }}"), vec![("locked_credential", 3)]),
        (
            "shop.post",
            format!("{{ {http}, credentials: [{{ token: x }}] }}"),
            vec![("wrong_grant", 3), ("missing_credential", 3)],
        ),
        // The demands of a node type cannot be written in a flow.
        (
            "shop.post",
            format!("{{ {http}, credentials: [{{ name: slack, credential: a, hosts: ['https://evil.example'] }}] }}"),
            vec![("wrong_grant", 3), ("missing_credential", 3)],
        ),
        ("shop.add", "{ credentials: [slack] }".into(), vec![("unused_grant", 3)]),
    ];
    for (node_type, grants, expected) in cases {
        let (checked, _) = load(node_type, &grants);
        let mut found = codes(&checked);
        found.sort();
        let mut expected = expected;
        expected.sort();
        assert_eq!(found, expected, "{grants}: {:?}", checked.diagnostics);
    }
    let (checked, _) = load("shop.post", &format!("{{ {http} }}"));
    let found = &checked.diagnostics[0];
    assert_eq!(found.message, "`shop.post` needs the credential `slack` (oauth2): it posts as you");
    assert!(found.help.as_deref().unwrap().contains("credentials: [slack]"));
}

#[test]
fn a_node_that_calls_tools_has_grants_for_them() {
    let own = "http: ['https://slack.com'], credentials: { slack: mine }";
    let (checked, asked) = load("shop.chat", &format!("{{ tools: ['shop.*'], {own} }}"));
    assert_eq!((codes(&checked), asked.len()), (vec![], 1), "{:?}", checked.diagnostics);
    let expected = r#"[{"name":"slack","credential":"mine"}]"#;
    assert_eq!(checked.graph.unwrap().nodes[0].grants.0["credentials"].to_text(), expected);
    for (grants, expected) in [
        (format!("{{ {own} }}"), vec![("unused_grant", 3), ("unused_grant", 3)]),
        ("{ tools: ['shop.*'], secrets: [{ name: a }] }".into(), vec![("unused_grant", 3)]),
        ("{ tools: ['shop.*'], credentials: [missing] }".into(), vec![("wrong_grant", 3)]),
        ("{ tools: ['shop.*'], credentials: { slack: 7 } }".into(), vec![("wrong_grant", 3)]),
    ] {
        let (checked, _) = load("shop.chat", &grants);
        assert_eq!(codes(&checked), expected, "{grants}: {:?}", checked.diagnostics);
    }
}

#[test]
fn wrong_declarations_are_refused() {
    let with = |credentials: &str, capabilities: &str| {
        let text = format!(
            "name: shop\nversion: 1.0.0\nnodes:\n  - {{ type: shop.a, title: A, capabilities: {capabilities}, credentials: \
             {credentials} }}\n"
        );
        Manifest::parse(&text).map(drop).map_err(|error| error.to_string())
    };
    let http = "[{ name: http, reason: r }]";
    with("[{ name: a, kind: bearer }, { name: b, kind: sigv4, hosts: ['*.amazonaws.com'] }]", http).unwrap();
    for (credentials, capabilities, part) in [
        ("[{ name: a, kind: bearer }]", "[]", "must ask for the capability `http`"),
        ("[{ name: a, kind: cookie }]", http, "cookie"),
        ("[{ name: a, kind: apiKey }]", http, "add `in: header`"),
        ("[{ name: a, kind: bearer, in: query }]", http, "only a credential of the kind `apiKey`"),
        ("[{ name: a, kind: bearer }, { name: a, kind: basic }]", http, "twice"),
        ("[{ name: 'a b', kind: bearer }]", http, "the name of a credential"),
        ("[{ name: a, kind: bearer, hosts: ['a b'] }]", http, "a host is a name"),
        ("[{ name: a, kind: bearer, tokenUrl: 'https://evil.example' }]", http, "unknown field `tokenUrl`"),
    ] {
        let error = with(credentials, capabilities).unwrap_err();
        assert!(error.contains(part), "{credentials}: {error}");
    }
}
