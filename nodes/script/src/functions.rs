//! The global `fn`, with the functions of expressions: `fn.NAME(value, …)` calls a filter or a function, and
//! `fn.is.NAME(value, …)` a test. The object is created when a script first uses it.

use boa_engine::{
    Context, JsArgs, JsResult, JsString, JsValue, NativeFunction,
    native_function::NativeFunctionPointer,
    object::{
        FunctionObjectBuilder, ObjectInitializer,
        builtins::{JsProxy, JsProxyBuilder},
    },
    property::Attribute,
};
use flowcell_expr::{
    Json, RANDOM, Roots, call as call_function,
    functions::{Function, FunctionKind, functions, functions_named, similar_function},
    json::Object,
};
use rand::Rng as _;

use crate::{globals, thrown::error, value};

/// The name of the global.
const GLOBAL: &str = "fn";
/// The member that has the tests.
const TESTS: &str = "is";

/// Adds the global `fn`.
pub(crate) fn install(context: &mut Context) -> JsResult<()> {
    globals::install(GLOBAL, |_, context| create(context), context)
}

fn create(context: &mut Context) -> JsResult<JsValue> {
    let tests = object_of(true, None, find_test, context)?;
    Ok(object_of(false, Some(tests), find_function, context)?.into())
}

/// Creates an object with the tests, or with all other functions and the object of the tests. `get` reads its members.
fn object_of(
    are_tests: bool,
    tests: Option<JsProxy>,
    get: NativeFunctionPointer,
    context: &mut Context,
) -> JsResult<JsProxy> {
    let realm = context.realm().clone();
    let mut object = ObjectInitializer::new(context);
    for function in functions().filter(|function| (function.kind == FunctionKind::Test) == are_tests) {
        for name in function.names.iter().copied() {
            let call = move |_: &JsValue, args: &[JsValue], context: &mut Context| call(function, name, args, context);
            let call = NativeFunction::from_copy_closure(call);
            let shown = JsString::from(shown(function.kind, name));
            let call = FunctionObjectBuilder::new(&realm, call).name(shown).length(1).build();
            object.property(JsString::from(name), call, Attribute::ENUMERABLE);
        }
    }
    if let Some(tests) = tests {
        object.property(JsString::from(TESTS), tests, Attribute::ENUMERABLE);
    }
    let object = object.build();
    JsProxyBuilder::new(object).get(get).build(context)
}

/// Returns the name by which a script calls a function.
fn shown(kind: FunctionKind, name: &str) -> String {
    match kind {
        FunctionKind::Test => format!("{GLOBAL}.{TESTS}.{name}"),
        FunctionKind::Filter | FunctionKind::Call => format!("{GLOBAL}.{name}"),
    }
}

/// Reads a member of `fn`.
fn find_function(_: &JsValue, args: &[JsValue], context: &mut Context) -> JsResult<JsValue> {
    find(GLOBAL, args, context)
}

/// Reads a member of `fn.is`.
fn find_test(_: &JsValue, args: &[JsValue], context: &mut Context) -> JsResult<JsValue> {
    find(&format!("{GLOBAL}.{TESTS}"), args, context)
}

/// Reads a member of an object of functions. A missing one is a function that throws, so that the error has the line of the
/// call, unless JavaScript itself asks for the member.
fn find(object: &str, args: &[JsValue], context: &mut Context) -> JsResult<JsValue> {
    let (target, key) = (args.get_or_undefined(0), args.get_or_undefined(1));
    let target = target.as_object().ok_or_else(|| error(format!("`{object}` is no longer an object")))?;
    let property = key.to_property_key(context)?;
    match key.as_string().and_then(|name| name.to_std_string().ok()) {
        Some(name)
            if !globals::READ_BY_LANGUAGE.contains(&&*name) && !target.has_property(property.clone(), context)? =>
        {
            let refuse = |_: &JsValue, _: &[JsValue], message: &JsString, _: &mut Context| {
                Err(error(message.to_std_string_lossy()))
            };
            let message = JsString::from(unknown(object, &name));
            let refuse = NativeFunction::from_copy_closure_with_captures(refuse, message);
            Ok(FunctionObjectBuilder::new(context.realm(), refuse).build().into())
        }
        _ => target.get(property, context),
    }
}

/// Returns the message about a name that `fn` or `fn.is` does not have.
fn unknown(object: &str, name: &str) -> String {
    let name: String = name.chars().take(MAX_SHOWN_CHARACTERS).collect();
    let meant = similar_function(&name).and_then(|meant| Some((functions_named(meant).next()?.kind, meant)));
    let hint = match meant {
        Some((kind, meant)) => format!("did you mean `{}`?", shown(kind, meant)),
        None => "`flowcell functions` lists all functions".to_owned(),
    };
    format!("unknown function `{object}.{name}`: {hint}")
}

/// Maximum number of characters of an unknown name that an error shows.
const MAX_SHOWN_CHARACTERS: usize = 64;

/// Calls a function: its value, other arguments in their order, and optional ones by name in an object at the end.
fn call(function: &Function, name: &str, args: &[JsValue], context: &mut Context) -> JsResult<JsValue> {
    let name = shown(function.kind, name);
    // As in JavaScript, arguments that are undefined at the end are missing.
    let count = args.iter().rposition(|arg| !arg.is_undefined()).map_or(0, |last| last + 1);
    let mut arguments = Vec::with_capacity(count);
    for (at, arg) in args[..count].iter().enumerate() {
        let argument = value::to_json(arg, &format!("argument {} of {name}", at + 1), context)?;
        arguments.push(Json::from(argument));
    }
    let named = take_named(function, &mut arguments);
    let result = call_function(function, &arguments, &named, &Seed);
    let result = result.map_err(|failed| match unknown_named(function, &arguments) {
        Some(unknown) if failed.to_string().contains("convert map") => error(format!("{name}: {unknown}")),
        _ => error(format!("{name}: {failed}")),
    })?;
    value::to_js(&result.to_serde(), context)
}

/// Removes the last argument if it is an object whose members are all optional arguments of the function.
fn take_named(function: &Function, arguments: &mut Vec<Json>) -> Object {
    let is_named = |members: &Object| {
        let is_known = |key: &str| function.optional_arguments().any(|name| name == key);
        !members.is_empty() && members.keys().all(|key| is_known(key))
    };
    // The first argument of a filter is its value.
    let last = if arguments.len() > 1 { arguments.last() } else { None };
    match last.and_then(Json::as_object).filter(|members| is_named(members)).cloned() {
        Some(members) => {
            arguments.pop();
            members
        }
        None => Object::default(),
    }
}

/// Returns the message about the first member of an object at the end of the arguments that names no optional argument.
/// Returns `None` if there is no such object, or if the function has no optional arguments.
fn unknown_named(function: &Function, arguments: &[Json]) -> Option<String> {
    let members = arguments.get(1..)?.last()?.as_object()?;
    let known: Vec<_> = function.optional_arguments().map(|name| format!("`{name}`")).collect();
    let key = members.keys().find(|key| function.optional_arguments().all(|name| name != &***key))?;
    let key: String = key.chars().take(MAX_SHOWN_CHARACTERS).collect();
    (!known.is_empty()).then(|| format!("unknown argument `{key}`: the optional ones are {}", known.join(", ")))
}

/// The root of random values. In the sandbox they follow from the seed of the attempt, as those of `Math.random`.
struct Seed;

impl Roots for Seed {
    fn root(&self, name: &str) -> Option<Json> {
        (name == RANDOM).then(|| Json::from(format!("{:016x}{:016x}", rand::rng().next_u64(), rand::rng().next_u64())))
    }
}
