//! `flowcell eval` at a terminal: a line editor with a history, and completions from the values that expressions read.

use std::{
    io::{self, BufRead, StdinLock},
    mem,
};

use flowcell::{Json, contract::Catalog};
use flowcell_assist::{
    Document, NoSurroundings,
    complete::{CompletionKind, complete},
    is_plain_name,
};
use rustix::{
    event::{self, PollFd, PollFlags, Timespec},
    termios::{self, LocalModes},
};
use rustyline::{
    Config, Context, Editor, Helper,
    completion::{Completer, Pair},
    config::CompletionType,
    error::ReadlineError,
    highlight::Highlighter,
    hint::Hinter,
    history::MemHistory,
    validate::Validator,
};

use super::Evaluator;
use crate::{
    cli_error::{CliError, Exit},
    output::put_line,
    terminal::{Terminal, inert, inert_json},
};

/// Maximum number of lines in the history.
const HISTORY: usize = 1_000;
const PROMPT: &str = "> ";
/// A flow whose outputs are the line, for the functions and the names that have no value here.
const HEAD: &str = "flow:\n  name: eval\n  outputs: |-\n    ";
const TAIL: &str = "\nnodes: []\n";

/// Reads expressions until the person ends it, and prints their values. An error of an expression does not end it.
pub(super) fn ask(evaluator: &Evaluator<'_>, terminal: Terminal) -> Result<Exit, CliError> {
    let unusable = |error: ReadlineError| CliError::wrong("cannot read from the terminal").because(&error);
    let config = Config::builder().completion_type(CompletionType::List).max_history_size(HISTORY).map_err(unusable)?;
    let mut editor = Editor::with_history(config.build(), MemHistory::new()).map_err(unusable)?;
    editor.set_helper(Some(Names { evaluator }));
    terminal.say("Write one expression in a line. Tab completes names, and Ctrl-D ends.");
    let mut ahead = Some(TypedAhead::default());
    loop {
        let line = match ahead.as_mut().and_then(TypedAhead::take_next) {
            Some(Ahead::End) => return Ok(Exit::Good),
            Some(Ahead::Line(line)) => {
                put_line(&format!("{PROMPT}{line}"))?;
                line
            }
            None => {
                let begun = ahead.take().map(|ahead| ahead.begun).unwrap_or_default();
                match editor.readline_with_initial(PROMPT, (&begun, "")) {
                    Ok(line) => line,
                    Err(ReadlineError::Eof | ReadlineError::Interrupted) => return Ok(Exit::Good),
                    Err(error) => return Err(unusable(error)),
                }
            }
        };
        if line.trim().is_empty() {
            continue;
        }
        editor.add_history_entry(&line).map_err(unusable)?;
        match evaluator.print(&line, terminal) {
            Err(problem) if problem.exit() != Exit::Wrong => return Err(problem),
            Err(problem) => problem.print(terminal),
            Ok(()) => {}
        }
    }
}

/// A line that was typed before the first prompt, or the end of the input.
enum Ahead {
    Line(String),
    End,
}

/// Reads the lines that a person types before the first prompt. The terminal keeps them, and Ctrl-D as the end of the input.
/// The line editor would get a byte without a meaning for this end.
#[derive(Default)]
struct TypedAhead {
    /// The beginning of a line.
    begun: String,
}

impl TypedAhead {
    /// Returns the next line, or the end. Returns `None` if nothing more was typed.
    fn take_next(&mut self) -> Option<Ahead> {
        let mut input = io::stdin().lock();
        while has_line(&input) {
            let part = input.fill_buf().ok()?;
            let taken = part.len();
            self.begun.push_str(&String::from_utf8_lossy(part));
            input.consume(taken);
            if taken == 0 && self.begun.is_empty() {
                return Some(Ahead::End);
            }
            if taken == 0 || self.begun.ends_with('\n') {
                let line = mem::take(&mut self.begun);
                return Some(Ahead::Line(line.trim_end_matches(['\r', '\n']).to_owned()));
            }
        }
        None
    }
}

/// Returns whether a terminal that keeps lines has one, or the end of the input.
fn has_line(input: &StdinLock<'_>) -> bool {
    let keeps_lines = termios::tcgetattr(input).is_ok_and(|modes| modes.local_modes.contains(LocalModes::ICANON));
    let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
    keeps_lines && event::poll(&mut [PollFd::new(input, PollFlags::IN)], Some(&at_once)).is_ok_and(|ready| ready > 0)
}

/// Completes the names in a line.
struct Names<'e> {
    evaluator: &'e Evaluator<'e>,
}

impl Completer for Names<'_> {
    type Candidate = Pair;

    fn complete(&self, line: &str, at: usize, _: &Context<'_>) -> rustyline::Result<(usize, Vec<Pair>)> {
        Ok(completions(line, at, |path| self.evaluator.eval(path).ok().map(|evaluated| evaluated.value)))
    }
}

impl Hinter for Names<'_> {
    type Hint = String;
}

impl Highlighter for Names<'_> {}
impl Validator for Names<'_> {}
impl Helper for Names<'_> {}

/// Returns the completions at a byte of a line, and the byte at which they begin. `value` gives the value of an
/// expression, if it has one.
fn completions(line: &str, at: usize, value: impl Fn(&str) -> Option<Json>) -> (usize, Vec<Pair>) {
    let before = &line[..at];
    let word = before.trim_end_matches(is_letter).len();
    match before[..word].strip_suffix('.') {
        Some(path) => {
            let found = value(&path[path_start(path)..]);
            (path.len(), found.map_or_else(Vec::new, |object| members(&object, &before[word..])))
        }
        None => (word, names(line, at, word, value("nodes").as_ref())),
    }
}

