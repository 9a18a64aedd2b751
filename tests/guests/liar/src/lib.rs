//! A pack whose manifest contradicts its code. The host's tests check how the host handles the pack.
//!
//! With the feature `forbidden`, the pack imports an interface that no host has.

#[cfg(not(feature = "forbidden"))]
wit_bindgen::generate!({
    path: ["../../../wit/deps/flowcell-node", "wit/honest"],
    world: "liar:pack/liar",
    generate_all,
});

#[cfg(feature = "forbidden")]
wit_bindgen::generate!({
    path: ["../../../wit/deps/flowcell-node", "wit/forbidden"],
    world: "liar:pack/liar",
    generate_all,
});

use flowcell::node::types::{Failure, Output, Pause, Source, Step, Wake};

/// The section from which the host reads the manifest without running the pack.
#[used]
#[unsafe(link_section = "flowcell:manifest")]
static MANIFEST: [u8; include_bytes!("../node.yaml").len()] = *include_bytes!("../node.yaml");

struct Liar;

export!(Liar);

impl exports::flowcell::node::node::Guest for Liar {
    fn run(node_type: String) -> Result<Step, Failure> {
        match node_type.as_str() {
            "liar.output" => done(Source::Json(r#"{"n":"seven"}"#.to_owned())),
            "liar.body" => body(),
            "liar.honest" => honest(),
            _ => Err(absent(&node_type)),
        }
    }
}

fn body() -> Result<Step, Failure> {
    let until = vec![Wake::Body(Source::Json("{}".to_owned()))];
    Ok(Step::Pause(Pause { until, state: "null".to_owned() }))
}

fn honest() -> Result<Step, Failure> {
    // The import has to be called, or the linker drops it.
    #[cfg(feature = "forbidden")]
    liar::pack::nuke::launch("everything");
    done(Source::Input(String::new()))
}

fn done(source: Source) -> Result<Step, Failure> {
    Ok(Step::Done(Output::One(source)))
}

fn absent(node_type: &str) -> Failure {
    Failure {
        code: "unknown_node_type".to_owned(),
        message: format!("this pack has no code for `{node_type}`"),
        retryable: false,
        retry_after_ms: None,
        details: None,
    }
}
