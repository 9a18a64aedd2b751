//! Converts between JavaScript values and JSON. Refuses a value that JSON cannot express, and says where it is; never
//! changes such a value silently.

use boa_engine::{
    Context, JsError, JsNativeError, JsResult, JsString, JsValue, JsVariant,
    object::{JsObject, builtins::JsArray},
    property::PropertyKey,
};
use serde_json::{Map, Number, Value};

use crate::thrown::error;

/// Maximum depth of lists and objects. The host has the same limit.
const MAX_DEPTH: usize = 127;
/// Approximate maximum size of a value as JSON, in bytes.
const MAX_JSON_BYTES: usize = 4 << 20;
/// The largest number up to which JavaScript represents every integer exactly.
const MAX_SAFE: f64 = 9_007_199_254_740_991.0;

/// Converts a value to JSON. `what` names the value in error messages.
///
/// As in `JSON.stringify`, the result of an object's `toJSON` replaces the object, and a member that is `undefined` is
/// left out. In any other place `undefined` becomes null.
pub(crate) fn to_json(value: &JsValue, what: &str, context: &mut Context) -> JsResult<Value> {
    let mut converter = JsonConverter { what, place: Vec::new(), open: Vec::new(), left: MAX_JSON_BYTES };
    Ok(converter.value(value, context)?.unwrap_or_default())
}

/// Converts JSON to a JavaScript value.
pub(crate) fn to_js(value: &Value, context: &mut Context) -> JsResult<JsValue> {
    Ok(match value {
        Value::Null => JsValue::null(),
        Value::Bool(truth) => JsValue::from(*truth),
        Value::Number(number) => match number.as_i64().and_then(|number| i32::try_from(number).ok()) {
            Some(number) => JsValue::from(number),
            None => JsValue::from(exact(number)?),
        },
        Value::String(text) => JsValue::from(JsString::from(text.as_str())),
        Value::Array(items) => {
            let items = items.iter().map(|item| to_js(item, context)).collect::<JsResult<Vec<_>>>()?;
            JsArray::from_iter(items, context).into()
        }
        Value::Object(members) => object_to_js(members, context)?.into(),
    })
}

/// Converts a number. Refuses whole numbers that would lose digits.
fn exact(number: &Number) -> JsResult<f64> {
    let float = number.as_f64().unwrap_or(f64::NAN);
    if !number.is_f64() && float.abs() > MAX_SAFE {
        let message =
            format!("the whole number {number} has more digits than a script can keep exactly: pass it as a text");
        return Err(error(message));
    }
    Ok(float)
}

/// Converts a JSON object. Every member becomes an own property, `__proto__` too.
pub(crate) fn object_to_js(members: &Map<String, Value>, context: &mut Context) -> JsResult<JsObject> {
    let object = JsObject::with_object_proto(context.intrinsics());
    for (key, member) in members {
        let member = to_js(member, context)?;
        object.create_data_property_or_throw(JsString::from(key.as_str()), member, context)?;
    }
    Ok(object)
}

/// Converts one JavaScript value to JSON.
struct JsonConverter<'a> {
    what: &'a str,
    /// The path to the current value.
    place: Vec<PropertyKey>,
    /// The objects on the path to the current value, to notice cycles.
    open: Vec<JsObject>,
    /// Number of bytes that the parts of the value that are not converted yet may take as JSON.
    left: usize,
}

