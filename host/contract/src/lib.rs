//! The types and traits that both sides of the sandbox boundary share. This crate performs no I/O.
//!
//! The runtime passes an [`Attempt`] to a [`NodeRunner`]. The runner answers with a [`Step`] or a [`Failure`], and
//! reaches everything outside the sandbox only through [`Calls`]. Neither side depends on the other: the application
//! connects them.

mod about;
mod attempt;
mod attempt_end;
mod blobs;
mod builtin;
mod call;
mod capability;
mod catalog;
mod credential;
mod failure;
mod grant;
pub mod host_files;
pub mod http_answer;
mod ids;
mod manifest;
mod node_limits;
pub mod shell;
mod step;
pub mod text;
mod value;
mod yaml;

pub use about::About;
pub use attempt::{Attempt, NodeRunner, StepResult};
pub use attempt_end::{AttemptEnd, EndAction, EndRegistration};
pub use blobs::{
    BlobWriter, Blobs, MAX_FILE_BYTES, MAX_WHOLE_BYTES, PIECE_BYTES, WholeWriter, part, too_large_for_memory,
};
pub use builtin::{BuiltIn, CREDENTIALS, GrantShape, SECRETS};
pub use call::{Arrival, Call, Calls, Effect};
pub use capability::{Admission, Ask, Caller, Capability, Outgoing, Prepared, Progress};
pub use catalog::{Catalog, Lookup};
pub use credential::{
    CredentialGrant, CredentialKind, CredentialRequest, KeyPlace, MAX_CREDENTIAL_HOSTS, MAX_CREDENTIAL_NAME,
    MAX_NODE_CREDENTIALS, WrittenCredential, check_credential_name, written_credentials,
};
pub use failure::{Failure, code};
pub use flowcell_expr::limits::{CONTAINER, JSON_VALUES};
pub use flowcell_expr::{
    Json, functions, instant_milliseconds,
    json::{Object, SizeError},
    similar,
};
pub use grant::Grants;
pub use ids::{NodeId, RunId, ScopePath, Tenant, TypeRef};
pub use manifest::{
    BUILT_IN_PACKS, BodyTrait, CapabilityRequest, Digest, ErrorDoc, Example, Manifest, ManifestError, Mark, MarkKind,
    NodeType, Trait,
};
pub use node_limits::{
    GrantedLimits, LimitRefusal, MAX_MEMORY_MIB, MAX_OUTPUT_KIB, NodeLimits, USUAL_LARGE_ATTEMPTS, USUAL_MEMORY_MIB,
    USUAL_OUTPUT_KIB, USUAL_TIMEOUT_MS,
};
pub use step::{Choice, FanOut, FlowCall, Pause, Question, Step, Wake};
pub use value::{BINARY, BlobRef, VALUE_BYTES, Value};
pub use yaml::{yaml_error, yaml_reason};
