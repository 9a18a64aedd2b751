//! Strings on their way into the vault.

use std::fmt;

use serde::{Deserialize, Serialize};
use zeroize::Zeroizing;

/// A string that is not printed, and is cleared on drop.
#[derive(Clone, PartialEq, Serialize, Deserialize)]
#[serde(from = "String", into = "String")]
pub struct Hidden(Zeroizing<String>);

impl Hidden {
    /// Returns the string itself.
    pub fn text(&self) -> &str {
        &self.0
    }
}

impl From<String> for Hidden {
    fn from(text: String) -> Hidden {
        Hidden(Zeroizing::new(text))
    }
}

impl From<Hidden> for String {
    fn from(hidden: Hidden) -> String {
        hidden.0.to_string()
    }
}

impl fmt::Debug for Hidden {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Hidden")
    }
}
