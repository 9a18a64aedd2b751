//! What a run tells.
//!
//! | room | what it is |
//! |---|---|
//! | [`tree`] | a run as a tree of its tasks |
//! | [`inputs`] | the inputs of tasks |
//! | [`waiting`] | what a run waits for |

pub mod inputs;
pub mod tree;
pub mod waiting;
