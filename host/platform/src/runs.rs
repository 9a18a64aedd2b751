//! What a stored run shows to users: its tasks, their inputs, and what it waits for.
//!
//! | module | contents |
//! |---|---|
//! | [`facts`] | the input of a run, and the packs that it is pinned to |
//! | [`tree`] | a run as a tree of its tasks |
//! | [`inputs`] | the inputs of tasks |
//! | [`waiting`] | the questions, messages and timers that a run waits for |

pub mod facts;
pub mod inputs;
pub mod tree;
pub mod waiting;
