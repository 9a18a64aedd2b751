//! Flowcell as a library: load a flow, run it, watch it.
//!
//! ```
//! use flowcell_platform::{Host, RunOptions, RunStatus, Source};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let host = Host::builder().build()?;
//! let flow = host.load_source(Source {
//!     name: "hello.yaml".into(),
//!     text: r#"
//!         flow: { name: hello, input: { who: world } }
//!         nodes:
//!           - { id: greet, type: control.noop, input: { value: "Hello {{ flow.input.who }}" } }
//!     "#
//!     .into(),
//! })?;
//!
//! let runner = host.runner(&flow, RunOptions::default())?;
//! runner.start_session(); // From here on `runner.hub()` takes commands.
//! let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
//! let result = runtime.block_on(runner.run());
//!
//! assert_eq!(result.status, RunStatus::Succeeded);
//! assert_eq!(result.outputs.to_text(), r#"{"greet":{"value":"Hello world"}}"#);
//! # Ok(())
//! # }
//! ```
//!
//! A [`Channel`] sees every [`Event`] of a run in order; the [`Hub`] takes answers, messages and named events, and
//! cancels. A [`Host`] is cheap to clone and may run many flows at a time.
//!
//! | room | what it is |
//! |---|---|
//! | [`Host`] | the engine, the catalog and what runs share |
//! | cache | the user's folder for what may be deleted |
//! | catalog | the packs that are part of this program |
//! | content | what a flow was checked from, for runs to pin |
//! | inspector | scripts looked through, in their sandbox |
//! | folder | what a flow may read: files beneath its folder, and the flows beside it |
//! | [`channels`] | front ends: files, webhooks and programs |
//! | metrics | numbers about what a process does |
//! | observed | what has happened in runs, for those who count and trace |
//! | loaded | a checked flow, ready to run |
//! | [`FlowService`] | flows run by their names, and the log of their steps |
//! | [`library`] | a folder of flows with their versions |
//! | [`control`] | what other processes ask of the owner of a store |
//! | [`driving`] | driving every run that can move |
//! | [`packs`] | packs of others: brought, pinned, signed |
//! | [`policy`] | what an operator lets a tenant do |
//! | [`schedule`] | lines of cron in a time zone, as points in time |
//! | `quota` | whether there may be another run |
//! | [`shape`] | things as JSON |
//! | projection | the rows of sessions, as they follow from facts |
//! | resolver | look-ups of names, shared fairly among tenants |
//! | rehearsal | runs with given results and virtual time |
//! | services | what the operator gives flows under names |
//! | simulate | what is answered by stand-ins |
//! | [`agentic`] | where agentic flows and agents are found |
//! | [`sessions`] | what agentic flows go on with, run after run |
//! | [`identity`] | who calls, and what they may do |
//! | [`tenants`] | tenants of a server, their tokens, and the audit log |
//! | [`usage`] | what tenants use up in a day |
//! | [`audit`] | an entry of that log |
//! | documents | what the registry keeps, as types |
//! | [`vault`] | secrets of tenants, encrypted |
//! | telemetry | traces and numbers for a collector |
//! | [`tree`] | a run as a tree of its tasks |
//! | [`inputs`] | the inputs of tasks |
//! | [`triggers`] | flows that start by themselves |
//! | [`waiting`] | what a run waits for |
//! | [`files`] | files that somebody has put for a tenant's flows |
//! | error | what can go wrong before a run |

pub mod agentic;
pub mod audit;
mod blocking;
mod cache;
mod catalog;
pub mod channels;
mod content;
#[cfg(unix)]
pub mod control;
pub mod documents;
pub mod driving;
pub mod error;
pub mod files;
pub mod flows;
pub mod folder;
mod granted;
mod home;
pub mod host;
pub mod identity;
pub mod inputs;
mod inspector;
pub mod library;
mod loaded;
pub mod metrics;
mod observed;
pub mod packs;
pub mod policy;
mod projection;
mod quota;
mod reading;
mod rehearsal;
mod resolver;
pub mod schedule;
mod services;
pub mod sessions;
pub mod shape;
mod simulate;
mod telemetry;
#[cfg(unix)]
pub mod tenants;
mod tools;
pub mod tree;
pub mod triggers;
pub mod usage;
pub mod vault;
pub mod waiting;

#[cfg(unix)]
pub use control::AskError;
pub use error::{Error, InputError, LoadError, QuotaError, StartError};
pub use flowcell_contract as contract;
pub use flowcell_contract::{Catalog, Json, Manifest, NodeType, RunId};
pub use flowcell_engine::{Inspection, Limits, Refusal, compile, embed, inspect, is_reserved};
pub use flowcell_flow::schema::{agentic as agentic_schema, steps as steps_schema};
pub use flowcell_flow::{Diagnostic, Severity, Source, draw, graph, outline, schema, script, similar};
pub use flowcell_runtime::{
    Channel, Closed, Event, FlowRunner, Hub, HubError, LiveEvent, NoStart, OpenError, PolicyOverride, QuestionRef,
    Repeat, Request, RunError, RunOptions, RunResult, RunStatus, Waiting,
    export::ExportError,
    fact::{BlockReason, Resolution, RunEnd, Write},
    rows::{self, Runs},
    server::{Offer, OpenServerError, Options, ServerStore},
    sqlite::{Filter, OpenStoreError, Reader, RunRow, SqliteStore, Swept, stop_process},
};
pub use flowcell_services::{
    distribution,
    egress::AddressRange,
    model::Providers,
    watchdog,
    webhook::{SecretSource, SigningKey, Webhook},
};
pub use flows::{FlowError, FlowService, StepLine};
pub use host::{Host, HostBuilder};
pub use library::{FlowEntry, FlowLibrary, LibraryError, StoredFlow};
pub use loaded::{CheckedFlow, LoadedFlow};
pub use rehearsal::{Given, GivenCall, Script};
pub use simulate::Simulate;
