//! Tests models, MCP servers, HTTP and files against strict servers.

#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

mod files;
mod mcp;
mod models;
mod outside;
