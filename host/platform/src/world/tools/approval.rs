//! Decides which tools are granted, and which calls a person must approve. `Tools` asks the question, and the runtime
//! receives the answer (`decide/calls.rs`).

use flowcell_contract::{Caller, Failure, Json, code};
use flowcell_services::pattern;

use super::{INTERFACE, tool_list::Named};

/// The decision about a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Action {
    Allow,
    Ask,
    Deny,
}

/// Returns whether the flow grants the node this tool.
pub(super) fn is_granted(caller: &Caller, tool: &Named) -> bool {
    granted_patterns(caller).any(|pattern| tool.fits(pattern))
}

/// Checks that the flow grants the node at least one tool.
pub(super) fn check_any_grant(caller: &Caller) -> Result<(), Failure> {
    if granted_patterns(caller).next().is_none() {
        let message = format!(
            "`{}` has no grant for tools; to allow some, add a grant such as `grants: {{ tools: [\"data.*\"] }}`",
            caller.node_id
        );
        return Err(Failure::new(code::DENIED, message));
    }
    Ok(())
}

/// Returns whether a grant of the node may match a tool whose name begins with `begin`.
pub(super) fn may_be_granted(caller: &Caller, begin: &str) -> bool {
    granted_patterns(caller).any(|pattern| may_begin(pattern, begin))
}

/// Returns whether a pattern may match a name that begins with `begin`.
pub(super) fn may_begin(pattern: &str, begin: &str) -> bool {
    match pattern.split_once('*') {
        Some((fixed, _)) => fixed.starts_with(begin) || begin.starts_with(fixed),
        None => pattern.starts_with(begin),
    }
}

fn granted_patterns(caller: &Caller) -> impl Iterator<Item = &str> {
    let grant = caller.grants.0.get(INTERFACE);
    let listed = grant.and_then(Json::as_array).unwrap_or_default();
    listed.iter().chain(grant).filter_map(Json::as_str)
}

pub(super) fn not_granted(caller: &Caller, tool: &str) -> Failure {
    let message = format!(
        "`{}` has no grant for the tool `{tool}`, or the tool does not exist; to allow it, add `grants: {{ tools: \
         [\"{tool}\"] }}`",
        caller.node_id
    );
    Failure::new(code::TOOL_NOT_FOUND, message)
}

/// Returns the action that the calling node's config has for a call: that of the last matching rule, or the default.
/// A rule whose action cannot be read means [`Action::Ask`].
pub(super) fn action(caller: &Caller, tool: &Named, input: &Json) -> Action {
    let Permissions { default, rules } = Permissions::of(caller);
    let rule =
        rules.iter().rfind(|rule| applies_to(rule, tool) && rule.get("args").is_none_or(|args| fits(args, input)));
    rule.map_or(default, action_of)
}

/// Returns whether the calling node's config allows the tool for at least some input, possibly after a question.
pub(super) fn may_be_called(caller: &Caller, tool: &Named) -> bool {
    let Permissions { default, rules } = Permissions::of(caller);
    let mut rules = rules.iter().rev().filter(|rule| applies_to(rule, tool));
    // A rule that matches every input hides the rules before it and the default.
    let all = |rule: &&Json| rule.get("args").is_none_or(Json::is_null);
    let mut actions = Vec::new();
    for rule in rules.by_ref() {
        actions.push(action_of(rule));
        if all(&rule) {
            return actions.iter().any(|action| *action != Action::Deny);
        }
    }
    actions.into_iter().chain([default]).any(|action| action != Action::Deny)
}

/// The permissions for tool calls in a node's config.
struct Permissions<'a> {
    default: Action,
    rules: &'a [Json],
}

impl Permissions<'_> {
    fn of(caller: &Caller) -> Permissions<'_> {
        let permissions = caller.config.json().get("permissions");
        let default = permissions.and_then(|permissions| permissions.get("default")).map_or(Action::Ask, parse_action);
        let rules = permissions.and_then(|permissions| permissions.get("rules")).and_then(Json::as_array);
        Permissions { default, rules: rules.unwrap_or_default() }
    }
}

fn applies_to(rule: &Json, tool: &Named) -> bool {
    rule.get("tool").and_then(Json::as_str).is_some_and(|pattern| tool.fits(pattern))
}

/// Returns whether the `args` of a rule match an input. An object matches if the input has all its members with these
/// values. A string is a pattern for the whole input as JSON text.
fn fits(args: &Json, input: &Json) -> bool {
    match args {
        Json::Null => true,
        Json::String(pattern) => pattern::matches(pattern, &input.to_text()),
        Json::Object(members) => members.iter().all(|(name, value)| input.get(name) == Some(value)),
        _ => false,
    }
}

fn action_of(rule: &Json) -> Action {
    rule.get("action").map_or(Action::Ask, parse_action)
}

