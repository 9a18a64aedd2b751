//! Outgoing requests, over real connections to this machine only. Tests with ids such as `h12` in their names are
//! attacks in the table of `tests/README.md`.

mod answers;
mod connections;
mod credentials;
mod encodings;
mod failures;
mod guard;
mod images;
mod issuer;
mod kit;
mod large;
mod outages;
mod policies;
mod registries;
mod requests;
mod server;
mod streams;
mod webhooks;
