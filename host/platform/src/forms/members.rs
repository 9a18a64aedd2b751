//! The members of an input that a link sets: as defaults of its form, and under the input of a person.

use serde_json::Value;

/// The member of an input that names the trigger of a run.
const TRIGGER_INPUT: &str = "trigger";

/// Returns the pointer of a member of `input` that the person may not set: one that the link sets and that has no field, and
/// `trigger`, by which a flow knows its trigger. A program with the code could send them.
pub(super) fn fixed_member(schema: Option<&Value>, prefill: &Value, input: &Value) -> Option<String> {
    let field = |name: &str| schema.and_then(|schema| schema["properties"].get(name));
    if input.get(TRIGGER_INPUT).is_some() && field(TRIGGER_INPUT).is_none() {
        return Some(format!("/{TRIGGER_INPUT}"));
    }
    fixed_below(schema.unwrap_or(&Value::Null), prefill, input)
}

fn fixed_below(schema: &Value, prefill: &Value, input: &Value) -> Option<String> {
    prefill.as_object().into_iter().flatten().find_map(|(name, own)| {
        // A value that is not an object takes the place of all members.
        let given = if input.is_object() { input.get(name)? } else { input };
        let below = match schema["properties"].get(name) {
            None if given == own => None,
            None => Some(String::new()),
            Some(member) if is_nested(member, own) => fixed_below(member, own, given),
            Some(_) => None,
        };
        below.map(|below| format!("/{name}{below}"))
    })
}

/// Returns whether a form has fields for the members of a value.
fn is_nested(schema: &Value, value: &Value) -> bool {
    value.is_object() && schema["properties"].is_object()
}

/// Returns a schema whose members have these values as their defaults.
pub(super) fn with_defaults(mut schema: Value, prefill: &Value) -> Value {
    for (name, value) in prefill.as_object().into_iter().flatten() {
        let Some(member) = schema.get_mut("properties").and_then(|members| members.get_mut(name)) else { continue };
        if is_nested(member, value) {
            *member = with_defaults(member.take(), value);
        } else if let Some(member) = member.as_object_mut() {
            member.insert("default".into(), value.clone());
        }
    }
    schema
}

/// Merges two inputs. Members of `over` win, and objects are merged member by member.
pub(super) fn merged(under: Value, over: Value) -> Value {
    match (under, over) {
        (Value::Object(mut under), Value::Object(over)) => {
            for (key, value) in over {
                let below = under.remove(&key);
                let value = below.map_or_else(|| value.clone(), |below| merged(below, value.clone()));
                under.insert(key, value);
            }
            Value::Object(under)
        }
        (_, over) => over,
    }
}
