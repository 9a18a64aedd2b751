//! The place of an expression: the steps that lead to it from the whole value.

use crate::error::push_token;

/// The place of a part in a value. It is built while the value is evaluated, and costs nothing until it is written.
#[derive(Clone, Copy)]
pub(crate) struct Place<'a> {
    outer: Option<&'a Place<'a>>,
    step: Step<'a>,
}

#[derive(Clone, Copy)]
enum Step<'a> {
    /// A JSON Pointer.
    Pointer(&'a str),
    Key(&'a str),
    Index(usize),
}

impl<'a> Place<'a> {
    /// Returns the place at a JSON Pointer; `""` is the whole value.
    pub(crate) fn at(pointer: &'a str) -> Place<'a> {
        Place { outer: None, step: Step::Pointer(pointer) }
    }

    /// Returns the place of a member of the value at this place.
    pub(crate) fn member(&'a self, key: &'a str) -> Place<'a> {
        Place { outer: Some(self), step: Step::Key(key) }
    }

    /// Returns the place of an item of the list at this place.
    pub(crate) fn item(&'a self, index: usize) -> Place<'a> {
        Place { outer: Some(self), step: Step::Index(index) }
    }

    /// Returns the JSON Pointer to this place.
    pub(crate) fn pointer(&self) -> String {
        let (mut steps, mut place) = (Vec::new(), Some(self));
        while let Some(at) = place {
            steps.push(at.step);
            place = at.outer;
        }
        let mut pointer = String::new();
        for step in steps.into_iter().rev() {
            match step {
                Step::Pointer(outer) => pointer.push_str(outer),
                Step::Key(key) => push_token(&mut pointer, key),
                Step::Index(index) => push_token(&mut pointer, &index.to_string()),
            }
        }
        pointer
    }
}
