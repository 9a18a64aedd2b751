//! Lets the validator look at [`Json`] as it is, without a copy.

use std::{borrow::Cow, sync::Arc};

use flowcell_contract::Json;
use indexmap::IndexMap;
use jsonschema::{
    json::{Array, Node, NodeIdentity, Object},
    types::JsonType,
};
use serde_json::Number;

/// The representation: trees of [`Json`].
pub(super) struct Tree;

type Members = IndexMap<Arc<str>, Json>;

impl jsonschema::json::Json for Tree {
    type Node<'a> = &'a Json;
    type PreparedKey = Box<str>;
    type StringBuffer = Json;

    fn prepare_key(key: &str) -> Box<str> {
        key.into()
    }

    fn with_string_node<T>(buffer: &mut Json, string: &str, f: impl FnOnce(&Json) -> T) -> T {
        *buffer = Json::from(string);
        f(buffer)
    }
}

impl<'a> Node<'a, Tree> for &'a Json {
    type Object = &'a Members;
    type Array = &'a [Json];
    type Number = &'a Number;

    fn as_object(&self) -> Option<&'a Members> {
        Json::as_object(self)
    }

    fn as_array(&self) -> Option<&'a [Json]> {
        Json::as_array(self)
    }

    fn as_string(&self) -> Option<Cow<'a, str>> {
        self.as_str().map(Cow::Borrowed)
    }

    fn as_number(&self) -> Option<&'a Number> {
        match self {
            Json::Number(number) => Some(number),
            _ => None,
        }
    }

    fn as_boolean(&self) -> Option<bool> {
        self.as_bool()
    }

    fn is_null(&self) -> bool {
        Json::is_null(self)
    }

    fn json_type(&self) -> JsonType {
        match self {
            Json::Null => JsonType::Null,
            Json::Bool(_) => JsonType::Boolean,
            Json::Number(_) => JsonType::Number,
            Json::String(_) => JsonType::String,
            Json::Array(_) => JsonType::Array,
            Json::Object(_) => JsonType::Object,
        }
    }

    fn to_value(&self) -> Cow<'a, serde_json::Value> {
        Cow::Owned(self.to_serde())
    }

    fn identity(&self) -> Option<NodeIdentity> {
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
        (*self).get(&**key)
    }

    fn members(&self) -> MembersIter<'a> {
        MembersIter((*self).iter())
    }
}

/// The members of an object, by text keys.
pub(super) struct MembersIter<'a>(indexmap::map::Iter<'a, Arc<str>, Json>);

impl<'a> Iterator for MembersIter<'a> {
    type Item = (&'a str, &'a Json);

    fn next(&mut self) -> Option<(&'a str, &'a Json)> {
        self.0.next().map(|(key, value)| (&**key, value))
    }
}

impl<'a> Array<'a, Tree> for &'a [Json] {
    type Node = &'a Json;
    type ElementsIter = std::slice::Iter<'a, Json>;

    fn len(&self) -> usize {
        <[Json]>::len(self)
    }

    fn elements(&self) -> std::slice::Iter<'a, Json> {
        (*self).iter()
    }
}
