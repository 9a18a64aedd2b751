//! Tests the tools of agents in the real program: those of the operator's servers, and models that request forbidden
//! calls.

#![cfg(unix)]

mod hostile;
mod mcp;
pub(crate) mod project;
