//! The operator's decisions, and the data of tenants.
//!
//! | module | contents |
//! |---|---|
//! | [`identity`] | callers and their scopes |
//! | [`address`] | addresses of servers, and whether one is this machine |
//! | [`account`] | people and machines that an issuer has identified |
//! | [`pkce`] | proofs that a code is used by the client that has asked for it |
//! | [`policy`] | the operator's policy for a tenant |
//! | [`usage`] | the daily usage of tenants |
//! | quota | the error of a tenant over quota |
//! | [`vault`] | encrypted secrets of tenants |
//! | record | the record of a tenant, and whether the tenant is disabled |
//! | [`audit`] | the entries of the audit log |
//! | [`settings_file`] | the operator's files of settings for a server |
//! | documents | typed documents of operators in the store |

pub mod account;
pub mod address;
pub mod audit;
pub mod documents;
pub mod identity;
pub mod pkce;
pub mod policy;
pub(crate) mod quota;
pub(crate) mod record;
pub mod retention;
pub mod settings_file;
pub mod usage;
pub mod vault;
