//! The state of a running script. The functions of the objects `flow` and `services` share it.

use std::{cell::RefCell, collections::HashMap, rc::Rc};

use boa_engine::{Context, JsResult, JsValue, object::JsObject};
use serde_json::{Map, Value};

use crate::{calls::Calls, outline::Outline, thrown::error};

/// The state that the functions of `flow` and `services` use. Scripts cannot access it.
#[derive(Default)]
pub(crate) struct Session {
    /// The declarations of the script.
    pub(crate) outline: RefCell<Outline>,
    /// The inputs; `None` until the script's function `run` is called.
    pub(crate) inputs: RefCell<Option<JsObject>>,
    /// The outputs, by id.
    pub(crate) outputs: RefCell<Map<String, Value>>,
    /// The values of the globals that the script has used or set; see `globals.rs`.
    pub(crate) globals: RefCell<HashMap<&'static str, JsValue>>,
    /// The values of the names of the web platform; `None` until the script uses one.
    pub(crate) web: RefCell<Option<JsObject>>,
    /// The calls of services.
    pub(crate) calls: Calls,
}

impl Session {
    /// Returns the session of the script in this context.
    pub(crate) fn from_context(context: &Context) -> JsResult<Rc<Session>> {
        context.get_data::<Rc<Session>>().cloned().ok_or_else(|| error("this is not the context of a script"))
    }
}
