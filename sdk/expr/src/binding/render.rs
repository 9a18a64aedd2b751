//! Renders bindings to JSON.

use std::sync::Arc;

use super::{
    Binding,
    node::{CapturedField, Node, Part},
};
use crate::{
    error::ExprError,
    json::{self, Json},
    language::{TextTooLong, push_json},
    path::Path,
    place::Place,
    roots::Roots,
};

/// Computes the value of a binding at a place.
pub(super) fn render(binding: &Binding, roots: &dyn Roots, at: Place<'_>) -> Result<Json, ExprError> {
    match &binding.0 {
        Node::Literal(value) | Node::Array(_, Some(value)) | Node::Object(_, Some(value)) => Ok(value.clone()),
        Node::Whole(expression) => expression.evaluate(roots, at),
        Node::Text(parts) => text(parts, roots, at),
        Node::Array(items, None) => array(items, roots, at),
        Node::Object(members, None) => object(members, roots, at),
        Node::Captured(field) => Ok(captured(field, roots)),
    }
}

fn text(parts: &[Part], roots: &dyn Roots, at: Place<'_>) -> Result<Json, ExprError> {
    let mut text = String::new();
    let too_long = |error: TextTooLong| ExprError::new(error.message());
    for part in parts {
        match part {
            // Literal text has no limit.
            Part::Text(more) => text.push_str(more),
            Part::Expression(expression) => {
                let value = expression.evaluate(roots, at)?;
                if value.is_file() {
                    return Err(expression.misuse_error("a text cannot contain a file value".to_owned(), roots));
                }
                push_json(&mut text, &value).map_err(too_long)?;
            }
        }
    }
    Ok(Json::from(text))
}

fn array(items: &[Binding], roots: &dyn Roots, at: Place<'_>) -> Result<Json, ExprError> {
    let mut rendered = Vec::with_capacity(items.len());
    for (index, item) in items.iter().enumerate() {
        rendered.push(render(item, roots, at.item(index)).map_err(|error| error.inside(&index.to_string()))?);
    }
    Ok(Json::Array(Arc::new(rendered)))
}

fn object(members: &[(Arc<str>, Binding)], roots: &dyn Roots, at: Place<'_>) -> Result<Json, ExprError> {
    let mut rendered = json::Object::with_capacity(members.len());
    for (key, member) in members {
        rendered.insert(key.clone(), render(member, roots, at.member(key)).map_err(|error| error.inside(key))?);
    }
    Ok(Json::Object(Arc::new(rendered)))
}

/// Computes the members of an object and leaves out members that fail. Returns an empty object for any other value.
pub(super) fn render_members(binding: &Binding, roots: &dyn Roots) -> json::Object {
    match &binding.0 {
        Node::Object(members, _) => {
            let whole = Place::at("");
            let render = |(key, member): &(Arc<str>, Binding)| {
                Some((key.clone(), render(member, roots, whole.member(key)).ok()?))
            };
            let rendered = members.iter().filter_map(render);
            rendered.collect()
        }
        _ => json::Object::default(),
    }
}

fn captured(field: &CapturedField, roots: &dyn Roots) -> Json {
    let is_strict = roots.is_strict();
    let value = |(name, path): &(Arc<str>, Path)| match path.resolve(roots) {
        Some(value) => Some((name.clone(), value)),
        // A missing value is not passed on. The file or the skipped node on its path is passed on instead, so that
        // the component's error can explain why the value is missing.
        None => match path.find_file(roots) {
            Some(file) => file.resolve(roots).map(|value| (file.to_string().into(), value)),
            None if is_strict => {
                path.find_skipped_node(roots).map(|node| (node.member("skipped").to_string().into(), Json::from(true)))
            }
            None => None,
        },
    };
    let vars = Json::object(field.carried.iter().filter_map(value));
    let strict = is_strict.then(|| ("strict", Json::from(true)));
    Json::object([(field.tag, field.raw.clone()), ("vars", vars)].into_iter().chain(strict))
}
