//! Sources of root values: the values of the names with which paths start.

use crate::json::Json;

/// Provides the values of root names.
pub trait Roots {
    /// Returns the value of a root; `None` if the root does not exist.
    fn root(&self, name: &str) -> Option<Json>;

    /// Returns true if a missing value without a test is an error, as in strict flows. Default: false; such a value is
    /// null.
    fn is_strict(&self) -> bool {
        false
    }
}

/// An empty set of roots, for expressions that read no values.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoRoots;

impl Roots for NoRoots {
    fn root(&self, _name: &str) -> Option<Json> {
        None
    }
}

/// The members of an object are its roots. Other values have no roots.
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

/// The same roots, for a strict evaluation.
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

/// Two sources of roots; the first one takes precedence.
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

/// Two sources of roots; the first one takes precedence.
impl<A: Roots, B: Roots> Roots for (A, B) {
    fn root(&self, name: &str) -> Option<Json> {
        self.0.root(name).or_else(|| self.1.root(name))
    }

    fn is_strict(&self) -> bool {
        self.0.is_strict() || self.1.is_strict()
    }
}
