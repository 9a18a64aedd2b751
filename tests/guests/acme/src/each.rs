//! `acme.each`: runs a body once for each item of a list. The items and the results never enter this sandbox.

use crate::{
    body_failure, done, failure,
    flowcell::node::{
        context::{self, Part},
        types::{Failure, FanOut, Source, Step, Wake},
    },
    number, pause, woken,
};

/// Runs the body for each item, then returns the results.
pub fn run() -> Result<Step, Failure> {
    if woken().is_none() {
        return fan_out();
    }
    match body_failure() {
        Some(failure) => Err(failure),
        None => done(vec![("results", Source::Woken("/value".to_owned()))]),
    }
}

fn fan_out() -> Result<Step, Failure> {
    if context::get_json(Part::Task, "/hasBody").as_deref() != Some("true") {
        return Err(failure("missing_body", "there is nothing to run for each item: the node has no body".to_owned()));
    }
    let fan_out = FanOut {
        items: Source::Input("/things".to_owned()),
        concurrency: number("/atATime")?,
        stop_on_failure: context::get_json(Part::Input, "/keepGoing").as_deref() != Some("true"),
    };
    pause(vec![Wake::Each(fan_out)])
}
