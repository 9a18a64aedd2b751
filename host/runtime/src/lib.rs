//! Graphs at run time: deciders, driver, journal, hub.
//!
//! | module | purpose |
//! |---|---|
//! | [`fact`] | the records of the journal |
//! | [`RunState`] | the state that results from the facts so far; `apply` adds one fact |
//! | [`decide`](mod@decide) | the next facts, from the state and an input |
//! | [`outstanding`] | what a run waits for: attempts, timers, child runs, calls, questions, events |
//! | driver | performs decisions and returns their results to the deciders |
//! | [`ports`] | the traits through which a driver uses a store and the clock |
//! | [`memory`], [`sqlite`], [`sql`] | the stores: in memory, in a file, and on a server that processes share |
//! | [`rows`] | the common part of the stores with tables |
//! | [`objects`] | files in an object store beside a database |
//! | pieces | large contents, and the digests of their pieces |
//! | [`remote`] | commands to runs that another process drives |
//! | [`command`], [`hub`] | commands to runs, and the hub that takes them |
//! | [`publish`], [`event`] | the events of runs, made from facts |
//! | [`question`] | the matching of answers to questions |
//! | [`quota`] | quotas that pause the runs of a tenant |
//! | [`inputs`] | the inputs of attempts |
//! | [`earlier`] | a run as it was before one of its events |
//! | [`paging`] | pages of lists |
//! | [`export`](mod@export) | whole runs as documents |
//! | [`live`] | permits for the runs that a process drives, and for their child runs |
//! | [`world`] | what the runs of a tenant share: stores, clock, capabilities, library |
//! | [`run`], [`result`] | starting runs, and their results |
//! | [`versions`] | the versions of its flow that a run has used |
//! | [`FileLock`] | a file that this process keeps locked |
//! | [`blocking`] | work that blocks its thread |
//! | turn | limits the time that expressions take in one poll of a driver |
//! | sabotage | switches that break guarantees, for tests that must detect it |

mod agents;
mod apply;
pub mod blocking;
mod call_log;
mod calls;
mod capture;
pub mod command;
pub mod decide;
mod driver;
pub mod earlier;
pub mod event;
pub mod export;
pub mod fact;
mod file_lock;
pub mod hub;
pub mod inputs;
pub mod limits;
pub mod live;
pub mod memory;
pub mod objects;
mod outcome;
pub mod outstanding;
pub mod paging;
mod pieces;
pub mod ports;
pub mod publish;
pub mod question;
pub mod quota;
pub mod remote;
pub mod result;
pub mod rows;
pub mod run;
mod sabotage;
pub mod shared;
#[cfg(feature = "shared-stores")]
pub mod sql;
pub mod sqlite;
mod state;
#[cfg(test)]
mod tests;
mod timing;
mod turn;
pub mod versions;
pub mod world;

pub use command::{HubError, RunCommand};
pub use driver::each_unit;
pub use event::{Event, LiveEvent};
pub use file_lock::FileLock;
pub use hub::{Channel, Hub, Hubs};
pub use live::LiveRuns;
pub use question::{Closed, QuestionRef};
pub use quota::{QuotaHold, Quotas};
pub use result::{RunError, RunResult, RunStatus, Waiting};
pub use run::{
    FlowRunner, MigrateError, Migration, MigrationPlan, MoveOptions, MovedNode, NoStart, Obstacle, OpenError,
    OtherVersion, Part, PlannedNode, PolicyOverride, Reason, RefusedNode, RenameError, Renamed, Renames, Repeat,
    RetryPlan, RunOptions,
};
pub use state::RunState;
pub use versions::RunGraphs;
pub use world::{Flows, MemoryBudget, NoFlows, Pinned, World};
