//! Servers elsewhere, with which commands talk over HTTP.
//!
//! | module | content |
//! |---|---|
//! | address | the address of a server |
//! | client | requests to a server, which follow no redirects |
//! | logins | the stored logins, a private file for each server |
//! | loopback | the answer of a browser, on a port of this machine |

mod address;
mod client;
pub(crate) mod logins;
pub(crate) mod loopback;

pub(crate) use self::{
    address::ServerAddress,
    client::{Answer, MAX_ANSWER_BYTES, Refused, Server, absolute, exit_of, read_file},
};
