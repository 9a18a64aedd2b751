//! The pack `http`: sends requests to servers.

mod answer;
mod query;
mod request;

use flowcell_sdk::{http, prelude::*};

flowcell_sdk::pack! {
    manifest: "node.yaml",
    "http.request" => run,
}

/// Sends one request and returns the response.
fn run(_task: &Task, input: request::Input) -> Result<Step> {
    let expected = input.expected()?;
    let response = http::send(input.request()?)?;
    let answer = answer::Answer::read(response)?;
    if expected.iter().any(|range| range.contains(answer.status)) {
        return Ok(answer.output()?.into());
    }
    Err(answer.failure(std::time::SystemTime::now()))
}

#[cfg(test)]
mod tests;
