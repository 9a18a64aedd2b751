//! The names of the web platform that scripts have, such as `URL` and `crypto`. Their text in `web.js` is evaluated when
//! a script first uses one of them.

use std::path::Path;

use base64::{
    Engine as _, alphabet,
    engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig, general_purpose::STANDARD},
};
use boa_engine::{
    Context, JsArgs, JsResult, JsString, JsValue, NativeFunction, Source,
    object::{
        JsObject, ObjectInitializer,
        builtins::{JsArray, JsUint8Array},
    },
    property::Attribute,
};
use hmac_sha2::{Digest, Sha256, Sha384, Sha512};
use rand::Rng as _;
use url::{Url, form_urlencoded, quirks};

use crate::{globals, session::Session, thrown::error};

/// A function that `web.js` uses.
type Native = fn(&JsValue, &[JsValue], &mut Context) -> JsResult<JsValue>;

/// The names, in the order of `web.js`.
const NAMES: [&str; 8] =
    ["URL", "URLSearchParams", "TextEncoder", "TextDecoder", "atob", "btoa", "structuredClone", "crypto"];

/// The name of `web.js` in stack traces.
const FILE: &str = "flowcell:web";

/// Base64 as browsers read it: the padding may be missing, and bits behind the last byte do not count.
const FORGIVING: GeneralPurpose = GeneralPurpose::new(
    &alphabet::STANDARD,
    GeneralPurposeConfig::new()
        .with_decode_padding_mode(DecodePaddingMode::Indifferent)
        .with_decode_allow_trailing_bits(true),
);

/// Maximum number of random bytes in one call; `web.js` has the same limit.
const MAX_RANDOM_BYTES: usize = 64 << 10;

/// Adds the names to the global object.
pub(crate) fn install(context: &mut Context) -> JsResult<()> {
    for name in NAMES {
        let create = |name, context: &mut Context| values(context)?.get(JsString::from(name), context);
        globals::install(name, create, context)?;
    }
    Ok(())
}

/// Returns the object with the values of the names. Evaluates `web.js` the first time.
fn values(context: &mut Context) -> JsResult<JsObject> {
    let session = Session::from_context(context)?;
    if let Some(values) = &*session.web.borrow() {
        return Ok(values.clone());
    }
    let text = Source::from_bytes(include_str!("web.js")).with_path(Path::new(FILE));
    let create = context.eval(text)?.as_callable().ok_or_else(|| error("the web platform cannot be loaded"))?;
    let native = native(context);
    let values = create.call(&JsValue::undefined(), &[native.into()], context)?.to_object(context)?;
    session.web.replace(Some(values.clone()));
    Ok(values)
}

/// Returns the object with the functions that `web.js` uses.
fn native(context: &mut Context) -> JsObject {
    let functions: [(&str, Native); 10] = [
        ("parseUrl", parse_url),
        ("setUrl", set_url),
        ("parseForm", parse_form),
        ("writeForm", write_form),
        ("encode", encode),
        ("decode", decode),
        ("toBase64", to_base64),
        ("fromBase64", from_base64),
        ("digest", digest),
        ("random", random),
    ];
    let mut object = ObjectInitializer::new(context);
    for (name, function) in functions {
        object.function(NativeFunction::from_fn_ptr(function), JsString::from(name), 1);
    }
    object.build()
}

fn text(value: &JsValue) -> JsResult<String> {
    let text = value.as_string().ok_or_else(|| error("a text is needed"))?;
    // `web.js` hands on whole characters, except to functions that keep the replacement character.
    Ok(text.to_std_string_lossy())
}

fn bytes(value: &JsValue, context: &mut Context) -> JsResult<Vec<u8>> {
    let array = value.as_object().ok_or_else(|| error("bytes are needed"))?;
    JsUint8Array::from_object(array)?.to_vec(context)
}

fn array(bytes: impl IntoIterator<Item = u8>, context: &mut Context) -> JsResult<JsValue> {
    Ok(JsUint8Array::from_iter(bytes, context)?.into())
}

fn optional(text: Option<String>) -> JsValue {
    text.map_or(JsValue::null(), |text| JsString::from(text).into())
}

fn parse_url(_: &JsValue, args: &[JsValue], context: &mut Context) -> JsResult<JsValue> {
    let (url, base) = (text(args.get_or_undefined(0))?, args.get_or_undefined(1));
    let parsed = match base.is_undefined() {
        true => Url::parse(&url),
        false => Url::parse(&text(base)?).and_then(|base| base.join(&url)),
    };
    Ok(parsed.map_or(JsValue::null(), |url| parts(&url, context).into()))
}

