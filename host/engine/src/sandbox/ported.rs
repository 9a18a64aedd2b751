//! What code finds that was written for WASI and knows nothing of Flowcell: the same capabilities behind other interfaces.
//!
//! | room | what it is |
//! |---|---|
//! | [`requests`] | `wasi:http`, by calls of `http` |
//! | [`folder`] | `wasi:filesystem`, by calls of `files`: the tenant's folder is `/` |
//! | [`content`] | what an open file has in it |

mod content;
mod folder;
mod requests;

pub(crate) use self::{
    folder::{Folder, Folders},
    requests::Requests,
};
