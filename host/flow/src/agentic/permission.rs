//! Permissions of an agent for its tools.

use serde::{Deserialize, Serialize};

use crate::{
    diagnostic::{Diagnostics, did_you_mean},
    fields::{for_message, not_a_map},
    yaml::{Entry, Kind, Tree},
};

/// A permission rule. The last rule that matches a call decides.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Permission {
    /// Pattern for the tool's name; `*` matches any text.
    pub tool: String,
    /// Pattern for the arguments of the call, as text; `*` matches any text. `None` matches all arguments.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub args: Option<String>,
    /// The decision about the call.
    pub action: Action,
}

/// The decision about a tool call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Action {
    /// The call is made.
    Allow,
    /// A person decides.
    Ask,
    /// The call is refused.
    Deny,
}

const ACTIONS: [(&str, Action); 3] = [("allow", Action::Allow), ("ask", Action::Ask), ("deny", Action::Deny)];

/// Returns true if a pattern matches a text from its beginning to its end. In the pattern, `*` stands for any text. The
/// time is linear in the length of the text and of the pattern.
pub fn matches_pattern(pattern: &str, text: &str) -> bool {
    let mut parts = pattern.split('*');
    let Some(mut rest) = text.strip_prefix(parts.next().unwrap_or_default()) else { return false };
    let Some(last) = parts.next_back() else { return rest.is_empty() };
    for part in parts {
        match rest.find(part) {
            Some(at) => rest = &rest[at + part.len()..],
            None => return false,
        }
    }
    rest.ends_with(last)
}

/// Returns the decision of the rules about a call; `None` if no rule matches.
pub fn decide(rules: &[Permission], tool: &str, args: &str) -> Option<Action> {
    let fitting = |rule: &&Permission| {
        matches_pattern(&rule.tool, tool) && rule.args.as_deref().is_none_or(|pattern| matches_pattern(pattern, args))
    };
    rules.iter().rev().find(fitting).map(|rule| rule.action)
}

/// Reads `permissions`: one action for all tools, or a map. In the map, each key is a pattern of tool names. Its value
/// is an action, or another map from patterns of arguments to actions.
pub(crate) fn read(tree: Option<&Tree>, diagnostics: &mut Diagnostics<'_>) -> Vec<Permission> {
    let Some(tree) = tree else { return Vec::new() };
    let mut rules = Vec::new();
    match &tree.kind {
        Kind::Map(tools) => tools.iter().for_each(|tool| read_tool(tool, &mut rules, diagnostics)),
        Kind::Scalar(_) if tree.text().is_some() => {
            let all = |action| Permission { tool: "*".into(), args: None, action };
            rules.extend(read_action(tree, diagnostics).map(all));
        }
        _ => not_a_map(tree, "`permissions`", diagnostics),
    }
    rules
}

fn read_tool(entry: &Entry, rules: &mut Vec<Permission>, diagnostics: &mut Diagnostics<'_>) {
    let tool = entry.key.to_string();
    match &entry.value.kind {
        Kind::Map(patterns) => {
            for pattern in patterns {
                let args = Some(pattern.key.to_string());
                let rule = |action| Permission { tool: tool.clone(), args: args.clone(), action };
                rules.extend(read_action(&pattern.value, diagnostics).map(rule));
            }
        }
        _ => rules.extend(read_action(&entry.value, diagnostics).map(|action| Permission { tool, args: None, action })),
    }
}

fn read_action(tree: &Tree, diagnostics: &mut Diagnostics<'_>) -> Option<Action> {
    let written = tree.text().unwrap_or_default();
    let found = ACTIONS.iter().find(|(name, _)| *name == written).map(|(_, action)| *action);
    if found.is_none() {
        let names = ACTIONS.iter().map(|(name, _)| *name);
        let help = did_you_mean(written, names).or_else(|| Some("write `allow`, `ask` or `deny`".into()));
        let message = match tree.text() {
            Some(text) => format!("`{}` is not a permission", for_message(text)),
            None => format!("a permission must be `allow`, `ask` or `deny`, not {}", tree.type_name()),
        };
        diagnostics.error("bad_permission", tree.span, message, help);
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stars_match_any_text() {
        let cases = [
            ("bash", "bash", true),
            ("bash", "bashed", false),
            ("*", "", true),
            ("*", "anything", true),
            ("git *", "git push", true),
            ("git *", "git", false),
            ("*.rs", "a.rs", true),
            ("a*b*c", "a-b-b-c", true),
            ("a*b*c", "acb", false),
            ("ab*ba", "aba", false),
            ("**", "x", true),
            ("", "", true),
            ("", "x", false),
        ];
        for (pattern, text, expected) in cases {
            assert_eq!(matches_pattern(pattern, text), expected, "{pattern} and {text}");
        }
    }

    #[test]
    fn the_last_matching_rule_decides() {
        let rule = |tool: &str, args: Option<&str>, action| Permission {
            tool: tool.into(),
            args: args.map(str::to_owned),
            action,
        };
        let rules = [
            rule("*", None, Action::Ask),
            rule("bash", Some("git *"), Action::Allow),
            rule("bash", Some("git push*"), Action::Deny),
        ];
        let cases = [
            (("edit", ""), Action::Ask),
            (("bash", "ls"), Action::Ask),
            (("bash", "git log"), Action::Allow),
            (("bash", "git push -f"), Action::Deny),
        ];
        for ((tool, args), expected) in cases {
            assert_eq!(decide(&rules, tool, args), Some(expected), "{tool} {args}");
        }
        assert_eq!(decide(&[], "bash", "ls"), None);
    }
}
