//! The object `flow` of `setup(flow)`. A script declares its title, inputs and outputs with it.

use boa_engine::{
    Context, JsArgs, JsResult, JsString, JsValue, NativeFunction,
    object::{JsObject, ObjectInitializer},
};

use crate::{
    outline::{Kind, Port},
    session::Session,
    thrown::error,
};

/// Maximum number of inputs, and of outputs.
const MAX_PORTS: usize = 256;
/// Maximum bytes of a title, a description or a label.
const MAX_TEXT_BYTES: usize = 4 << 10;
/// Maximum bytes of an id.
const MAX_ID_BYTES: usize = 64;

#[derive(Clone, Copy)]
enum Direction {
    In,
    Out,
}

/// The functions that declare inputs and outputs (ports).
const DECLARE: [(&str, Direction, Kind); 8] = [
    ("inImg", Direction::In, Kind::Img),
    ("inText", Direction::In, Kind::Text),
    ("inFile", Direction::In, Kind::File),
    ("inJson", Direction::In, Kind::Json),
    ("outImg", Direction::Out, Kind::Img),
    ("outImgs", Direction::Out, Kind::Imgs),
    ("outText", Direction::Out, Kind::Text),
    ("outJson", Direction::Out, Kind::Json),
];

/// Creates the object `flow`.
pub(crate) fn object(context: &mut Context) -> JsObject {
    let mut object = ObjectInitializer::new(context);
    object.function(NativeFunction::from_fn_ptr(title), JsString::from("title"), 1);
    for name in ["description", "describe"] {
        object.function(NativeFunction::from_fn_ptr(description), JsString::from(name), 1);
    }
    for (name, direction, kind) in DECLARE {
        let declare = move |_: &JsValue, args: &[JsValue], context: &mut Context| {
            declare(name, direction, kind, args, context).map(|()| JsValue::undefined())
        };
        object.function(NativeFunction::from_copy_closure(declare), JsString::from(name), 2);
    }
    object.build()
}

fn title(_: &JsValue, args: &[JsValue], context: &mut Context) -> JsResult<JsValue> {
    let text = text("flow.title", args.get_or_undefined(0), MAX_TEXT_BYTES)?;
    Session::from_context(context)?.outline.borrow_mut().title = Some(text);
    Ok(JsValue::undefined())
}

fn description(_: &JsValue, args: &[JsValue], context: &mut Context) -> JsResult<JsValue> {
    let text = text("flow.description", args.get_or_undefined(0), MAX_TEXT_BYTES)?;
    Session::from_context(context)?.outline.borrow_mut().description = Some(text);
    Ok(JsValue::undefined())
}

/// Declares a port: its id, an optional label, and whether it is optional.
fn declare(name: &str, direction: Direction, kind: Kind, args: &[JsValue], context: &mut Context) -> JsResult<()> {
    let id = id(&format!("flow.{name}"), args.get_or_undefined(0))?;
    let (label, options) = match args.get_or_undefined(1) {
        options if options.is_object() => (&JsValue::undefined(), options),
        label => (label, args.get_or_undefined(2)),
    };
    let label = match label.is_undefined() {
        true => None,
        false => Some(text(&format!("the label of `{id}`"), label, MAX_TEXT_BYTES)?),
    };
    let optional = match options.as_object() {
        Some(options) => options.get(JsString::from("optional"), context)?.to_boolean(),
        None => false,
    };
    let session = Session::from_context(context)?;
    let mut outline = session.outline.borrow_mut();
    let ports = match direction {
        Direction::In => &mut outline.inputs,
        Direction::Out => &mut outline.outputs,
    };
    if ports.iter().any(|port| port.id == id) {
        return Err(error(format!("flow.{name}: `{id}` is already declared")));
    }
    if ports.len() >= MAX_PORTS {
        return Err(error(format!(
            "flow.{name}: a script may declare at most {MAX_PORTS} inputs and {MAX_PORTS} outputs"
        )));
    }
    ports.push(Port { id, kind, label, optional });
    Ok(())
}

/// Checks the id of an input or an output.
pub(crate) fn id(what: &str, value: &JsValue) -> JsResult<String> {
    let id = text(what, value, MAX_ID_BYTES)?;
    match !id.is_empty() && id.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '-')) {
        true => Ok(id),
        false => Err(error(format!("{what}: an id must have 1 to {MAX_ID_BYTES} letters, digits, `_` and `-`"))),
    }
}

fn text(what: &str, value: &JsValue, limit: usize) -> JsResult<String> {
    let text = value.as_string().and_then(|text| text.to_std_string().ok());
    match text {
        Some(text) if text.len() <= limit => Ok(text),
        Some(_) => Err(error(format!("{what}: the text is longer than {limit} bytes"))),
        None => Err(error(format!("{what}: must be a text, not {}", value.type_of()))),
    }
}
