//! Tests flows as tools over MCP: with the real program through pipes, and with a server over real connections.

#![cfg(unix)]

mod conformance;
mod http;
mod pipe;
mod tasks;
