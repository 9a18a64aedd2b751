//! Running graphs: deciders, driver, journal, hub.
//!
//! | room | what it is |
//! |---|---|
//! | [`fact`] | what happened, as the journal holds it |
//! | [`RunState`] | everything that the facts so far amount to; `apply` folds one more into it |
//! | [`decide`](mod@decide) | what happens now, given the state and something that came in |
//! | [`outstanding`] | what the world still owes the run |
//! | driver | performs what was decided and brings back what comes of it |
//! | [`ports`] | the traits through which a driver uses a store and the clock |
//! | [`memory`], [`sqlite`], [`sql`] | the stores: in memory, in a file, and on a server that processes share |
//! | [`rows`] | the common part of the stores that keep rows |
//! | [`remote`] | commands to runs that another process drives |
//! | [`command`], [`hub`] | commands in |
//! | [`publish`], [`event`] | events out |
//! | [`question`] | which question an answer is for |
//! | [`inputs`] | the inputs of attempts |
//! | [`paging`] | pages of lists |
//! | [`export`](mod@export) | whole runs as documents |
//! | [`live`] | places for the runs that a process drives, and for those below them |
//! | [`world`] | what runs share |
//! | [`run`], [`result`] | starting runs, and what they give |
//! | turn | expressions that take long |
//! | sabotage | ways to break the promise, for tests that must notice |

mod agents;
mod apply;
mod call_log;
mod calls;
mod capture;
pub mod command;
pub mod decide;
mod driver;
pub mod event;
pub mod export;
pub mod fact;
pub mod hub;
pub mod inputs;
pub mod limits;
pub mod live;
pub mod memory;
mod outcome;
pub mod outstanding;
pub mod paging;
pub mod ports;
pub mod publish;
pub mod question;
pub mod remote;
pub mod result;
pub mod rows;
pub mod run;
mod sabotage;
pub mod sql;
pub mod sqlite;
mod state;
#[cfg(test)]
mod tests;
mod timing;
mod turn;
pub mod world;

pub use command::{HubError, RunCommand};
pub use driver::each_unit;
pub use event::{Event, LiveEvent};
pub use hub::{Channel, Hub, Hubs};
pub use live::LiveRuns;
pub use question::{Closed, QuestionRef};
pub use result::{RunError, RunResult, RunStatus, Waiting};
pub use run::{FlowRunner, NoStart, OpenError, PolicyOverride, Repeat, RunOptions};
pub use state::RunState;
pub use world::{Flows, MemoryBudget, NoFlows, Pinned, World};
