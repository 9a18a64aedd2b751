//! WASI interfaces for ported code that does not know Flowcell. Their functions make calls of the usual capabilities.
//!
//! | module | content |
//! |---|---|
//! | [`requests`] | `wasi:http`, by calls of `http` |
//! | [`folder`] | `wasi:filesystem`, by calls of `files`: the tenant's folder is `/` |
//! | [`content`] | the bytes of an open file |

mod content;
mod folder;
mod requests;

pub(crate) use self::{
    folder::{Folder, Folders, write_back},
    requests::{Requests, denied_http, live_http},
};
