//! What an operator decides, and keeps of tenants.
//!
//! | room | what it is |
//! |---|---|
//! | [`identity`] | who calls, and what they may do |
//! | [`policy`] | what an operator lets a tenant do |
//! | [`usage`] | what tenants use up in a day |
//! | quota | the error of a tenant that may have no more |
//! | [`vault`] | secrets of tenants, encrypted |
//! | record | whether a tenant is enabled |
//! | [`audit`] | an entry of the audit log |
//! | documents | what the store keeps for operators, as types |

pub mod audit;
pub mod documents;
pub mod identity;
pub mod policy;
pub(crate) mod quota;
pub(crate) mod record;
pub mod usage;
pub mod vault;