/// Returns the members of an object that begin with the typed letters, with the dot or the brackets before them.
fn members(object: &Json, typed: &str) -> Vec<Pair> {
    let found = keys(object).filter(|name| name.starts_with(typed));
    found.map(|name| pair(name, if is_plain_name(name) { format!(".{name}") } else { in_brackets(name) })).collect()
}

/// Returns the nodes that have a value here, and the names of the language.
fn names(line: &str, at: usize, word: usize, nodes: Option<&Json>) -> Vec<Pair> {
    let typed = &line[word..at];
    let (open, close) = if line.contains("{{") { ("", "") } else { ("{{ ", " }}") };
    let before = format!("{HEAD}{open}{}", &line[..word]);
    let text = format!("{before}{}{close}{TAIL}", &line[at..]);
    let document = Document { text: &text, catalog: &Catalog::default(), surroundings: &NoSurroundings };
    let known = complete(&document, before.len());
    // Nodes can stand where other values can: inside of the braces, and not behind `|` or `is`.
    let is_value = known.iter().any(|known| known.kind == CompletionKind::Name);
    let nodes = nodes.filter(|_| is_value).into_iter().flat_map(keys);
    let node = |id| (id, if is_plain_name(id) { id.to_owned() } else { format!("nodes{}", in_brackets(id)) });
    let known = known.iter().map(|known| (known.label.as_str(), known.edit.text.clone()));
    let found = nodes.map(node).chain(known).filter(|(name, _)| name.starts_with(typed));
    found.map(|(name, replacement)| pair(name, replacement)).collect()
}

fn pair(shown: &str, replacement: String) -> Pair {
    Pair { display: inert(shown).into_owned(), replacement }
}

fn in_brackets(name: &str) -> String {
    format!("[{}]", inert_json(&Json::from(name).to_text()))
}

/// Returns the names of the members of an object; none of another value.
fn keys(value: &Json) -> impl Iterator<Item = &str> {
    value.as_object().into_iter().flat_map(|object| object.keys().map(|name| &**name))
}

/// Returns the byte at which the path at the end of a text begins: names, members and indices.
fn path_start(text: &str) -> usize {
    let (mut start, mut depth) = (text.len(), 0_usize);
    for (at, sign) in text.char_indices().rev() {
        match sign {
            ']' => depth += 1,
            '[' if depth > 0 => depth -= 1,
            _ if depth > 0 => {}
            sign if is_letter(sign) || sign == '.' => {}
            _ => break,
        }
        start = at;
    }
    start
}

fn is_letter(sign: char) -> bool {
    sign.is_alphanumeric() || sign == '_'
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

    use super::*;

    /// Completes at `§`. Returns each completed line; the nodes and paths have these values.
    fn completed(line: &str) -> Vec<String> {
        let at = line.find('§').unwrap();
        let line = line.replace('§', "");
        let values = Json::parse(
            r#"{ "nodes": { "pay": 1, "plan-b": 2 }, "pay": { "body": { "items": [{ "id": 1 }], "it em": 2, "": 4, "\u001b[2J": 3 } },
                "pay.body.items[0]": { "id": 1 }, "flow": { "input": 1 } }"#,
        );
        let values = values.unwrap();
        let (start, pairs) = completions(&line, at, |path| match path {
            "pay.body" => values.get("pay")?.get("body").cloned(),
            path => values.get(path).cloned(),
        });
        pairs.iter().map(|pair| format!("{}{}{}", &line[..start], pair.replacement, &line[at..])).collect()
    }

    #[test]
    fn members_come_from_the_values() {
        assert_eq!(completed("1 + pay.§"), ["1 + pay.body"]);
        assert_eq!(completed("{{ pay.body.it§ }}"), ["{{ pay.body.items }}", "{{ pay.body[\"it em\"] }}"]);
        assert_eq!(completed("pay.body.items[0].§"), ["pay.body.items[0].id"]);
        assert_eq!(completed("pay.body.x§"), [""; 0]);
        assert_eq!(completed("pay.body.§").len(), 4);
        assert!(completed("pay.body.§").contains(&"pay.body[\"\"]".to_owned()));
        assert!(completed("pay.body.§").iter().all(|line| !line.contains('\u{1b}')));
        for line in ["unknown.§", "3.§", ".§", "].§", "[[[.§", "pay(§", "'§", "é.§"] {
            assert!(completed(line).iter().all(|line| !line.contains("pay.")), "{line}");
        }
    }

    #[test]
    fn names_are_nodes_functions_and_facts() {
        assert_eq!(completed("pa§")[0], "pay");
        assert!(completed("p§").contains(&"nodes[\"plan-b\"]".to_owned()), "{:?}", completed("p§"));
        assert!(
            completed("flow.input | trunc§")[0].starts_with("flow.input | truncate"),
            "{:?}",
            completed("flow.input | trunc§")
        );
        assert_eq!(completed("pay is defi§"), ["pay is defined"]);
        assert!(completed("fl§").contains(&"flow".to_owned()));
        assert_eq!(completed("a text pa§ {{ 1 }}"), [""; 0]);
        assert!(completed("pay | §").iter().all(|line| line != "pay | pay"));
    }
}
