//! The nodes `data.object`, `data.pick` and `data.set`: pass an object on, select members of an object, and write a part
//! of an object.

use flowcell_sdk::{file, prelude::*};
use serde_json::Map;

/// Maximum number of items by which one write may lengthen a list.
const MAX_GROWTH: usize = 10_000;
/// Maximum number of steps of a path. A step is a key or an index.
const MAX_STEPS: usize = 100;

/// Passes the input on as the output.
pub(crate) fn same(_task: &Task) -> Result<Step> {
    Ok(Output::input("").into())
}

#[derive(Deserialize)]
pub(crate) struct Pick {
    object: Map<String, Value>,
    keys: Vec<String>,
}

/// Keeps the members with these keys, in the order of the keys. Skips keys that the object does not have.
pub(crate) fn pick(input: Pick) -> Result<Value> {
    refuse_file(&input.object)?;
    let member = |key: String| input.object.get(&key).cloned().map(|value| (key, value));
    let object: Map<String, Value> = input.keys.into_iter().filter_map(member).collect();
    Ok(json!({ "object": object }))
}

#[derive(Deserialize)]
pub(crate) struct Set {
    object: Map<String, Value>,
    path: String,
    #[serde(default)]
    value: Value,
}

/// Writes the value at a path of the object. Creates missing objects and lists on the way.
pub(crate) fn set(input: Set) -> Result<Value> {
    refuse_file(&input.object)?;
    let steps = parse(&input.path)?;
    let mut object = Value::Object(input.object);
    write(&mut object, &steps, input.value)?;
    Ok(json!({ "object": object }))
}

/// Refuses a file value, because its members describe the file and are not its content.
fn refuse_file(members: &Map<String, Value>) -> Result<()> {
    let text = |key: &str| members.get(key).and_then(Value::as_str);
    match text("kind") == Some("file") && text("fileId").is_some() {
        true => Err(file::content_needed("object")),
        false => Ok(()),
    }
}

#[derive(Debug, PartialEq)]
enum Part<'a> {
    Key(&'a str),
    Index(usize),
}

/// Parses a path such as `a.b[0].c`.
fn parse(path: &str) -> Result<Vec<Part<'_>>> {
    let refuse = || Failure::invalid_input(format!("`{path}` is not a path; write for example `a.b[0].c`"));
    let mut parts = Vec::new();
    for step in path.split('.') {
        let (key, indices) = step.split_at(step.find('[').unwrap_or(step.len()));
        if key.is_empty() {
            return Err(refuse());
        }
        parts.push(Part::Key(key));
        let mut rest = indices;
        while !rest.is_empty() {
            let (index, after) = rest.strip_prefix('[').and_then(|rest| rest.split_once(']')).ok_or_else(refuse)?;
            parts.push(Part::Index(index.parse().map_err(|_| refuse())?));
            rest = after;
        }
    }
    if parts.len() > MAX_STEPS {
        return Err(Failure::invalid_input(format!("the path has more than {MAX_STEPS} steps")));
    }
    Ok(parts)
}

fn write(target: &mut Value, parts: &[Part<'_>], value: Value) -> Result<()> {
    let Some((part, rest)) = parts.split_first() else {
        *target = value;
        return Ok(());
    };
    match (part, &mut *target) {
        (Part::Key(key), Value::Object(members)) => write(members.entry(*key).or_insert(Value::Null), rest, value),
        (Part::Key(_), Value::Null) => {
            *target = json!({});
            write(target, parts, value)
        }
        (Part::Index(index), Value::Array(items)) => {
            if *index >= items.len() + MAX_GROWTH {
                let message = format!("index {index} is more than {MAX_GROWTH} beyond the end of the list");
                return Err(Failure::invalid_input(message));
            }
            if *index >= items.len() {
                items.resize(index + 1, Value::Null);
            }
            write(&mut items[*index], rest, value)
        }
        (Part::Index(_), Value::Null) => {
            *target = json!([]);
            write(target, parts, value)
        }
        (Part::Key(key), _) => {
            Err(Failure::invalid_input(format!("cannot write `{key}`: its parent is not an object")))
        }
        (Part::Index(index), _) => {
            Err(Failure::invalid_input(format!("cannot write [{index}]: its parent is not a list")))
        }
    }
}
