//! Shows a conversation: messages of agents on standard output, everything else on standard error.

use std::io::{self, Write};

use super::conversation::Shown;
use crate::terminal::{Terminal, inert};
use flowcell::contract::text::judged;

/// Standard output and standard error of a conversation, which usually share one terminal.
pub(crate) struct Page {
    terminal: Terminal,
    /// The name of the agent whose message is not complete yet, so that no line break follows it.
    speaking: Option<String>,
}

impl Page {
    pub(crate) fn new(terminal: Terminal) -> Page {
        Page { terminal, speaking: None }
    }

    /// Shows a piece of the conversation. Write errors are ignored.
    pub(crate) fn show(&mut self, shown: &Shown) {
        let paint = self.terminal.paint();
        match shown {
            Shown::Speech { who, text } => self.show_speech(who, text),
            Shown::EndOfSpeech => self.end(),
            Shown::Note(text) => self.show_line(&paint.faint(&inert(text))),
            Shown::Question(text) => self.show_line(&paint.warning(&inert(text))),
            Shown::Trouble(text) => self.show_line(&format!("{}: {}", paint.error("not done"), inert(text))),
        }
    }

    fn show_speech(&mut self, who: &str, text: &str) {
        if text.is_empty() {
            return;
        }
        let mut out = io::stdout().lock();
        if self.speaking.as_deref() != Some(who) {
            let end = if self.speaking.is_some() { "\n" } else { "" };
            let _ = write!(out, "{end}{}: ", self.terminal.paint_of_output().name(&inert(who)));
            self.speaking = Some(who.to_owned());
        }
        let _ = out.write_all(spoken(text).as_bytes());
        let _ = out.flush();
    }

    fn end(&mut self) {
        if self.speaking.take().is_some() {
            let _ = writeln!(io::stdout().lock());
        }
    }

    fn show_line(&mut self, text: &str) {
        self.end();
        self.terminal.say(text);
    }
}

/// Returns a part of a message with terminal commands and deceptive characters escaped. Lines after the first are
/// indented.
fn spoken(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for (letter, deceptive) in judged(text) {
        match letter {
            '\n' => out.push_str("\n  "),
            '\t' => out.push(letter),
            letter if deceptive || letter.is_control() => out.extend(letter.escape_unicode()),
            letter => out.push(letter),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shown_piece_keeps_spaces_and_escapes_terminal_commands() {
        assert_eq!(spoken(" a\nb "), " a\n  b ");
        assert_eq!(spoken("\u{1b}[2J\u{9b}"), "\\u{1b}[2J\\u{9b}");
    }
}
