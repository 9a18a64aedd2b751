//! Servers elsewhere, with which commands talk over HTTP.
//!
//! | module | content |
//! |---|---|
//! | address | the address of a server |
//! | browser | the browser of the user |
//! | client | requests to a server, which follow no redirects |
//! | logins | the stored logins, a private file for each server |
//! | loopback | the answer of a browser, on a port of this machine |

mod address;
pub(crate) mod browser;
mod client;
pub(crate) mod logins;
pub(crate) mod loopback;

pub(crate) use self::{
    address::ServerAddress,
    client::{Answer, MAX_ANSWER_BYTES, Refused, Server, absolute, exit_of, read_file},
};
