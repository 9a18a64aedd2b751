//! What a script and the host's side of it share while it runs.

use std::{cell::RefCell, rc::Rc};

use boa_engine::{Context, JsResult, object::JsObject};
use serde_json::{Map, Value};

use crate::{calls::Calls, outline::Outline, thrown::error};

/// What functions that scripts call reach. No value of JavaScript leads to it.
#[derive(Default)]
pub(crate) struct Session {
    /// What the script has said of itself.
    pub(crate) outline: RefCell<Outline>,
    /// What it is given, once it runs.
    pub(crate) inputs: RefCell<Option<JsObject>>,
    /// What it gives, by id.
    pub(crate) outputs: RefCell<Map<String, Value>>,
    /// Its calls of services.
    pub(crate) calls: Calls,
}

impl Session {
    /// The session of the script that runs in a context.
    pub(crate) fn of(context: &Context) -> JsResult<Rc<Session>> {
        context.get_data::<Rc<Session>>().cloned().ok_or_else(|| error("this is no context of a script"))
    }
}
