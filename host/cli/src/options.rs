//! Arguments that commands share.
//!
//! | module | content |
//! |---|---|
//! | packs | node types besides the catalog, and everything outside the sandbox that nodes may reach |
//! | store_location | the store of runs |
//! | channels | the front ends of a run |
//! | tenant | a tenant, and the store with its data |
//! | locked | the installed packs |
//! | notify | the file of notifications |
//! | retention | the rules by which old runs are removed |
//! | outbound | the limits on requests to other servers |
//! | room | the free room of the disk |
//! | sign_in | the file of the issuers with which people sign in |
//! | settings_file | the reading of such files |
//! | server | the database server of a shared store |
//! | tls | the certificate of a server |
//! | watch | the log and the OpenTelemetry collector |
//! | node_limits | the largest limits of node types |
//! | program | commands that this program runs as a child of itself |

pub(crate) mod channels;
pub(crate) mod filter;
pub(crate) mod locked;
mod node_limits;
pub(crate) mod notify;
pub(crate) mod outbound;
mod packs;
pub(crate) mod program;
pub(crate) mod retention;
pub(crate) mod room;
pub(crate) mod server;
mod settings_file;
pub(crate) mod sign_in;
mod store_location;
mod tenant;
pub(crate) mod tls;
pub(crate) mod watch;

pub(crate) use self::{
    packs::{BesideArgs, KeyArgs, PackArgs, user_settings_folder},
    store_location::{StoreArgs, StoreLocation},
    tenant::TenantArgs,
};
