//! Where the first names of paths get their values.

use crate::json::Json;

/// Gives root names their values.
pub trait Roots {
    /// Returns the value behind a root name; none if nothing has this name.
    fn root(&self, name: &str) -> Option<Json>;
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
}

/// Two sources of names; the first wins.
#[derive(Clone, Copy, Debug)]
pub struct Chain<A, B>(pub A, pub B);

impl<A: Roots, B: Roots> Roots for Chain<A, B> {
    fn root(&self, name: &str) -> Option<Json> {
        self.0.root(name).or_else(|| self.1.root(name))
    }
}

/// Two sources of names; the first wins.
impl<A: Roots, B: Roots> Roots for (A, B) {
    fn root(&self, name: &str) -> Option<Json> {
        self.0.root(name).or_else(|| self.1.root(name))
    }
}
