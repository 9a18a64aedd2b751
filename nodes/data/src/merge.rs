//! The node `data.merge`: merges objects into one.

use std::{collections::BTreeMap, sync::Arc};

use flowcell_expr::{Json, Ordered};
use flowcell_sdk::{file, prelude::*};

/// The member by which `lists: byKey` finds items that belong together, if `key` names no other.
const DEFAULT_KEY: &str = "id";

#[derive(Deserialize)]
pub(crate) struct Input {
    objects: Vec<Json>,
    #[serde(default)]
    deep: bool,
    lists: Option<Lists>,
    key: Option<String>,
}

/// The treatment of two lists at the same place of two objects.
#[derive(Clone, Copy, Deserialize, PartialEq)]
#[serde(rename_all = "camelCase")]
enum Lists {
    Replace,
    Append,
    ByKey,
}

#[derive(Serialize)]
pub(crate) struct Output {
    object: Json,
}

/// Merges objects. If several have the same member, the last one wins; with `deep`, objects and lists in them are
/// merged, too.
pub(crate) fn run(input: Input) -> Result<Output> {
    let refuse = |message: &str| Err(Failure::invalid_input(message));
    if !input.deep && (input.lists.is_some() || input.key.is_some()) {
        return refuse("`lists` and `key` are for `deep: true`");
    }
    let lists = input.lists.unwrap_or(Lists::Replace);
    if input.key.is_some() && lists != Lists::ByKey {
        return refuse("`key` is for `lists: byKey`");
    }
    let key = input.key.as_deref().unwrap_or(DEFAULT_KEY);
    let mut merge = Merge { is_deep: input.deep, lists, key, place: Vec::new() };
    let mut object = Json::object::<&str>([]);
    for (index, source) in input.objects.into_iter().enumerate() {
        merge.place = vec![format!("objects[{index}]")];
        if source.is_file() {
            return Err(file::content_needed(&merge.place()));
        }
        if source.as_object().is_none() {
            return refuse(&format!("{} is {}, not an object", merge.place(), source.type_name()));
        }
        merge.members(&mut object, source)?;
    }
    Ok(Output { object })
}

/// One merge, with the place in the source for errors.
struct Merge<'a> {
    is_deep: bool,
    lists: Lists,
    key: &'a str,
    place: Vec<String>,
}

impl Merge<'_> {
    /// Merges the members of an object into another one. Both values must be objects.
    fn members(&mut self, target: &mut Json, source: Json) -> Result<()> {
        let (Json::Object(target), Json::Object(source)) = (target, source) else { return Ok(()) };
        let target = Arc::make_mut(target);
        for (key, value) in Arc::unwrap_or_clone(source) {
            match target.get_mut(&key) {
                Some(there) if self.is_deep => {
                    self.place.push(format!(".{key}"));
                    self.value(there, value)?;
                    self.place.pop();
                }
                _ => drop(target.insert(key, value)),
            }
        }
        Ok(())
    }

    /// Merges a value into the value that is at its place. A file value is replaced as a whole.
    fn value(&mut self, target: &mut Json, source: Json) -> Result<()> {
        let is_object = |value: &Json| value.as_object().is_some() && !value.is_file();
        if is_object(target) && is_object(&source) {
            return self.members(target, source);
        }
        match (target, source) {
            (Json::Array(items), Json::Array(more)) => {
                let (items, more) = (Arc::make_mut(items), Arc::unwrap_or_clone(more));
                let has_objects = items.iter().chain(&more).any(|item| item.as_object().is_some());
                match self.lists {
                    Lists::Append => items.extend(more),
                    Lists::ByKey if has_objects => self.items(items, more)?,
                    Lists::Replace | Lists::ByKey => *items = more,
                }
            }
            (target, source) => *target = source,
        }
        Ok(())
    }

    /// Merges each item into the first one with an equal key, or appends it if there is none.
    fn items(&mut self, items: &mut Vec<Json>, more: Vec<Json>) -> Result<()> {
        let mut places = BTreeMap::new();
        for (index, item) in items.iter().enumerate() {
            places.entry(self.key_of(item, index, "the earlier list")?).or_insert(index);
        }
        for (index, item) in more.into_iter().enumerate() {
            let place = *places.entry(self.key_of(&item, index, "this list")?).or_insert(items.len());
            match items.get_mut(place) {
                Some(there) => {
                    self.place.push(format!("[{index}]"));
                    self.value(there, item)?;
                    self.place.pop();
                }
                None => items.push(item),
            }
        }
        Ok(())
    }

    fn key_of(&self, item: &Json, index: usize, list: &str) -> Result<Ordered> {
        match item.get(self.key) {
            Some(key @ (Json::String(_) | Json::Number(_) | Json::Bool(_))) => Ok(Ordered(key.clone())),
            found => {
                let key = self.key;
                let found = match found {
                    Some(value) => format!("{} as `{key}`", value.type_name()),
                    None => format!("no `{key}`"),
                };
                let message = format!(
                    "at {}: item {index} of {list} has {found}; `lists: byKey` needs a text, a number or a boolean",
                    self.place()
                );
                Err(Failure::invalid_input(message))
            }
        }
    }

    fn place(&self) -> String {
        self.place.concat()
    }
}
