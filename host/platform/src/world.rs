//! The tools and services that runs call, and the stand-ins that replace calls in simulations and tests.
//!
//! | module | contents |
//! |---|---|
//! | tools | the tools that an agent may call |
//! | services | the operator's named services for flows |
//! | resolver | DNS look-ups, shared fairly between tenants |
//! | measure | the costs of attempts in test runs |
//! | simulate | the capabilities that stand-ins answer |
//! | test_run | test runs with fixtures and virtual time |

pub(crate) mod measure;
pub(crate) mod resolver;
pub(crate) mod services;
pub(crate) mod simulate;
pub(crate) mod test_run;
pub(crate) mod tools;
