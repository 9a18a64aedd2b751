//! Which tools are granted, and what may be called without asking.

use flowcell_contract::{Caller, Failure, Json, code};

use super::{INTERFACE, shelf::matches};

/// What becomes of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Action {
    Allow,
    Ask,
    Deny,
}

/// Whether the flow grants the node this tool.
pub(super) fn is_granted(caller: &Caller, tool: &str) -> bool {
    granted(caller).any(|pattern| matches(pattern, tool))
}

/// Whether the flow grants the node any tool at all.
pub(super) fn check_any(caller: &Caller) -> Result<(), Failure> {
    if granted(caller).next().is_none() {
        let message = format!(
            "`{}` is granted no tools; to allow some, add a grant such as `grants: {{ tools: [\"data.*\"] }}`",
            caller.node_id
        );
        return Err(Failure::new(code::DENIED, message));
    }
    Ok(())
}

/// Whether the flow may grant the node a tool whose name begins like this.
pub(super) fn may_be_granted(caller: &Caller, begin: &str) -> bool {
    granted(caller).any(|pattern| may_begin(pattern, begin))
}

/// Whether a pattern may name something that begins like this.
pub(super) fn may_begin(pattern: &str, begin: &str) -> bool {
    match pattern.split_once('*') {
        Some((fixed, _)) => fixed.starts_with(begin) || begin.starts_with(fixed),
        None => pattern.starts_with(begin),
    }
}

fn granted(caller: &Caller) -> impl Iterator<Item = &str> {
    let grant = caller.grants.0.get(INTERFACE);
    let listed = grant.and_then(Json::as_array).unwrap_or_default();
    listed.iter().chain(grant).filter_map(Json::as_str)
}

pub(super) fn not_granted(caller: &Caller, tool: &str) -> Failure {
    let message = format!(
        "there is no tool `{tool}` that is granted to `{}`; to allow one, add `grants: {{ tools: [\"{tool}\"] }}`",
        caller.node_id
    );
    Failure::new(code::TOOL_NOT_FOUND, message)
}

/// What the config of the calling node says: the last rule that matches counts. What cannot be read is asked about.
pub(super) fn action(caller: &Caller, tool: &str, input: &Json) -> Action {
    let permissions = caller.config.json().get("permissions");
    let default = permissions.and_then(|permissions| permissions.get("default")).map_or(Action::Ask, read);
    let rules = permissions.and_then(|permissions| permissions.get("rules")).and_then(Json::as_array);
    let mut rules = rules.unwrap_or_default().iter();
    let fits = |rule: &&Json| {
        let of_tool = rule.get("tool").and_then(Json::as_str).is_some_and(|pattern| matches(pattern, tool));
        let of_args = match rule.get("args") {
            None | Some(Json::Null) => true,
            Some(pattern) => pattern.as_str().is_some_and(|pattern| matches(pattern, &input.to_text())),
        };
        of_tool && of_args
    };
    rules.rfind(fits).map_or(default, |rule| rule.get("action").map_or(Action::Ask, read))
}

fn read(action: &Json) -> Action {
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
            assert_eq!(action(&caller("{}", config), tool, &input(args)), expected, "{tool} {args}");
        }
        assert_eq!(action(&caller("{}", "null"), "data.map", &input("{}")), Action::Ask, "nothing is said");
    }

    #[test]
    fn a_server_is_asked_only_for_what_it_may_have() {
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
    fn what_is_not_granted_is_not_there() {
        for (grants, tool, expected) in [
            ("{}", "data.map", false),
            (r#"{ "tools": ["data.*"] }"#, "data.map", true),
            (r#"{ "tools": ["data.*"] }"#, "control.if", false),
            (r#"{ "tools": "flow:*" }"#, "flow:report", true),
            (r#"{ "tools": {} }"#, "data.map", false),
        ] {
            assert_eq!(is_granted(&caller(grants, "null"), tool), expected, "{grants} {tool}");
        }
    }
}
