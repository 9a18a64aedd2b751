//! MCP servers: a strict fake, and servers of other projects. Tests wait only for processes and connections. Ids in the
//! names of tests stand for rows in the tables of `tests/README.md`: `h16` for hostile MCP servers, `r22` for servers
//! that fail.

mod addresses;
mod answers;
mod configuration;
mod everything;
mod filesystem;
mod kit;
mod lists;
mod programs;
mod secrets;
