//! The table of the capabilities that every host has. All code takes the names of capabilities from this table.
//!
//! A new capability needs a row here and a WIT interface of the same name. It also needs the code that links it to the
//! sandbox, and the code that performs its calls.

use crate::Effect;

/// The member of `grants` that lists secrets. Although it stands beside capabilities, it is none: the host adds the
/// secrets to calls of `http`.
pub const SECRETS: &str = "secrets";

/// The member of `grants` that lists credentials. Like [`SECRETS`], it is no capability.
pub const CREDENTIALS: &str = "credentials";

/// The form of the grants of a capability.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GrantShape {
    /// A list of origins: `["https://api.example.com"]`.
    Origins,
    /// Path patterns: `{ read: […], write: […] }`.
    Paths,
    /// A list of secret names, or of objects that hold such a name.
    Secrets,
    /// The names of credentials, see [`written_credentials`](crate::written_credentials).
    Credentials,
    /// A list of name patterns, such as the one in this text.
    Patterns(&'static str),
}

impl GrantShape {
    /// Returns the form that the member `name` of `grants` must have. Returns `None` if the host has no such member, or
    /// if the capability needs no grant.
    pub fn named(name: &str) -> Option<GrantShape> {
        match name {
            SECRETS => Some(GrantShape::Secrets),
            CREDENTIALS => Some(GrantShape::Credentials),
            _ => BuiltIn::named(name)?.grant(),
        }
    }

    /// Returns the form as messages show it, such as `[…]`.
    pub fn outline(self) -> &'static str {
        match self {
            GrantShape::Paths => "{ read: […], write: […] }",
            GrantShape::Origins | GrantShape::Secrets | GrantShape::Credentials | GrantShape::Patterns(_) => "[…]",
        }
    }
}

/// One row of the table: a capability and its properties.
struct Row {
    name: &'static str,
    effect: Effect,
    grant: Option<GrantShape>,
    has_stand_in: bool,
}

macro_rules! table {
    ($($(#[$doc:meta])* $variant:ident: $name:literal, $effect:ident, $grant:expr, $stand_in:literal;)+) => {
        /// A capability that every host has. Its WIT interface is `flowcell:host/NAME`.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum BuiltIn {
            $($(#[$doc])* $variant,)+
        }

        impl BuiltIn {
            /// All capabilities, in the order of the table.
            pub const ALL: &[BuiltIn] = &[$(BuiltIn::$variant),+];

            const fn row(self) -> Row {
                match self {
                    $(BuiltIn::$variant => {
                        Row { name: $name, effect: Effect::$effect, grant: $grant, has_stand_in: $stand_in }
                    })+
                }
            }
        }
    };
}

// Each row has four columns: the name, the default effect, the form of its grants, and whether `--simulate` can answer
// its calls. The default effect applies unless the node type declares another one. Capabilities that need no grant
// have `None`.
table! {
    /// Lines of text for people.
    Log: "log", Inert, None, false;
    /// Measured numbers, with a name and tags.
    Metrics: "metrics", Inert, None, false;
    /// Values that a flow keeps between runs.
    State: "state", Transactional, None, false;
    /// Values that nodes store, and that the host may drop at any time.
    Cache: "cache", Inert, None, false;
    /// Requests over HTTP to granted origins.
    Http: "http", AtLeastOnce, Some(GrantShape::Origins), true;
    /// Requests to language models.
    Model: "model", AtLeastOnce, Some(GrantShape::Patterns("anthropic/*")), true;
    /// Calls of granted tools.
    Tools: "tools", AtLeastOnce, Some(GrantShape::Patterns("data.*")), true;
    /// Reports about agent runs.
    Agent: "agent", Inert, None, false;
    /// Files of the tenant, at granted paths.
    Files: "files", Idempotent, Some(GrantShape::Paths), false;
    /// Services that the operator defines.
    Services: "services", AtLeastOnce, Some(GrantShape::Patterns("img")), true;
}

impl BuiltIn {
    /// Returns the capability with this name, or `None` if no capability has it.
    pub fn named(name: &str) -> Option<BuiltIn> {
        BuiltIn::ALL.iter().copied().find(|capability| capability.name() == name)
    }

    /// Returns the name that calls, grants, manifests and WIT use.
    pub const fn name(self) -> &'static str {
        self.row().name
    }

    /// Returns the effect that calls of this capability have unless the node type declares another effect.
    pub const fn effect(self) -> Effect {
        self.row().effect
    }

    /// Returns the form of the grants of this capability; `None` if it needs no grant.
    pub const fn grant(self) -> Option<GrantShape> {
        self.row().grant
    }

    /// Returns true if the option `--simulate` can answer the calls of this capability in its place.
    pub const fn has_stand_in(self) -> bool {
        self.row().has_stand_in
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn capabilities_that_leave_the_host_need_grants_and_no_others_do() {
        for capability in BuiltIn::ALL {
            assert_eq!(capability.grant().is_some(), capability.effect().is_external(), "{}", capability.name());
            assert!(capability.grant().is_some() || !capability.has_stand_in(), "{}", capability.name());
        }
    }

    #[test]
    fn every_name_finds_its_capability() {
        for (number, capability) in BuiltIn::ALL.iter().enumerate() {
            assert_eq!(BuiltIn::named(capability.name()), Some(*capability));
            assert_eq!(*capability as usize, number);
        }
        assert_eq!(BuiltIn::named(SECRETS), None);
        assert_eq!(GrantShape::named(SECRETS), Some(GrantShape::Secrets));
    }
}
