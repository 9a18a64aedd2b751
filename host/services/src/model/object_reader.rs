//! Reads the members of a JSON object that may have only known members. Errors name the wrong member and its object.

use std::sync::Arc;

use flowcell_contract::{Failure, Json, Object, code, similar};

/// Reads and checks the members of one JSON object. `place` names the object in error messages, such as `messages[2]`.
pub(super) struct ObjectReader<'a> {
    place: String,
    members: &'a Object,
}

/// Returns an `invalid_input` failure.
pub(super) fn wrong(message: impl Into<String>) -> Failure {
    Failure::new(code::INVALID_INPUT, message)
}

/// Returns the end of an error message about an unknown name: the nearest known name, or all known names.
pub(super) fn suggest_known(name: &str, known: &[&str]) -> String {
    match similar(name, known.iter().copied()) {
        Some(meant) => format!("did you mean `{meant}`?"),
        None => format!("expected one of `{}`", known.join("`, `")),
    }
}

impl<'a> ObjectReader<'a> {
    /// Creates a reader. Fails if `json` is not an object, or has a member that is not in `known`.
    pub(super) fn new(json: &'a Json, place: &str, known: &[&str]) -> Result<ObjectReader<'a>, Failure> {
        let members =
            json.as_object().ok_or_else(|| wrong(format!("{place} must be an object, not {}", json.type_name())))?;
        match members.keys().find(|key| !known.contains(&key.as_ref())) {
            Some(unknown) => {
                Err(wrong(format!("{place} has the unknown member `{unknown}`; {}", suggest_known(unknown, known))))
            }
            None => Ok(ObjectReader { place: place.to_owned(), members }),
        }
    }

    /// Returns the failure for a member that is missing or has a wrong value. `expected` describes a correct one.
    pub(super) fn wrong_member(&self, name: &str, expected: &str) -> Failure {
        let found = self.members.get(name).map_or("missing", Json::type_name);
        wrong(format!("`{name}` of {} must be {expected}; it is {found}", self.place))
    }

    /// Returns a member of the object, or `None` if it is missing or null.
    pub(super) fn get(&self, name: &str) -> Option<&'a Json> {
        self.members.get(name).filter(|value| !value.is_null())
    }

    pub(super) fn text(&self, name: &str) -> Result<Option<Arc<str>>, Failure> {
        match self.get(name) {
            None => Ok(None),
            Some(Json::String(text)) => Ok(Some(text.clone())),
            Some(_) => Err(self.wrong_member(name, "a text")),
        }
    }

    /// Returns a string member. Fails if it is missing or empty.
    pub(super) fn required_text(&self, name: &str) -> Result<Arc<str>, Failure> {
        self.text(name)?.filter(|text| !text.is_empty()).ok_or_else(|| self.wrong_member(name, "a non-empty text"))
    }

    pub(super) fn list(&self, name: &str) -> Result<&'a [Json], Failure> {
        match self.get(name) {
            None => Ok(&[]),
            Some(value) => value.as_array().ok_or_else(|| self.wrong_member(name, "a list")),
        }
    }

    pub(super) fn object(&self, name: &str) -> Result<Option<&'a Json>, Failure> {
        match self.get(name) {
            Some(value) if value.as_object().is_none() => Err(self.wrong_member(name, "an object")),
            value => Ok(value),
        }
    }

    /// Returns a number from `least` to `most`, both inclusive; `None` if the member is missing.
    pub(super) fn number(&self, name: &str, least: f64, most: f64) -> Result<Option<Json>, Failure> {
        let fits = |value: &Json| value.as_f64().is_some_and(|number| (least..=most).contains(&number));
        match self.get(name) {
            Some(value) if !fits(value) => Err(self.wrong_member(name, &format!("a number from {least} to {most}"))),
            value => Ok(value.cloned()),
        }
    }

    /// Returns an integer of at least `least`; `None` if the member is missing.
    pub(super) fn integer(&self, name: &str, least: u64) -> Result<Option<u64>, Failure> {
        match self.get(name) {
            None => Ok(None),
            Some(value) => match value.as_u64().filter(|number| *number >= least) {
                Some(number) => Ok(Some(number)),
                None => Err(self.wrong_member(name, &format!("a whole number of at least {least}"))),
            },
        }
    }

    pub(super) fn boolean(&self, name: &str) -> Result<bool, Failure> {
        match self.get(name) {
            None => Ok(false),
            Some(value) => value.as_bool().ok_or_else(|| self.wrong_member(name, "true or false")),
        }
    }
}
