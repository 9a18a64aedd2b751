//! `acme.ask`: asks a person, with a fallback answer.

use crate::{
    done,
    flowcell::node::{
        context::{self, Part},
        types::{Choice, Failure, Question, Source, Step, Wake},
    },
    number, pause, text, woken,
};

/// Asks the question and returns the answer. If nobody answers in time, returns the fallback answer.
pub fn run() -> Result<Step, Failure> {
    match woken().as_deref() {
        None => ask(),
        Some("after") => done(vec![("said", Source::Input("/otherwise".to_owned())), ("asked", no())]),
        Some(_) => done(vec![("said", Source::Woken("/value/content".to_owned())), ("asked", yes())]),
    }
}

fn ask() -> Result<Step, Failure> {
    let prompt = text("/question")?;
    let answers = context::len(Part::Input, "/answers").unwrap_or(0);
    let choice = |index| Ok(Choice { value: text(&format!("/answers/{index}"))?, label: None });
    let choices = (0..answers).map(choice).collect::<Result<Vec<_>, Failure>>()?;
    let question = Question { prompt, allow_text: choices.is_empty(), choices, schema: None, audience: Vec::new() };
    let mut until = vec![Wake::Answer(question)];
    until.extend(number("/patienceMs")?.map(Wake::After));
    pause(until)
}

fn yes() -> Source {
    Source::Json("true".to_owned())
}

fn no() -> Source {
    Source::Json("false".to_owned())
}
