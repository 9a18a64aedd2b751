//! Limits the number of values of a label.

use std::{collections::HashSet, sync::Arc};

use parking_lot::RwLock;

/// The label value for names beyond the limit.
pub(super) const OTHER: &str = "other";

/// The known values of one label, such as the tenants. The first `most` names get a label value of their own. All
/// later names share the value `other`.
pub(super) struct Names {
    known: RwLock<HashSet<Arc<str>>>,
    most: usize,
    other: Arc<str>,
}

impl Names {
    pub(super) fn new(most: usize) -> Names {
        Names { known: RwLock::default(), most, other: OTHER.into() }
    }

    /// Returns the label value for a name: the name itself, or `other` if the limit is reached. A name `other` never has
    /// a value of its own, since later names share it. The empty name, which stands for the operators, always has one.
    pub(super) fn label(&self, name: &str) -> Arc<str> {
        if name == OTHER {
            return self.other.clone();
        }
        if name.is_empty() {
            return "".into();
        }
        if let Some(known) = self.known.read().get(name) {
            return known.clone();
        }
        let mut known = self.known.write();
        if known.len() >= self.most {
            return known.get(name).unwrap_or(&self.other).clone();
        }
        let name: Arc<str> = name.into();
        known.insert(name.clone());
        name
    }

    /// Forgets a name. Returns whether it had a label value of its own.
    pub(super) fn forget(&self, name: &str) -> bool {
        self.known.write().remove(name)
    }

    /// Returns whether a name has a label value of its own, or gets one at its first use.
    pub(super) fn is_apart(&self, name: &str) -> bool {
        let known = self.known.read();
        name != OTHER && (known.contains(name) || known.len() < self.most)
    }
}
