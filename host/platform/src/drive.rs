//! Starts runs and drives them.
//!
//! | room | contents |
//! |---|---|
//! | [`driving`] | drives every run that is ready |
//! | [`triggers`] | starts flows by themselves |
//! | [`sessions`] | keeps the state of agentic flows between runs |
//! | [`channels`] | front ends: files, webhooks and programs |

pub mod channels;
pub mod driving;
pub mod sessions;
pub mod triggers;