/// Returns the URL with another value of one part; null if it cannot have the value.
fn set_url(_: &JsValue, args: &[JsValue], context: &mut Context) -> JsResult<JsValue> {
    let Ok(mut url) = Url::parse(&text(args.get_or_undefined(0))?) else { return Ok(JsValue::null()) };
    let (part, value) = (text(args.get_or_undefined(1))?, text(args.get_or_undefined(2))?);
    let done = match part.as_str() {
        "href" => quirks::set_href(&mut url, &value).map_err(drop),
        "protocol" => quirks::set_protocol(&mut url, &value),
        "username" => quirks::set_username(&mut url, &value),
        "password" => quirks::set_password(&mut url, &value),
        "host" => quirks::set_host(&mut url, &value),
        "hostname" => quirks::set_hostname(&mut url, &value),
        "port" => quirks::set_port(&mut url, &value),
        "pathname" => {
            quirks::set_pathname(&mut url, &value);
            Ok(())
        }
        "search" => {
            quirks::set_search(&mut url, &value);
            Ok(())
        }
        _ => {
            quirks::set_hash(&mut url, &value);
            Ok(())
        }
    };
    Ok(done.map_or(JsValue::null(), |()| parts(&url, context).into()))
}

fn parts(url: &Url, context: &mut Context) -> JsObject {
    let parts = [
        ("href", quirks::href(url)),
        ("origin", &quirks::origin(url)),
        ("protocol", quirks::protocol(url)),
        ("username", quirks::username(url)),
        ("password", quirks::password(url)),
        ("host", quirks::host(url)),
        ("hostname", quirks::hostname(url)),
        ("port", quirks::port(url)),
        ("pathname", quirks::pathname(url)),
        ("search", quirks::search(url)),
        ("hash", quirks::hash(url)),
    ];
    let mut object = ObjectInitializer::new(context);
    for (name, part) in parts {
        object.property(JsString::from(name), JsString::from(part), Attribute::all());
    }
    object.build()
}

fn parse_form(_: &JsValue, args: &[JsValue], context: &mut Context) -> JsResult<JsValue> {
    let form = text(args.get_or_undefined(0))?;
    let pairs: Vec<JsValue> = form_urlencoded::parse(form.as_bytes())
        .map(|(name, value)| {
            let pair = [name, value].map(|text| JsValue::from(JsString::from(&*text)));
            JsArray::from_iter(pair, context).into()
        })
        .collect();
    Ok(JsArray::from_iter(pairs, context).into())
}

fn write_form(_: &JsValue, args: &[JsValue], context: &mut Context) -> JsResult<JsValue> {
    let pairs = JsArray::from_object(args.get_or_undefined(0).to_object(context)?)?;
    let mut form = form_urlencoded::Serializer::new(String::new());
    for at in 0..pairs.length(context)? {
        let pair = pairs.get(at, context)?.to_object(context)?;
        let (name, value) = (text(&pair.get(0, context)?)?, text(&pair.get(1, context)?)?);
        form.append_pair(&name, &value);
    }
    Ok(JsString::from(form.finish()).into())
}

fn encode(_: &JsValue, args: &[JsValue], context: &mut Context) -> JsResult<JsValue> {
    array(text(args.get_or_undefined(0))?.into_bytes(), context)
}

/// Decodes UTF-8. If `fatal` is true, returns null for other bytes.
fn decode(_: &JsValue, args: &[JsValue], context: &mut Context) -> JsResult<JsValue> {
    let bytes = bytes(args.get_or_undefined(0), context)?;
    Ok(match args.get_or_undefined(1).to_boolean() {
        true => optional(String::from_utf8(bytes).ok()),
        false => optional(Some(String::from_utf8_lossy(&bytes).into_owned())),
    })
}

/// Encodes the characters of a text as bytes. Returns null if there is one above 255.
fn to_base64(_: &JsValue, args: &[JsValue], _: &mut Context) -> JsResult<JsValue> {
    let text = args.get_or_undefined(0).as_string().ok_or_else(|| error("a text is needed"))?;
    let bytes = text.iter().map(|unit| u8::try_from(unit).ok()).collect::<Option<Vec<u8>>>();
    Ok(optional(bytes.map(|bytes| STANDARD.encode(bytes))))
}

fn from_base64(_: &JsValue, args: &[JsValue], _: &mut Context) -> JsResult<JsValue> {
    let text: String = text(args.get_or_undefined(0))?.chars().filter(|sign| !sign.is_ascii_whitespace()).collect();
    let bytes = FORGIVING.decode(text).ok();
    Ok(optional(bytes.map(|bytes| bytes.into_iter().map(char::from).collect())))
}

fn digest(_: &JsValue, args: &[JsValue], context: &mut Context) -> JsResult<JsValue> {
    let (name, bytes) = (text(args.get_or_undefined(0))?, bytes(args.get_or_undefined(1), context)?);
    match name.as_str() {
        "SHA-256" => array(Sha256::digest(bytes), context),
        "SHA-384" => array(Sha384::digest(bytes), context),
        "SHA-512" => array(Sha512::digest(bytes), context),
        _ => Ok(JsValue::null()),
    }
}

/// Returns random bytes. In the sandbox they follow from the seed of the attempt, as those of `Math.random`.
fn random(_: &JsValue, args: &[JsValue], context: &mut Context) -> JsResult<JsValue> {
    let count = args.get_or_undefined(0).to_length(context)?;
    let count = usize::try_from(count).unwrap_or(usize::MAX).min(MAX_RANDOM_BYTES);
    let mut bytes = vec![0; count];
    rand::rng().fill_bytes(&mut bytes);
    array(bytes, context)
}