impl JsonConverter<'_> {
    /// Converts a value. Returns `None` for `undefined`.
    fn value(&mut self, value: &JsValue, context: &mut Context) -> JsResult<Option<Value>> {
        // The shortest value has one byte, and so has its separator.
        self.spend(2)?;
        Ok(Some(match value.variant() {
            JsVariant::Undefined => return Ok(None),
            JsVariant::Null => Value::Null,
            JsVariant::Boolean(truth) => Value::Bool(truth),
            JsVariant::Integer32(number) => Value::from(number),
            JsVariant::Float64(number) => self.number(number)?,
            JsVariant::String(text) => Value::String(self.text(&text)?),
            JsVariant::BigInt(_) => return Err(self.refuse("a BigInt")),
            JsVariant::Symbol(_) => return Err(self.refuse("a symbol")),
            JsVariant::Object(object) => return self.object(&object, context),
        }))
    }

    fn number(&self, number: f64) -> JsResult<Value> {
        if number.fract() == 0.0 && number.abs() <= MAX_SAFE && !(number == 0.0 && number.is_sign_negative()) {
            return Ok(Value::from(number as i64));
        }
        Number::from_f64(number).map(Value::Number).ok_or_else(|| self.refuse(&number.to_string()))
    }

    fn text(&mut self, text: &JsString) -> JsResult<String> {
        self.spend(text.len())?;
        text.to_std_string().map_err(|_| self.refuse("a text with half a surrogate pair"))
    }

    fn object(&mut self, object: &JsObject, context: &mut Context) -> JsResult<Option<Value>> {
        if object.is_callable() {
            return Err(self.refuse("a function"));
        }
        if self.open.iter().any(|open| JsObject::equals(open, object)) {
            return Err(self.refuse("an object that contains itself"));
        }
        if self.open.len() >= MAX_DEPTH {
            return Err(self.refuse(&format!("nested more than {MAX_DEPTH} lists and objects deep")));
        }
        self.open.push(object.clone());
        let value = self.inside(object, context)?;
        self.open.pop();
        Ok(value)
    }

    fn inside(&mut self, object: &JsObject, context: &mut Context) -> JsResult<Option<Value>> {
        let own_form = object.get(JsString::from("toJSON"), context)?;
        if let Some(own_form) = own_form.as_callable() {
            let form = own_form.call(&object.clone().into(), &[], context)?;
            return self.value(&form, context);
        }
        match object {
            _ if object.is_array() => self.list(object, context).map(Some),
            _ if object.is_ordinary() => self.members(object, context).map(Some),
            _ if JsValue::from(object.clone()).as_promise().is_some() => {
                Err(self.refuse("a promise; write `await` before it"))
            }
            _ => Err(self.refuse("not a plain object")),
        }
    }

    fn list(&mut self, list: &JsObject, context: &mut Context) -> JsResult<Value> {
        let length = list.get(JsString::from("length"), context)?.to_length(context)?;
        let mut items = Vec::new();
        for index in 0..length {
            let item = self.member(list, PropertyKey::from(index), context)?;
            items.push(item.unwrap_or_default());
        }
        Ok(Value::Array(items))
    }

    fn members(&mut self, object: &JsObject, context: &mut Context) -> JsResult<Value> {
        let mut members = Map::new();
        for key in object.own_property_keys(context)? {
            if matches!(key, PropertyKey::Symbol(_)) || !is_shown(object, &key) {
                continue;
            }
            let name = self.text(&JsString::from(key.to_string()))?;
            if let Some(member) = self.member(object, key, context)? {
                members.insert(name, member);
            }
        }
        Ok(Value::Object(members))
    }

    fn member(&mut self, object: &JsObject, key: PropertyKey, context: &mut Context) -> JsResult<Option<Value>> {
        let member = object.get(key.clone(), context)?;
        self.place.push(key);
        let value = self.value(&member, context)?;
        self.place.pop();
        Ok(value)
    }

    fn spend(&mut self, bytes: usize) -> JsResult<()> {
        match self.left.checked_sub(bytes) {
            Some(left) => self.left = left,
            None => {
                let message =
                    format!("{} is larger than {} MiB; pass large data as a file", self.what, MAX_JSON_BYTES >> 20);
                return Err(JsNativeError::range().with_message(message).into());
            }
        }
        Ok(())
    }

    fn refuse(&self, found: &str) -> JsError {
        let mut place = String::new();
        for key in &self.place {
            match key {
                PropertyKey::Index(index) => place += &format!("[{}]", index.get()),
                other if place.is_empty() => place += &other.to_string(),
                other => place += &format!(".{other}"),
            }
        }
        let place = if place.is_empty() { place } else { format!(" at `{place}`") };
        error(format!("{}{place} is {found}, which JSON cannot represent", self.what))
    }
}

/// Returns true if a member is enumerable.
fn is_shown(object: &JsObject, key: &PropertyKey) -> bool {
    object.borrow().properties().get(key).and_then(|member| member.enumerable()).unwrap_or_default()
}
