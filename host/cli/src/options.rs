//! Arguments that commands share.
//!
//! | room | what it is |
//! |---|---|
//! | packs | node types beside the catalog, and what flows may reach |
//! | place | where runs are kept |
//! | channels | front ends of a run |
//! | locked | the packs that are installed |
//! | watch | the log, and a collector |
//! | program | this program, as a child of itself |

pub(crate) mod channels;
pub(crate) mod locked;
mod packs;
mod place;
pub(crate) mod program;
pub(crate) mod watch;

pub(crate) use self::{
    packs::{BesideArgs, KeyArgs, PackArgs},
    place::{Place, StoreArgs},
};
