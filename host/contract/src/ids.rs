//! Identifiers, each with a type of its own. The doc of each type says where the identifier is unique: in a store, a
//! tenant, a flow or a run.

use std::{fmt, sync::Arc};

use serde::{Deserialize, Serialize};

macro_rules! id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(pub Arc<str>);

        impl $name {
            /// Returns the identifier as text.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl From<&str> for $name {
            fn from(text: &str) -> Self {
                Self(text.into())
            }
        }

        impl From<String> for $name {
            fn from(text: String) -> Self {
                Self(text.into())
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str(&self.0)
            }
        }
    };
}

id! {
    /// The name of a tenant, an isolated owner of flows, runs and state; unique within a store.
    Tenant
}
id! {
    /// The id of a run; unique within a tenant.
    RunId
}
id! {
    /// The id of a node; unique within a flow.
    NodeId
}
id! {
    /// The path of a pass, such as `process[3]`, or `outer[1].inner[2]` for a body inside a body; unique within a run.
    /// It is empty for the flow itself, outside all bodies.
    ScopePath
}

impl Tenant {
    /// Returns the tenant of the command line, `local`.
    pub fn local() -> Tenant {
        Tenant::from("local")
    }
}

impl RunId {
    /// Maximum bytes of an id that a client may name.
    pub const MAX_BYTES: usize = 200;

    /// Returns whether a client may name a run by this text: 1 to 200 ASCII letters, digits, and any of `-_.:/[]`.
    pub fn is_named_by(text: &str) -> bool {
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.:/[]".contains(&byte);
        (1..=RunId::MAX_BYTES).contains(&text.len()) && text.bytes().all(plain)
    }
}

impl ScopePath {
    /// Returns the scope of the flow itself, outside all bodies.
    pub fn root() -> ScopePath {
        ScopePath::from("")
    }

    /// Returns the address of a node within its run. In the root scope it is the node's id, such as `approve`. In any
    /// other scope the path of the pass precedes the id, as in `process[3].approve`.
    pub fn address(&self, node: &NodeId) -> String {
        if self.0.is_empty() { node.to_string() } else { format!("{self}.{node}") }
    }
}

/// A node type as a flow writes it: `control.if`, or with a version `acme.greet@1.2`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct TypeRef {
    /// The name, without a version.
    pub name: Arc<str>,
    /// The leading parts of the wanted version: `1`, `1.2` or `1.2.3`. `None` admits every version.
    pub version: Option<Arc<str>>,
}

impl TypeRef {
    /// Splits `name@version`. This function does not validate the parts; the checker of flows does.
    pub fn parse(text: &str) -> TypeRef {
        match text.split_once('@') {
            Some((name, version)) => TypeRef { name: name.into(), version: Some(version.into()) },
            None => TypeRef { name: text.into(), version: None },
        }
    }

    /// Returns true if `version` begins with the parts of the wanted version. A pre-release must be named exactly.
    pub fn admits(&self, version: &semver::Version) -> bool {
        let Some(wanted) = &self.version else { return true };
        if wanted.parse::<semver::Version>().is_ok_and(|wanted| wanted == *version) {
            return true;
        }
        let actual = [version.major, version.minor, version.patch];
        let parts: Vec<_> = wanted.split('.').map(|part| part.parse::<u64>().ok()).collect();
        version.pre.is_empty()
            && parts.len() <= 3
            && parts.iter().zip(actual).all(|(part, actual)| *part == Some(actual))
    }
}

impl fmt::Display for TypeRef {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.version {
            Some(version) => write!(formatter, "{}@{version}", self.name),
            None => formatter.write_str(&self.name),
        }
    }
}
