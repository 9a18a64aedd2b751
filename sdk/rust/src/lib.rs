//! Write Flowcell node types in Rust.
//!
//! A node type is a function and an entry in `node.yaml`:
//!
//! ```
//! use flowcell_sdk::prelude::*;
//!
//! #[derive(Deserialize)]
//! struct Greet {
//!     name: String,
//! }
//!
//! #[derive(Serialize)]
//! struct Greeting {
//!     text: String,
//! }
//!
//! fn greet(input: Greet) -> Result<Greeting> {
//!     Ok(Greeting { text: format!("Hello {}", input.name) })
//! }
//!
//! // In a pack: flowcell_sdk::pack! { manifest: "node.yaml", "acme.greet" => greet }
//! let step = greet.run(&Task::given(Given { input: json!({ "name": "Ada" }), ..Given::default() })).unwrap();
//! assert!(matches!(step, Step::Done(output) if output == Output::value(json!({ "text": "Hello Ada" })).unwrap()));
//! ```
//!
//! The function of a node that pauses takes a [`Task`] and returns a [`Step`]. If the step is a [`Pause`], the node's
//! instance ends. When an event ends the pause, the node runs again in a new instance:
//!
//! ```
//! use flowcell_sdk::prelude::*;
//!
//! fn nap(task: &Task) -> Result<Step> {
//!     match task.woken()? {
//!         None => Ok(Pause::after_ms(1000).into()),
//!         Some(_) => Ok(Output::woken("/value/elapsedMs").into()),
//!     }
//! }
//! # let _ = nap.run(&Task::given(Given::default())).unwrap();
//! ```

mod calls;
mod failure;
pub mod file;
mod node;
mod pause;
#[cfg(not(target_family = "wasm"))]
mod script;
mod source;
mod step;
mod task;
pub mod testing;
#[doc(hidden)]
pub mod wit;

pub use self::{
    calls::{agent, cache, files, http, log, metrics, model, queue, services, state, tools},
    failure::{Failure, Result},
    node::{Node, OfInput, OfInputAndConfig, OfTask, OfTaskAndInput},
    pause::{FanOut, FlowCall, Pause, Question, Wake},
    source::Source,
    step::{Output, Step},
    task::{Given, Info, Task, Woken, WokenError, given},
};
#[doc(hidden)]
pub use self::{node::answer, node::unknown};

/// The items that nearly every node uses.
pub mod prelude {
    pub use serde::{Deserialize, Serialize};
    pub use serde_json::{Value, json};

    pub use crate::{Failure, Given, Node, Output, Pause, Question, Result, Source, Step, Task, Wake, Woken};
}

/// Makes the crate a pack: exports its node types and embeds its manifest.
///
/// ```ignore
/// flowcell_sdk::pack! {
///     manifest: "node.yaml",
///     "acme.greet" => greet,
///     "acme.nap" => nap,
/// }
/// ```
///
/// The manifest's path is relative to the crate's directory. The macro also defines `run_node(node_type, &Task)`, which
/// tests use to run a node type without a host, and `MANIFEST`, the text of the manifest.
#[macro_export]
macro_rules! pack {
    (manifest: $manifest:literal, $($node_type:literal => $run:expr),+ $(,)?) => {
        /// The manifest's text.
        #[cfg_attr(not(test), allow(dead_code, reason = "for tests"))]
        const MANIFEST: &str = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/", $manifest));

        /// Runs one task of a node type.
        fn run_node(node_type: &str, task: &$crate::Task) -> $crate::Result<$crate::Step> {
            match node_type {
                $($node_type => $crate::Node::run(&$run, task),)+
                unknown => Err($crate::unknown(unknown)),
            }
        }

        /// Implements the WIT interface through which the host runs the pack.
        struct Pack;

        impl $crate::wit::exports::flowcell::node::node::Guest for Pack {
            fn run(
                node_type: String,
            ) -> ::core::result::Result<
                $crate::wit::flowcell::node::types::Step,
                $crate::wit::flowcell::node::types::Failure,
            > {
                $crate::answer(|task| run_node(&node_type, task))
            }
        }

        #[cfg(target_family = "wasm")]
        const _: () = {
            // The host reads this section without running the pack.
            #[used]
            #[unsafe(link_section = "flowcell:manifest")]
            static SECTION: [u8; MANIFEST.len()] = *include_bytes!(concat!(env!("CARGO_MANIFEST_DIR"), "/", $manifest));
        };

        $crate::wit::export_node!(Pack with_types_in $crate::wit);
    };
}
