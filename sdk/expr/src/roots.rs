//! Where the first names of paths get their values.

use crate::json::Json;

/// Gives root names their values.
pub trait Roots {
    /// Returns the value behind a root name; none if nothing has this name.
    fn root(&self, name: &str) -> Option<Json>;

    /// Whether a missing value that nothing tests is an error, as in strict flows. Without it such a value is null.
    fn is_strict(&self) -> bool {
        false
    }
}

/// No names at all.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoRoots;

impl Roots for NoRoots {
    fn root(&self, _name: &str) -> Option<Json> {
        None
    }
}

/// The members of an object are roots; any other value has none.
impl Roots for Json {
    fn root(&self, name: &str) -> Option<Json> {
        self.get(name).cloned()
    }
}

impl<R: Roots + ?Sized> Roots for &R {
    fn root(&self, name: &str) -> Option<Json> {
        (**self).root(name)
    }

    fn is_strict(&self) -> bool {
        (**self).is_strict()
    }
}

/// The same values, for a strict evaluation.
#[derive(Clone, Copy, Debug)]
pub struct Strict<R>(pub R);

impl<R: Roots> Roots for Strict<R> {
    fn root(&self, name: &str) -> Option<Json> {
        self.0.root(name)
    }

    fn is_strict(&self) -> bool {
        true
    }
}

/// Two sources of names; the first wins.
#[derive(Clone, Copy, Debug)]
pub struct Chain<A, B>(pub A, pub B);

impl<A: Roots, B: Roots> Roots for Chain<A, B> {
    fn root(&self, name: &str) -> Option<Json> {
        self.0.root(name).or_else(|| self.1.root(name))
    }

    fn is_strict(&self) -> bool {
        self.0.is_strict() || self.1.is_strict()
    }
}

/// Two sources of names; the first wins.
impl<A: Roots, B: Roots> Roots for (A, B) {
    fn root(&self, name: &str) -> Option<Json> {
        self.0.root(name).or_else(|| self.1.root(name))
    }

    fn is_strict(&self) -> bool {
        self.0.is_strict() || self.1.is_strict()
    }
}
