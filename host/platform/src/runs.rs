//! What a stored run shows to users: its tasks, their inputs, and what it waits for.
//!
//! | module | contents |
//! |---|---|
//! | [`agents`] | the agent runs of a run, with their conversations |
//! | [`facts`] | the input of a run, and the packs that it is pinned to |
//! | [`timeline`] | when the tasks of a run began and ended, in columns |
//! | [`tree`] | a run as a tree of its tasks |
//! | [`inputs`] | the inputs of tasks |
//! | [`inbox`] | what all runs of a tenant wait for a person to do |
//! | [`waiting`] | the questions, messages and timers that a run waits for |

pub mod agents;
pub mod facts;
pub mod inbox;
pub mod inputs;
pub mod timeline;
pub mod tree;
pub mod waiting;
