//! The node `data.merge`: merges objects into one.

use flowcell_expr::Json;
use flowcell_sdk::{file, prelude::*};

#[derive(Deserialize)]
pub(crate) struct Input {
    objects: Vec<Json>,
}

#[derive(Serialize)]
pub(crate) struct Output {
    object: Json,
}

/// Merges objects. If several have the same member, the last one wins.
pub(crate) fn run(input: Input) -> Result<Output> {
    let mut members = Vec::new();
    for (index, object) in input.objects.iter().enumerate() {
        let refuse = || Failure::invalid_input(format!("objects[{index}] is {}, not an object", object.type_name()));
        if object.is_file() {
            return Err(file::content_needed(&format!("objects[{index}]")));
        }
        let object = object.as_object().ok_or_else(refuse)?;
        members.extend(object.iter().map(|(key, value)| (key.clone(), value.clone())));
    }
    Ok(Output { object: Json::object(members) })
}
