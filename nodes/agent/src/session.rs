//! Conversations that outlive a run: kept as durable state, written together with the task's outcome.

use flowcell_sdk::{Result, model::Message, state};

use crate::settings::{Session, Settings};

/// What was said before, in this session or, if it is new and a fork, in that of the step before.
pub(crate) fn load(settings: &Settings) -> Result<Vec<Message>> {
    let Some((session, prefix)) = named(settings) else { return Ok(Vec::new()) };
    if let Some(entry) = state::get(&key(session, prefix, &session.step))? {
        return Ok(entry.value);
    }
    let before = settings.from.as_ref().filter(|step| session.fork && session.same_agent.contains(step));
    let Some(step) = before else { return Ok(Vec::new()) };
    let copied = state::get(&key(session, prefix, step))?;
    Ok(copied.map(|entry| entry.value).unwrap_or_default())
}

/// Keeps what was said.
pub(crate) fn keep(settings: &Settings, messages: &[Message]) -> Result<()> {
    let Some((session, prefix)) = named(settings) else { return Ok(()) };
    state::set(&key(session, prefix, &session.step), &messages).map(drop)
}

fn named(settings: &Settings) -> Option<(&Session, &str)> {
    let session = settings.session.as_ref()?;
    Some((session, session.prefix.as_deref()?))
}

fn key(session: &Session, prefix: &str, step: &str) -> String {
    format!("session/{}/{step}/{prefix}", session.flow)
}
