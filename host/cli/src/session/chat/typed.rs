//! Parses the lines that a person types.

use std::{
    io::{self, BufRead},
    thread,
};

use tokio::sync::mpsc;

/// A parsed line.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Typed {
    /// An empty line.
    Nothing,
    /// A message or an answer.
    Text(String),
    /// `/to`: selects the agent that receives later lines.
    To(String),
    /// `/close`: asks an agent to finish.
    Close(Option<String>),
    /// `/who`: lists the open agents.
    Who,
    /// `/abort`: cancels the run.
    Abort,
    /// `/quit`: leaves the conversation.
    Quit,
    /// `/help`: lists the commands.
    Help,
    /// A line that begins with a slash but is not a command.
    Unknown(String),
}

/// The help text of the commands.
pub(crate) const HELP: &str = "\
a line answers the open question, or goes to the listening agent
/to NAME     send your lines to this agent
/who         list the open agents
/close NAME  ask an agent to finish; without a name the one that gets your lines
/abort       cancel the run
/quit        leave; the run is not cancelled
//TEXT       send TEXT with one slash in front";

/// Parses a line.
pub(crate) fn read(line: &str) -> Typed {
    let Some(command) = line.strip_prefix('/') else {
        return if line.trim().is_empty() { Typed::Nothing } else { Typed::Text(line.to_owned()) };
    };
    let (word, rest) = command.split_once(char::is_whitespace).unwrap_or((command, ""));
    match (word, rest.trim()) {
        (word, _) if word.starts_with('/') => Typed::Text(command.to_owned()),
        ("to", name) if !name.is_empty() => Typed::To(name.to_owned()),
        ("close", "") => Typed::Close(None),
        ("close", name) => Typed::Close(Some(name.to_owned())),
        ("who", "") => Typed::Who,
        ("abort", "") => Typed::Abort,
        ("quit", "") => Typed::Quit,
        ("help", "") => Typed::Help,
        _ => Typed::Unknown(line.to_owned()),
    }
}

/// Starts a thread that reads the lines of standard input, because reading blocks. The receiver ends with the input.
pub(crate) fn lines() -> io::Result<mpsc::Receiver<String>> {
    let (sender, lines) = mpsc::channel(1);
    thread::Builder::new().name("typed".into()).spawn(move || {
        let typed = io::stdin().lock().lines().map_while(Result::ok);
        // Stop reading once the receiver is gone.
        typed.take_while(|line| sender.blocking_send(line.clone()).is_ok()).for_each(drop);
    })?;
    Ok(lines)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slash_makes_a_command() {
        let text = |text: &str| Typed::Text(text.into());
        let table = [
            ("hello there", text("hello there")),
            ("  ", Typed::Nothing),
            ("/to review/bot", Typed::To("review/bot".into())),
            ("/close", Typed::Close(None)),
            ("/close bot", Typed::Close(Some("bot".into()))),
            ("/who", Typed::Who),
            ("/abort", Typed::Abort),
            ("/quit", Typed::Quit),
            ("/help", Typed::Help),
            ("//etc/hosts", text("/etc/hosts")),
            ("/to", Typed::Unknown("/to".into())),
            ("/abort now", Typed::Unknown("/abort now".into())),
            ("/shout", Typed::Unknown("/shout".into())),
        ];
        for (line, typed) in table {
            assert_eq!(read(line), typed, "{line}");
        }
    }
}
