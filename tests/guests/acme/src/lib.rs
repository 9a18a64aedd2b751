//! The pack `acme`, written with nothing but the WIT. Its nodes own a body like `control.foreach`, ask people like
//! `control.gate`, and receive messages like agents. It shows that the host has no special code for its own node types:
//! such a host could not run this pack.

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

/// The section from which the host reads the manifest without running the pack.
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

/// Returns the name of the wake that ended the last pause; `None` if the attempt has not paused yet.
fn woken() -> Option<String> {
    context::get_text(Part::Woken, "/wake")
}

/// Returns the text at a path of the input. Fails if there is no text.
fn text(path: &str) -> Result<String, Failure> {
    let missing = || failure("invalid_input", format!("input at `{path}`: a text is expected"));
    context::get_text(Part::Input, path).ok_or_else(missing)
}

/// Returns the whole number at a path of the input; `None` if there is no value.
fn number<N: std::str::FromStr>(path: &str) -> Result<Option<N>, Failure> {
    let wrong = |_| failure("invalid_input", format!("input at `{path}`: a whole number is expected"));
    context::get_json(Part::Input, path).map(|text| text.parse().map_err(wrong)).transpose()
}

/// Ends the task with an object as output.
fn done(members: Vec<(&str, Source)>) -> Result<Step, Failure> {
    let members = members.into_iter().map(|(key, source)| (key.to_owned(), source)).collect();
    Ok(Step::Done(Output::Object(members)))
}

/// Pauses the task, without state.
fn pause(until: Vec<Wake>) -> Result<Step, Failure> {
    Ok(Step::Pause(Pause { until, state: "null".to_owned() }))
}

fn failure(code: &str, message: String) -> Failure {
    Failure { code: code.to_owned(), message, retryable: false, retry_after_ms: None, details: None }
}

/// Returns the failure of the body as a failure of this node; `None` if the body has not failed.
fn body_failure() -> Option<Failure> {
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
