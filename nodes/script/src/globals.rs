//! Globals whose values are created when a script first uses them, so that other scripts start as fast as without them.

use boa_engine::{
    Context, JsArgs, JsResult, JsString, JsValue, NativeFunction, object::FunctionObjectBuilder,
    property::PropertyDescriptor,
};

use crate::session::Session;

/// Members that JavaScript itself looks up, to recognise a promise or a custom JSON form.
pub(crate) const READ_BY_LANGUAGE: [&str; 2] = ["then", "toJSON"];

/// Creates the value of a global.
type Create = fn(&'static str, &mut Context) -> JsResult<JsValue>;

/// Adds a global. It stays an accessor: the engine remembers the place of a global, so a getter must not replace itself.
pub(crate) fn install(name: &'static str, create: Create, context: &mut Context) -> JsResult<()> {
    let get = NativeFunction::from_copy_closure(move |_, _, context| value(name, create, context));
    let set = NativeFunction::from_copy_closure(move |_, args, context| {
        let session = Session::from_context(context)?;
        session.globals.borrow_mut().insert(name, args.get_or_undefined(0).clone());
        Ok(JsValue::undefined())
    });
    let get = FunctionObjectBuilder::new(context.realm(), get).name(JsString::from(name)).build();
    let set = FunctionObjectBuilder::new(context.realm(), set).name(JsString::from(name)).length(1).build();
    let accessor = PropertyDescriptor::builder().get(get).set(set).enumerable(false).configurable(true);
    context.global_object().define_property_or_throw(JsString::from(name), accessor.build(), context)?;
    Ok(())
}

/// Returns the value of a global. Creates it the first time.
fn value(name: &'static str, create: Create, context: &mut Context) -> JsResult<JsValue> {
    let session = Session::from_context(context)?;
    let known = session.globals.borrow().get(name).cloned();
    match known {
        Some(value) => Ok(value),
        None => {
            let value = create(name, context)?;
            session.globals.borrow_mut().insert(name, value.clone());
            Ok(value)
        }
    }
}
