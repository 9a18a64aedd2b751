//! The object `console`. Each of its functions writes one line to the run's log.

use boa_engine::{
    Context, JsResult, JsString, JsValue, NativeFunction,
    object::{JsObject, ObjectInitializer},
    property::Attribute,
};
use flowcell_sdk::log::{self, Level};

use crate::value;

/// Maximum bytes of a line.
const MAX_LINE_BYTES: usize = 8 << 10;

const FUNCTIONS: [(&str, Level); 6] = [
    ("debug", Level::Debug),
    ("error", Level::Error),
    ("info", Level::Info),
    ("log", Level::Info),
    ("trace", Level::Trace),
    ("warn", Level::Warn),
];

/// Adds the global `console`.
pub(crate) fn install(context: &mut Context) -> JsResult<()> {
    let console = object(context);
    context.register_global_property(JsString::from("console"), console, Attribute::all())
}

fn object(context: &mut Context) -> JsObject {
    let mut object = ObjectInitializer::new(context);
    for (name, level) in FUNCTIONS {
        let write = move |_: &JsValue, args: &[JsValue], context: &mut Context| {
            let words: Vec<_> = args.iter().map(|value| shown(value, context)).collect();
            let mut line = words.join(" ");
            line.truncate(line.floor_char_boundary(MAX_LINE_BYTES));
            log::write(level, line);
            Ok(JsValue::undefined())
        };
        object.function(NativeFunction::from_copy_closure(write), JsString::from(name), 0);
    }
    object.build()
}

/// Converts a value to text for the log. A text stays as it is, and another value becomes JSON. A value that JSON
/// cannot express is written in JavaScript's own notation.
fn shown(value: &JsValue, context: &mut Context) -> String {
    match value.as_string() {
        Some(text) => text.to_std_string_lossy(),
        None if value.is_undefined() => "undefined".into(),
        None => match value::to_json(value, "", context) {
            Ok(json) => json.to_string(),
            Err(_) => value.display().to_string(),
        },
    }
}
