//! Tests flows that start automatically: at times, by webhooks, and after other runs. The tests control the time.

#![cfg(unix)]

mod commands;
mod ends;
pub(crate) mod hooks;
mod household;
mod respond;
mod schemes;
mod times;
