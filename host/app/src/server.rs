//! What is served over HTTP.
//!
//! | room | what it is |
//! |---|---|
//! | [`spec6`] | the routes of the flow engine that came before, to the letter |

pub mod spec6;
