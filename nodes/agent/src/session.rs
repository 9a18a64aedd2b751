//! Conversations that outlive a run. The host stores them as durable state when it records the outcome of the task.

use flowcell_sdk::{Result, model::Message, state};

use crate::settings::{Session, Settings};

/// Loads the stored conversation of this session. If the session is a fork and the preceding step has the same agent,
/// loads the conversation of the preceding step instead. Returns no messages if there is no session.
pub(crate) fn load(settings: &Settings) -> Result<Vec<Message>> {
    let Some((session, prefix)) = session_with_prefix(settings) else { return Ok(Vec::new()) };
    let before = settings.from.as_ref().filter(|step| session.fork && session.same_agent.contains(step));
    let said = state::get(&state_key(session, prefix, before.unwrap_or(&session.step)))?;
    Ok(said.map(|entry| entry.value).unwrap_or_default())
}

/// Stores the conversation for the next run. Does nothing without a session.
pub(crate) fn store(settings: &Settings, messages: &[Message]) -> Result<()> {
    let Some((session, prefix)) = session_with_prefix(settings) else { return Ok(()) };
    state::set(&state_key(session, prefix, &session.step), &messages).map(drop)
}

fn session_with_prefix(settings: &Settings) -> Option<(&Session, &str)> {
    let session = settings.session.as_ref()?;
    Some((session, session.prefix.as_deref()?))
}

fn state_key(session: &Session, prefix: &str, step: &str) -> String {
    format!("session/{}/{step}/{prefix}", session.flow)
}
