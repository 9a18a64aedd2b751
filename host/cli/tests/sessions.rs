//! Tests agentic flows in sessions with the real program: the state that one run leaves to the next, and its safety
//! when the process dies.

#![cfg(unix)]

mod command;
mod examples;
mod guard;
mod killed;
mod loops;
mod matrix;
mod project;
