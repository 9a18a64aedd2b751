//! Lets the validator read [`Json`] without a copy, and counts each access as a visit.

use std::{borrow::Cow, sync::Arc};

use flowcell_contract::Json;
use indexmap::IndexMap;
use jsonschema::{
    json::{Array, Node, NodeIdentity, Object, cmp, unique},
    types::JsonType,
};
use serde_json::{Number, Value};

use crate::meter;

/// Number of text bytes that count as one visit.
const BYTES_PER_VISIT: u64 = 256;
/// Number of visits for which an error counts, because it copies a part of the value.
const VISITS_PER_ERROR: u64 = 64;
/// Approximate number of bytes of the value that an error copies.
const EXCERPT_BYTES: usize = 1024;

/// The validator's representation of values: trees of [`Json`].
pub(crate) struct Tree;

type Members = IndexMap<Arc<str>, Json>;

/// Returns the cost of reading every part of a value once, in visits.
pub(crate) fn visits(value: &Json) -> u64 {
    match value {
        Json::String(text) => text_visits(text),
        Json::Array(items) => items.iter().map(visits).sum::<u64>() + 1,
        Json::Object(members) => members.iter().map(|(key, member)| text_visits(key) + visits(member)).sum::<u64>() + 1,
        _ => 1,
    }
}

fn text_visits(text: &str) -> u64 {
    1 + text.len() as u64 / BYTES_PER_VISIT
}

/// Copies a whole value, for the keywords `const`, `enum` and `uniqueItems`, which compare values.
fn copy(value: &Json) -> Value {
    meter::spend(visits(value).saturating_mul(2));
    value.to_serde()
}

/// Copies the beginning of a value, at most about `room` bytes, and subtracts the number of copied bytes from `room`.
fn excerpt(value: &Json, room: &mut usize) -> Value {
    *room = room.saturating_sub(4);
    match value {
        Json::String(text) => Value::from(beginning(text, room)),
        Json::Array(items) => {
            let mut list = Vec::new();
            for item in items.iter() {
                if *room == 0 {
                    break;
                }
                list.push(excerpt(item, room));
            }
            Value::Array(list)
        }
        Json::Object(members) => {
            let mut object = serde_json::Map::new();
            for (key, member) in members.iter() {
                if *room == 0 {
                    break;
                }
                object.insert(beginning(key, room).to_owned(), excerpt(member, room));
            }
            Value::Object(object)
        }
        plain => plain.to_serde(),
    }
}

fn beginning<'t>(text: &'t str, room: &mut usize) -> &'t str {
    let end = text.floor_char_boundary(text.len().min(*room));
    *room -= end;
    &text[..end]
}

impl jsonschema::json::Json for Tree {
    type Node<'a> = &'a Json;
    type PreparedKey = Box<str>;
    type StringBuffer = Json;

    fn prepare_key(key: &str) -> Box<str> {
        key.into()
    }

    fn with_string_node<T>(buffer: &mut Json, string: &str, f: impl FnOnce(&Json) -> T) -> T {
        meter::spend(text_visits(string));
        *buffer = Json::from(string);
        f(buffer)
    }
}

impl<'a> Node<'a, Tree> for &'a Json {
    type Object = &'a Members;
    type Array = &'a [Json];
    type Number = &'a Number;

    fn as_object(&self) -> Option<&'a Members> {
        meter::spend(1);
        Json::as_object(self)
    }

    fn as_array(&self) -> Option<&'a [Json]> {
        meter::spend(1);
        Json::as_array(self)
    }

    fn as_string(&self) -> Option<Cow<'a, str>> {
        let text = self.as_str();
        meter::spend(text.map_or(1, text_visits));
        text.map(Cow::Borrowed)
    }

    fn as_number(&self) -> Option<&'a Number> {
        meter::spend(1);
        match self {
            Json::Number(number) => Some(number),
            _ => None,
        }
    }

    fn as_boolean(&self) -> Option<bool> {
        meter::spend(1);
        self.as_bool()
    }

    fn is_null(&self) -> bool {
        meter::spend(1);
        Json::is_null(self)
    }

    fn json_type(&self) -> JsonType {
        meter::spend(1);
        match self {
            Json::Null => JsonType::Null,
            Json::Bool(_) => JsonType::Boolean,
            Json::Number(_) => JsonType::Number,
            Json::String(_) => JsonType::String,
            Json::Array(_) => JsonType::Array,
            Json::Object(_) => JsonType::Object,
        }
    }

    fn equals_value(&self, expected: &Value) -> bool {
        cmp::equal(&copy(self), expected)
    }

    /// Returns the beginning of the value, for an error message. It is short, because one large value may have
    /// thousands of errors.
    fn to_value(&self) -> Cow<'a, Value> {
        meter::spend(VISITS_PER_ERROR);
        Cow::Owned(excerpt(self, &mut { EXCERPT_BYTES }))
    }

    fn identity(&self) -> Option<NodeIdentity> {
        meter::spend(1);
        Some(NodeIdentity::new(std::ptr::from_ref::<Json>(self) as usize))
    }
}

impl<'a> Object<'a, Tree> for &'a Members {
    type Node = &'a Json;
    type MemberName = &'a str;
    type MembersIter = MembersIter<'a>;

    fn len(&self) -> usize {
        IndexMap::len(self)
    }

    fn get(&self, key: &Box<str>) -> Option<&'a Json> {
        meter::spend(1);
        (*self).get(&**key)
    }

    fn members(&self) -> MembersIter<'a> {
        MembersIter((*self).iter())
    }
}

/// Iterates over the members of an object.
pub(crate) struct MembersIter<'a>(indexmap::map::Iter<'a, Arc<str>, Json>);

impl<'a> Iterator for MembersIter<'a> {
    type Item = (&'a str, &'a Json);

    fn next(&mut self) -> Option<(&'a str, &'a Json)> {
        let (key, value) = self.0.next()?;
        meter::spend_key(key.len());
        Some((&**key, value))
    }
}

impl<'a> Array<'a, Tree> for &'a [Json] {
    type Node = &'a Json;
    type ElementsIter = ElementsIter<'a>;

    fn len(&self) -> usize {
        <[Json]>::len(self)
    }

    fn elements(&self) -> ElementsIter<'a> {
        ElementsIter((*self).iter())
    }

    fn is_unique(&self) -> bool {
        let items: Vec<_> = self.iter().map(copy).collect();
        unique::is_unique(&items)
    }
}

/// Iterates over the items of a list.
pub(crate) struct ElementsIter<'a>(std::slice::Iter<'a, Json>);

impl<'a> Iterator for ElementsIter<'a> {
    type Item = &'a Json;

    fn next(&mut self) -> Option<&'a Json> {
        let item = self.0.next()?;
        meter::spend(1);
        Some(item)
    }
}
