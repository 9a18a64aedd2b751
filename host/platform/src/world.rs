//! What runs meet outside of their flow, and what stands in for it in tests.
//!
//! | room | what it is |
//! |---|---|
//! | tools | what an agent may call |
//! | services | what the operator gives flows under names |
//! | resolver | look-ups of names, shared fairly among tenants |
//! | simulate | what is answered by stand-ins |
//! | rehearsal | runs with given results and virtual time |

pub(crate) mod rehearsal;
pub(crate) mod resolver;
pub(crate) mod services;
pub(crate) mod simulate;
pub(crate) mod tools;
