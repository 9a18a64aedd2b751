//! `acme.scribe`: an agent that needs no model.

use crate::{
    done, failure,
    flowcell::{
        host::{
            agent,
            queue::{self, Event},
        },
        node::types::{Failure, Source, Step},
    },
    text,
};

/// Collects the messages to its agent run until the agent run is closed, then returns them.
pub fn run() -> Result<Step, Failure> {
    let title = text("/title")?;
    let run = agent::open(r#"{ "model": "none", "inbox": { "capacity": 8 } }"#)?;
    let mut lines = Vec::new();
    loop {
        match queue::next_event(None) {
            Some(Event::Message(message)) if message.agent_run == run => {
                lines.push(message.value);
                agent::tell(&run, "acme.written", &format!(r#"{{ "lines": {} }}"#, lines.len()))?;
            }
            Some(Event::Closing(closing)) if closing == run => break,
            Some(_) => return Err(failure("unexpected", "this is for another agent run".into())),
            None => return Err(failure("deserted", format!("nobody can write to `{title}` any more"))),
        }
    }
    agent::close(&run, Ok(r#"{ "result": "closed" }"#))?;
    done(vec![("lines", Source::Json(format!("[{}]", lines.join(","))))])
}
