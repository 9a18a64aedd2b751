//! Tests scripts in the real program: the commands for authors, the examples, and hostile scripts.

mod commands;
mod examples;
mod facts;
mod flow_services_v1;
mod hostile;
mod replayed;
