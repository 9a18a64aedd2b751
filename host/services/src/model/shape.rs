//! Reads JSON objects with a fixed set of members. The error messages name the wrong member and its place.

use std::sync::Arc;

use flowcell_contract::{Failure, Json, Object, code, similar};

/// The members of an object. `place` names the object in error messages.
pub(super) struct Shape<'a> {
    place: String,
    members: &'a Object,
}

/// Returns an `invalid_input` failure.
pub(super) fn wrong(message: impl Into<String>) -> Failure {
    Failure::new(code::INVALID_INPUT, message)
}

/// Suggests a replacement for an unknown name: the nearest known one, or the whole list.
pub(super) fn instead(name: &str, known: &[&str]) -> String {
    match similar(name, known.iter().copied()) {
        Some(meant) => format!("did you mean `{meant}`?"),
        None => format!("expected one of `{}`", known.join("`, `")),
    }
}

impl<'a> Shape<'a> {
    /// Reads an object that may have only the members in `known`.
    pub(super) fn of(json: &'a Json, place: &str, known: &[&str]) -> Result<Shape<'a>, Failure> {
        let members =
            json.as_object().ok_or_else(|| wrong(format!("{place} must be an object, not {}", json.type_name())))?;
        match members.keys().find(|key| !known.contains(&key.as_ref())) {
            Some(unknown) => {
                Err(wrong(format!("{place} has the unknown member `{unknown}`; {}", instead(unknown, known))))
            }
            None => Ok(Shape { place: place.to_owned(), members }),
        }
    }

    /// Returns the failure that says which value a member should have.
    pub(super) fn refuse(&self, name: &str, expected: &str) -> Failure {
        let found = self.members.get(name).map_or("missing", Json::type_name);
        wrong(format!("`{name}` of {} must be {expected}; it is {found}", self.place))
    }

    /// Returns a member that is present and not null.
    pub(super) fn get(&self, name: &str) -> Option<&'a Json> {
        self.members.get(name).filter(|value| !value.is_null())
    }

    pub(super) fn text(&self, name: &str) -> Result<Option<Arc<str>>, Failure> {
        match self.get(name) {
            None => Ok(None),
            Some(Json::String(text)) => Ok(Some(text.clone())),
            Some(_) => Err(self.refuse(name, "a text")),
        }
    }

    /// Returns a string member. Fails if it is missing or empty.
    pub(super) fn required_text(&self, name: &str) -> Result<Arc<str>, Failure> {
        self.text(name)?.filter(|text| !text.is_empty()).ok_or_else(|| self.refuse(name, "a non-empty text"))
    }

    pub(super) fn list(&self, name: &str) -> Result<&'a [Json], Failure> {
        match self.get(name) {
            None => Ok(&[]),
            Some(value) => value.as_array().ok_or_else(|| self.refuse(name, "a list")),
        }
    }

    pub(super) fn object(&self, name: &str) -> Result<Option<&'a Json>, Failure> {
        match self.get(name) {
            Some(value) if value.as_object().is_none() => Err(self.refuse(name, "an object")),
            value => Ok(value),
        }
    }

    /// Returns a number from `least` to `most`, both inclusive; `None` if the member is missing.
    pub(super) fn number(&self, name: &str, least: f64, most: f64) -> Result<Option<Json>, Failure> {
        let fits = |value: &Json| value.as_f64().is_some_and(|number| (least..=most).contains(&number));
        match self.get(name) {
            Some(value) if !fits(value) => Err(self.refuse(name, &format!("a number from {least} to {most}"))),
            value => Ok(value.cloned()),
        }
    }

    /// Returns an integer of at least `least`; `None` if the member is missing.
    pub(super) fn whole(&self, name: &str, least: u64) -> Result<Option<u64>, Failure> {
        match self.get(name) {
            None => Ok(None),
            Some(value) => match value.as_u64().filter(|number| *number >= least) {
                Some(number) => Ok(Some(number)),
                None => Err(self.refuse(name, &format!("a whole number of at least {least}"))),
            },
        }
    }

    pub(super) fn flag(&self, name: &str) -> Result<bool, Failure> {
        match self.get(name) {
            None => Ok(false),
            Some(value) => value.as_bool().ok_or_else(|| self.refuse(name, "true or false")),
        }
    }
}
