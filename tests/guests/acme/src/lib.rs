//! The pack `acme`, written against the WIT alone: it owns a body as `control.foreach` does, asks people as `control.gate`
//! does, and listens as agents do, so that a host which knew its own nodes by name could not run it.

mod ask;
mod each;
mod greet;
mod scribe;

wit_bindgen::generate!({
    path: ["../../../wit/deps/flowcell-node", "../../../wit/deps/flowcell-host", "wit"],
    world: "acme:pack/acme",
    generate_all,
});

use flowcell::node::{
    context::{self, Part},
    types::{Failure, Output, Pause, Source, Step, Wake},
};

/// The host reads the manifest from this section without running the pack.
#[used]
#[unsafe(link_section = "flowcell:manifest")]
static MANIFEST: [u8; include_bytes!("../node.yaml").len()] = *include_bytes!("../node.yaml");

struct Acme;

export!(Acme);

impl exports::flowcell::node::node::Guest for Acme {
    fn run(node_type: String) -> Result<Step, Failure> {
        match node_type.as_str() {
            "acme.ask" => ask::run(),
            "acme.each" => each::run(),
            "acme.greet" => greet::run(),
            "acme.scribe" => scribe::run(),
            other => Err(failure("unknown_node_type", format!("this pack has no code for `{other}`"))),
        }
    }
}

/// The name of what ended the last pause; none on the first run.
fn woken() -> Option<String> {
    context::get_text(Part::Woken, "/wake")
}

/// One text of the input, which has to be there.
fn text(path: &str) -> Result<String, Failure> {
    let missing = || failure("invalid_input", format!("input at `{path}`: a text is expected"));
    context::get_text(Part::Input, path).ok_or_else(missing)
}

/// One whole number of the input; none: it is not there.
fn number<N: std::str::FromStr>(path: &str) -> Result<Option<N>, Failure> {
    let wrong = |_| failure("invalid_input", format!("input at `{path}`: a whole number is expected"));
    context::get_json(Part::Input, path).map(|text| text.parse().map_err(wrong)).transpose()
}

/// The task is done with an object.
fn done(members: Vec<(&str, Source)>) -> Result<Step, Failure> {
    let members = members.into_iter().map(|(key, source)| (key.to_owned(), source)).collect();
    Ok(Step::Done(Output::Object(members)))
}

/// Gives the instance up; nothing has to be remembered.
fn pause(until: Vec<Wake>) -> Result<Step, Failure> {
    Ok(Step::Pause(Pause { until, state: "null".to_owned() }))
}

fn failure(code: &str, message: String) -> Failure {
    Failure { code: code.to_owned(), message, retryable: false, retry_after_ms: None, details: None }
}

/// The failure of a body, handed on as this node's own.
fn of_body() -> Option<Failure> {
    context::len(Part::Woken, "/error")?;
    let part = |path| context::get_text(Part::Woken, path);
    Some(Failure {
        code: part("/error/code").unwrap_or_else(|| "failed".to_owned()),
        message: part("/error/message").unwrap_or_default(),
        retryable: context::get_json(Part::Woken, "/error/retryable").as_deref() == Some("true"),
        retry_after_ms: None,
        details: context::get_json(Part::Woken, "/error/details"),
    })
}
