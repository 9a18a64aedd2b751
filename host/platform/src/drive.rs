//! What starts runs and drives them.
//!
//! | room | what it is |
//! |---|---|
//! | [`driving`] | driving every run that can move |
//! | [`triggers`] | flows that start by themselves |
//! | [`sessions`] | what agentic flows go on with, run after run |
//! | [`channels`] | front ends: files, webhooks and programs |

pub mod channels;
pub mod driving;
pub mod sessions;
pub mod triggers;
