//! The object `services` of scripts: reads inputs, stores outputs, and has a function for every service.

use boa_engine::{
    Context, JsArgs, JsResult, JsString, JsValue, NativeFunction,
    object::{
        FunctionObjectBuilder, JsObject, ObjectInitializer,
        builtins::{JsProxy, JsProxyBuilder},
    },
    property::Attribute,
};
use serde_json::{Map, Value};

use crate::{declare::id, globals::READ_BY_LANGUAGE, session::Session, thrown::error, value};

/// Creates the object with these inputs.
pub(crate) fn object(inputs: &Map<String, Value>, context: &mut Context) -> JsResult<JsProxy> {
    let inputs = value::object_to_js(inputs, context)?;
    Session::from_context(context)?.inputs.replace(Some(inputs.clone()));
    let target = ObjectInitializer::new(context)
        .property(JsString::from("inputs"), inputs, Attribute::ENUMERABLE)
        .function(NativeFunction::from_fn_ptr(input), JsString::from("input"), 1)
        .function(NativeFunction::from_fn_ptr(output), JsString::from("output"), 2)
        .function(NativeFunction::from_fn_ptr(output), JsString::from("outputs"), 2)
        .build();
    JsProxyBuilder::new(target).get(member).build(context)
}

/// The function `services.input(id)` of scripts: returns an input.
fn input(_: &JsValue, args: &[JsValue], context: &mut Context) -> JsResult<JsValue> {
    let id = id("services.input", args.get_or_undefined(0))?;
    let inputs = Session::from_context(context)?.inputs.borrow().clone();
    inputs.map_or(Ok(JsValue::undefined()), |inputs| inputs.get(JsString::from(id), context))
}

/// The function `services.output(id, value)` of scripts: stores a copy of the value, which later changes do not affect.
fn output(_: &JsValue, args: &[JsValue], context: &mut Context) -> JsResult<JsValue> {
    let id = id("services.outputs", args.get_or_undefined(0))?;
    let value = value::to_json(args.get_or_undefined(1), &format!("the output `{id}`"), context)?;
    Session::from_context(context)?.outputs.borrow_mut().insert(id, value);
    Ok(JsValue::undefined())
}

/// Returns the value of `services.NAME`: the member NAME of the object, own or inherited, or else a function that
/// calls the service NAME. A name in [`READ_BY_LANGUAGE`] is never a service.
fn member(_: &JsValue, args: &[JsValue], context: &mut Context) -> JsResult<JsValue> {
    let (target, key) = (args.get_or_undefined(0), args.get_or_undefined(1));
    let target = target.as_object().ok_or_else(|| error("`services` is no longer an object"))?;
    let property = key.to_property_key(context)?;
    match key.as_string().and_then(|name| name.to_std_string().ok()) {
        Some(name) if !READ_BY_LANGUAGE.contains(&&*name) && !target.has_property(property.clone(), context)? => {
            Ok(service(&name, context).into())
        }
        _ => target.get(property, context),
    }
}

/// Creates the function that calls a service.
fn service(name: &str, context: &mut Context) -> JsObject {
    let call = |_: &JsValue, args: &[JsValue], name: &JsString, context: &mut Context| {
        let name = name.to_std_string_lossy();
        let mut given = Vec::with_capacity(args.len());
        for (index, arg) in args.iter().enumerate() {
            given.push(value::to_json(arg, &format!("argument {} of services.{name}", index + 1), context)?);
        }
        Session::from_context(context)?.calls.call(name, given, context)
    };
    let call = NativeFunction::from_copy_closure_with_captures(call, JsString::from(name));
    FunctionObjectBuilder::new(context.realm(), call).name(JsString::from(format!("services.{name}"))).build().into()
}
