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
//! A [`Channel`] receives every [`Event`] of a run in order. The [`Hub`] accepts answers, messages and named events,
//! and cancels the run. A [`Host`] is cheap to clone and may run many flows concurrently.
//!
//! | module | contents |
//! |---|---|
//! | [`host`] | the engine, the catalog, and flows: loaded, pinned, run |
//! | [`operate`] | the operator's data: callers, policies, quotas, secrets |
//! | [`observe`] | metrics, traces and logs |
//! | world | tools, services, and stand-ins for them |
//! | [`drive`] | starts and drives runs: triggers, sessions, channels |
//! | notify | tells people outside about runs and trouble |
//! | sign_in | sign-in by OpenID Connect |
//! | consent | consents of people for credentials, which a browser brings back to the console |
//! | [`runs`] | what a run shows: its tasks, their inputs, and its open questions |
//! | [`cases`] | test cases of flows |
//! | [`library`] | a folder of flows with their versions, and runs of flows by name |
//! | [`posted`] | the flows of tenants in a shared store |
//! | [`tenants`] | the tenants of a server, their tokens, and the audit log |
//! | [`control`] | requests of other processes to the owner of a store |
//! | [`packs`] | third-party packs: fetched, pinned, signed |
//! | [`files`] | files that callers upload for a tenant's flows |
//! | [`schedule`] | cron expressions in a time zone, as points in time |
//! | [`shape`] | JSON forms of runs and nodes |
//! | facade | the methods of [`Host`] whose work other modules do |
//! | cache | the user's cache folder |
//! | store_errors | the errors of stores within other errors |

mod cache;
pub mod cases;
#[cfg(unix)]
pub mod consent;
#[cfg(unix)]
pub mod control;
pub mod drive;
mod facade;
pub mod files;
#[cfg(unix)]
pub mod forms;
pub mod host;
pub mod library;
#[cfg(unix)]
pub mod notify;
pub mod observe;
pub mod operate;
pub mod packs;
pub mod posted;
pub mod runs;
pub mod schedule;
pub mod shape;
#[cfg(unix)]
pub mod sign_in;
mod store_errors;
#[cfg(unix)]
pub mod tenants;
mod world;

#[cfg(unix)]
pub use control::AskError;
#[cfg(unix)]
pub use drive::jobs;
pub use drive::{channels, fleet, reload, run_locks, sessions, supervisor, triggers};
pub use flowcell_contract as contract;
pub use flowcell_contract::{Catalog, Json, Manifest, NodeType, RunId, similar};
pub use flowcell_engine::{
    Cost, Inspection, Limits, PackErrorKind, Profile, compile, embed, embed_readme, end_runtime, inspect, is_reserved,
};
pub use flowcell_flow::schema::{agentic as agentic_schema, steps as steps_schema};
pub use flowcell_flow::{
    Diagnostic, Location, Severity, Source, draw, duration, explain, from_defaults, graph, labels, outline, rewrite,
    schema, script,
};
pub use flowcell_runtime::{
    Channel, Closed, Event, FileLock, FlowRunner, Hub, HubError, LiveEvent, MigrationPlan, MoveOptions, NoStart,
    OpenError, PlannedNode, PolicyOverride, QuestionRef, RenameError, Renamed, Renames, Repeat, RetryPlan, RunCommand,
    RunError, RunOptions, RunResult, RunStatus, Waiting,
    export::ExportError,
    fact::{BlockReason, Resolution, RunEnd, Write},
    limits::MAX_COUNTED,
    objects::Chosen,
    ports::{Counts, Filter, Group, LabelChange, MaybeStoreError, RunRow, Runs, Swept, Undeletable},
    rows,
    run::new_run_id,
    shared::{Offer, SharedRuns, StoreProcess},
    sqlite::{
        BackupError, Compacted, FreeRoom, NewCopy, OpenStoreError, Reader, SqliteStore, release_reserve, remove_store,
        stop_process,
    },
};
pub use flowcell_services::credentials;
pub use flowcell_services::{
    distribution,
    egress::{AddressRange, BreakerState, OpenBreaker, OutboundLimits},
    model::Providers,
    watchdog,
    webhook::{SecretSource, SigningKey, Webhook},
};
pub use host::error::{Error, InputError, LoadError, StartError};
pub use host::eval::{EvalError, Evaluated, MAX_EXPRESSION_BYTES};
pub use host::loaded::{CheckedFlow, CheckedInput, LoadedFlow, UnknownNode};
pub use host::retention::{DeleteError, LabelRunError, Removal};
pub use host::stores::{choose_blobs, open_shared_runs, open_whole_shared_store};
pub use host::{Host, HostBuilder, agentic};
pub use library::service::{FlowError, FlowService, StepLine};
pub use library::versions::{self, FlowVersion, MoveError, NoVersion, RetryError};
pub use library::{
    FlowEntry, FlowFiles, FlowLibrary, FlowSource, LibraryError, Misplaced, PostedFlow, PushError, StoredFlow,
    misplaced_flows,
};
pub use operate::{
    account, address, audit, identity, pkce, policy, quota::QuotaError, retention, settings_file, usage, vault,
};
pub use runs::{agents, facts, inbox, inputs, timeline, tree, waiting};
pub use world::measure::Probe;
pub use world::simulate::Simulate;
pub use world::test_run::{CallFixture, Fixtures, NodeFixture};
