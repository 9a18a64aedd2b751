//! The key `flow.session`: the prefix of the sessions, and how a run continues a failed one.

use flowcell_contract::Json;
use serde::{Deserialize, Serialize};

use crate::{
    agentic::{
        placeholder::{ARGUMENT_HELP, Placeholder},
        unsupported::unsupported,
    },
    diagnostic::Diagnostics,
    fields::{check_keys_or, entries, flag, for_message, map, text},
    yaml::{Entry, Tree},
};

/// Maximum size of a session prefix in bytes. The ids of sessions and runs contain it.
pub const SESSION_PREFIX_BYTES: usize = 60;
const KEYS: [&str; 2] = ["prefix", "resume_on_failure"];

/// The session settings of a flow.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct FlowSession {
    pub(crate) prefix: Option<SessionPrefix>,
    /// False if a run after a failed one begins with the first step.
    pub(crate) restarts: bool,
}

/// The session prefix that a flow names. A run that names one itself uses that.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum SessionPrefix {
    /// The prefix.
    Text(String),
    /// The prefix is the value of an argument: the keys that lead to it.
    Argument(Vec<String>),
}

impl SessionPrefix {
    /// Returns the prefix for a run with these arguments. Fails with the name of the argument if it is missing, null, a
    /// list or an object. The prefix may be invalid, see [`is_session_prefix`].
    pub fn of(&self, args: &Json) -> Result<String, String> {
        match self {
            SessionPrefix::Text(prefix) => Ok(prefix.clone()),
            SessionPrefix::Argument(keys) => {
                let value = keys.iter().try_fold(args, |value, key| value.get(key));
                match value {
                    Some(Json::String(text)) => Ok(text.to_string()),
                    Some(plain @ (Json::Number(_) | Json::Bool(_))) => Ok(plain.to_string()),
                    _ => Err(format!("args.{}", keys.join("."))),
                }
            }
        }
    }
}

/// Returns true if a text can be the prefix of session ids: 1 to [`SESSION_PREFIX_BYTES`] letters, digits, `-`, `_` and
/// `.`.
pub fn is_session_prefix(text: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    (1..=SESSION_PREFIX_BYTES).contains(&text.len()) && text.bytes().all(plain)
}

/// Reads `session` in `flow`.
pub(super) fn read_flow_session(head: &Tree, diagnostics: &mut Diagnostics<'_>) -> FlowSession {
    let Some(tree) = map(head, "session", diagnostics) else { return FlowSession::default() };
    let hint = |entry: &Entry| match &*entry.key {
        "fork" => Some("write `session: { fork: … }` in a step".to_owned()),
        _ => unsupported(entry),
    };
    check_keys_or(entries(tree, "`session`", diagnostics), &KEYS, hint, diagnostics);
    let resumes = flag(tree, "resume_on_failure", diagnostics).unwrap_or(true);
    FlowSession { prefix: read_prefix(tree, diagnostics), restarts: !resumes }
}

fn read_prefix(tree: &Tree, diagnostics: &mut Diagnostics<'_>) -> Option<SessionPrefix> {
    let (written, span) = text(tree, "prefix", diagnostics)?;
    let inside = written.trim().strip_prefix("${").and_then(|rest| rest.strip_suffix('}'));
    let (message, help) = match inside {
        Some(inside) => match Placeholder::parse(inside) {
            Some(Placeholder::Args(keys)) if !keys.is_empty() => return Some(SessionPrefix::Argument(keys)),
            _ => (format!("`{}` does not select a single argument", for_message(&written)), ARGUMENT_HELP.to_owned()),
        },
        None if is_session_prefix(&written) => return Some(SessionPrefix::Text(written)),
        None => (
            format!("`{}` is not a session prefix", for_message(&written)),
            format!(
                "write 1 to {SESSION_PREFIX_BYTES} letters, digits, `-`, `_` and `.`, or one argument: \
                 `prefix: ${{args.key}}`"
            ),
        ),
    };
    diagnostics.error("bad_value", span, message, Some(help));
    None
}
