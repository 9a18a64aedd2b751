//! The data of runs.
//!
//! | module | contents |
//! |---|---|
//! | [`tree`] | a run as a tree of its tasks |
//! | [`inputs`] | the inputs of tasks |
//! | [`waiting`] | the questions, messages and timers that a run waits for |

pub mod inputs;
pub mod tree;
pub mod waiting;
