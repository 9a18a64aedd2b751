//! The node `data.query`: runs a query within its limits.

use std::mem;

use flowcell_expr::{
    Json,
    limits::{CONTAINER, JSON_VALUES},
};
use flowcell_sdk::{file, prelude::*};
use jaq_core::{Ctx, Vars};
use jaq_json::Val;
use serde_json::Map;

use crate::{
    functions::Data,
    program,
    value::{self, truncated},
};

/// Maximum size of the output `{ value, values }`, as JSON text in bytes. The first result counts twice, because both
/// members have it. The host accepts outputs of the same size.
const MAX_OUTPUT_BYTES: usize = 4 << 20;
/// Maximum number of values in the output, counted as for [`JSON_VALUES`]. So a query gives fewer results than this.
const MAX_OUTPUT_VALUES: usize = JSON_VALUES;
/// The bytes of the output beside its results.
const FRAME_BYTES: usize = r#"{"value":,"values":[]}"#.len();
/// Maximum size of a message about an error of a query, in characters. Such messages contain values.
const MAX_MESSAGE_CHARS: usize = 500;

#[derive(Deserialize)]
pub(crate) struct Input {
    input: Value,
    query: String,
    #[serde(default)]
    vars: Map<String, Value>,
}

/// Runs a query over the input. Returns all results, and the first one; null if there is none.
pub(crate) fn run(task: &Task) -> Result<Step> {
    let Input { input, query, vars } = task.input()?;
    if file::is_file(&input) {
        return Err(file::content_needed("input"));
    }
    if let Some(name) = vars.keys().find(|name| !is_name(name)) {
        let message = format!(
            "`{}` in `vars` is not a name: use letters, digits and `_`, and no digit at the beginning",
            truncated(name, 30)
        );
        return Err(Failure::invalid_input(message));
    }
    let (names, values): (Vec<_>, Vec<_>) = vars.into_iter().map(|(name, value)| (format!("${name}"), value)).unzip();
    let filter = program::compile(&query, &names)?;
    let context = Ctx::<Data>::new(&filter.lut, Vars::new(values.into_iter().map(value::from_json)));
    let mut results = Results::default();
    for result in filter.id.run((context, value::from_json(input))) {
        let result = result.map_err(|error| match error.get_err() {
            Ok(error) => Failure::new("query_failed", truncated(&error_text(error), MAX_MESSAGE_CHARS)),
            Err(_) => Failure::new("query_failed", "the query left a `label` that does not enclose it"),
        })?;
        results.add(result)?;
    }
    Ok(results.into_output()?.into())
}

/// The results of a query, as JSON text.
#[derive(Default)]
struct Results {
    count: usize,
    /// The results with commas between them.
    text: String,
    /// The size of the first result in bytes.
    first: usize,
}

impl Results {
    fn add(&mut self, result: Val) -> Result<()> {
        if self.count == MAX_OUTPUT_VALUES {
            return Err(too_large(format!("the query gives more than {MAX_OUTPUT_VALUES} results")));
        }
        if self.count > 0 {
            self.text.push(',');
        }
        // Of the first result the output has another copy.
        let room = MAX_OUTPUT_BYTES - FRAME_BYTES - self.first;
        let room = if self.count == 0 { room / 2 } else { room };
        if let Err(reason) = value::write(&result, &mut self.text, room) {
            // Dropping a value that is nested very deep would overflow the stack before this failure is returned.
            mem::forget(result);
            return Err(match reason {
                value::Refusal::TooLarge => {
                    let first = if self.count == 0 { self.text.len() } else { self.first };
                    let bytes = FRAME_BYTES + first + self.text.len();
                    too_large(format!(
                        "the output has at least {bytes} bytes with result {}; the limit is {MAX_OUTPUT_BYTES}, and the \
                         first result counts twice, for `value` and `values`",
                        self.count
                    ))
                }
                value::Refusal::NotJson(reason) => {
                    Failure::new("query_failed", format!("result {}: {reason}", self.count))
                }
            });
        }
        if self.count == 0 {
            self.first = self.text.len();
        }
        self.count += 1;
        Ok(())
    }

    fn into_output(self) -> Result<Output> {
        let first = if self.count == 0 { "null" } else { &self.text[..self.first] };
        let output = format!(r#"{{"value":{first},"values":[{}]}}"#, self.text);
        if Json::has_more_values(output.as_bytes(), MAX_OUTPUT_VALUES) {
            return Err(too_large(format!(
                "the output has more than {MAX_OUTPUT_VALUES} values, where a list or an object counts as {} and the \
                 first result counts twice",
                CONTAINER + 1
            )));
        }
        let first = Source::Text(first.to_owned());
        Ok(Output::object().with("value", first).with("values", Source::Text(format!("[{}]", self.text))))
    }
}

fn too_large(message: String) -> Failure {
    Failure::new("output_too_large", format!("{message}; select less, or use `first(…)` or `limit(n; …)`"))
}

/// Returns the text of an error: the text itself of `error("…")`, and JSON of other values.
fn error_text(error: jaq_json::Error) -> String {
    match error.into_val() {
        Val::TStr(text) => String::from_utf8_lossy(&text).into_owned(),
        Val::Null => "the query called `error` without a message".to_owned(),
        other => value::whole(other).to_string(),
    }
}

fn is_name(name: &str) -> bool {
    name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
        && !name.starts_with(|c: char| c.is_ascii_digit())
        && !name.is_empty()
}
