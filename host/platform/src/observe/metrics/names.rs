//! The values of a label, of which there are not more than there may be.

use std::{collections::HashSet, sync::Arc};

use parking_lot::RwLock;

/// What stands for every name that came too late.
const OTHER: &str = "other";

/// The names of one kind. The first that come are kept, and are the same from then on.
pub(super) struct Names {
    known: RwLock<HashSet<Arc<str>>>,
    most: usize,
    other: Arc<str>,
}

impl Names {
    pub(super) fn new(most: usize) -> Names {
        Names { known: RwLock::default(), most, other: OTHER.into() }
    }

    /// The name as it is told.
    pub(super) fn of(&self, name: &str) -> Arc<str> {
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
}
