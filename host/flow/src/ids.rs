//! The rules of the language that editors apply, too: those for ids, for uses of fragments, and for bindings.

pub use crate::{
    fields::{ID_HELP, check_id, is_id},
    fragments::{USE_KEYS, id_in_use},
    literal::is_one_binding,
};