fn parse_action(action: &Json) -> Action {
    match action.as_str() {
        Some("allow") => Action::Allow,
        Some("deny") => Action::Deny,
        _ => Action::Ask,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

    use std::sync::Arc;

    use flowcell_contract::{Effect, Grants, NodeId, Tenant, Value};

    use super::*;

    fn caller(grants: &str, config: &str) -> Caller {
        Caller {
            tenant: Tenant::local(),
            run_id: "r".into(),
            pin: "flow".into(),
            node_id: NodeId("n".into()),
            node_type: "agent.run".into(),
            grants: Arc::new(serde_json::from_str::<Grants>(grants).unwrap()),
            effect: Effect::Idempotent,
            config: Value::parse(config).unwrap(),
        }
    }

    #[test]
    fn the_last_rule_that_matches_counts() {
        let config = r#"{ "permissions": { "default": "deny", "rules": [
            { "tool": "data.*", "action": "allow" },
            { "tool": "data.map", "args": "*secret*", "action": "ask" },
            { "tool": "data.filter", "action": "deny" },
            { "tool": "odd", "action": "perhaps" } ] } }"#;
        let input = |text: &str| Json::parse(text).unwrap();
        for (tool, args, expected) in [
            ("data.map", "{}", Action::Allow),
            ("data.map", r#"{"a":"secret"}"#, Action::Ask),
            ("data.filter", "{}", Action::Deny),
            ("system.log", "{}", Action::Deny),
            ("odd", "{}", Action::Ask),
        ] {
            assert_eq!(action(&caller("{}", config), &named(tool), &input(args)), expected, "{tool} {args}");
        }
        assert_eq!(action(&caller("{}", "null"), &named("data.map"), &input("{}")), Action::Ask, "nothing is said");
    }

    fn named(tool: &str) -> Named {
        Named::from(tool.to_owned())
    }

    #[test]
    fn rules_and_grants_see_the_node_type_whatever_version_is_asked_for() {
        let tool = |version: &str| Named { version: Some(version.parse().unwrap()), ..named("data.merge") };
        for (pattern, version, expected) in [
            ("data.merge", "0.1.0", true),
            ("data.*", "0.1.7", true),
            ("*", "2.0.0", true),
            ("data.merge@0.1", "0.1.7", true),
            ("data.merge@0.1.7", "0.1.7", true),
            ("data.*@0", "0.1.7", true),
            ("data.merge@*", "0.1.7", true),
            ("*@0.*", "0.1.7", true),
            ("data.merge@0.2", "0.1.7", false),
            ("data.merge@1", "0.1.7", false),
            ("data.merges", "0.1.0", false),
        ] {
            assert_eq!(tool(version).fits(pattern), expected, "{pattern} {version}");
            let config = format!(
                r#"{{ "permissions": {{ "default": "allow", "rules": [{{ "tool": "{pattern}", "action": "deny" }}] }} }}"#
            );
            let caller = caller(&format!(r#"{{ "tools": ["{pattern}"] }}"#), &config);
            let action = action(&caller, &tool(version), &Json::Null);
            assert_eq!(action, if expected { Action::Deny } else { Action::Allow }, "{pattern} {version}");
            assert_eq!(is_granted(&caller, &tool(version)), expected, "{pattern} {version}");
        }
    }

    #[test]
    fn a_tool_is_offered_unless_every_input_is_denied() {
        let table = [
            (r#"[{ "tool": "a", "args": "*x*", "action": "allow" }]"#, "deny", true),
            (r#"[{ "tool": "a", "args": { "dry": true }, "action": "ask" }]"#, "deny", true),
            (r#"[{ "tool": "b", "args": "*x*", "action": "allow" }]"#, "deny", false),
            (r#"[{ "tool": "a", "args": "*x*", "action": "deny" }]"#, "allow", true),
            (
                r#"[{ "tool": "a", "args": "*x*", "action": "allow" }, { "tool": "a", "action": "deny" }]"#,
                "allow",
                false,
            ),
            (r#"[{ "tool": "a", "action": "deny" }, { "tool": "*", "args": "*x*", "action": "allow" }]"#, "deny", true),
            ("[]", "deny", false),
            ("[]", "ask", true),
        ];
        for (rules, default, expected) in table {
            let config = format!(r#"{{ "permissions": {{ "default": "{default}", "rules": {rules} }} }}"#);
            assert_eq!(may_be_called(&caller("{}", &config), &named("a")), expected, "{rules} {default}");
        }
    }

    #[test]
    fn args_of_a_rule_are_compared_as_values() {
        let config = r#"{ "permissions": { "default": "deny", "rules": [
            { "tool": "pay", "args": { "dry": true, "to": { "name": "Ada" } }, "action": "allow" },
            { "tool": "pay", "args": ["dry"], "action": "allow" } ] } }"#;
        for (input, expected) in [
            (r#"{"to":{"name":"Ada"},"amount":3,"dry":true}"#, Action::Allow),
            (r#"{"dry":false,"to":{"name":"Ada"},"note":{"dry":true}}"#, Action::Deny),
            (r#"{"dry":true,"to":{"name":"Ada","more":1}}"#, Action::Deny),
            (r#"{"note":"\"dry\":true"}"#, Action::Deny),
        ] {
            assert_eq!(action(&caller("{}", config), &named("pay"), &Json::parse(input).unwrap()), expected, "{input}");
        }
    }

    #[test]
    fn a_server_is_asked_for_tools_only_if_a_grant_may_match() {
        for (pattern, begin, expected) in [
            ("mcp:files/read", "mcp:files/", true),
            ("mcp:files/*", "mcp:files/", true),
            ("mcp:*", "mcp:files/", true),
            ("*", "mcp:files/", true),
            ("*/read", "mcp:files/", true),
            ("mcp:files", "mcp:files/", false),
            ("mcp:tickets/*", "mcp:files/", false),
            ("data.*", "mcp:files/", false),
        ] {
            assert_eq!(may_begin(pattern, begin), expected, "{pattern} {begin}");
        }
    }

    #[test]
    fn only_granted_tools_exist_for_a_node() {
        for (grants, tool, expected) in [
            ("{}", "data.map", false),
            (r#"{ "tools": ["data.*"] }"#, "data.map", true),
            (r#"{ "tools": ["data.*"] }"#, "control.if", false),
            (r#"{ "tools": "flow:*" }"#, "flow:report", true),
            (r#"{ "tools": {} }"#, "data.map", false),
        ] {
            assert_eq!(is_granted(&caller(grants, "null"), &named(tool)), expected, "{grants} {tool}");
        }
    }
}
