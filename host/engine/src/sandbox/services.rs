//! `flowcell:host/services`: checks the guest's calls of services. The guest gets the answer to each call as JSON, even
//! if the call fails.

use flowcell_contract::{BuiltIn, Call, Failure, Json, Value, code};

use super::{
    Sandbox,
    capability::{Answer, parsed},
    denial::Denier,
};
use crate::{bindings::services, failure};

/// The maximum length of a guest's own id for a call, in bytes.
const MAX_CALL_ID_BYTES: usize = 256;
/// The maximum length of a service's name, in bytes.
const MAX_NAME_BYTES: usize = 64;

/// A service call as the guest wrote it.
struct Request {
    call_id: String,
    args: Json,
}

impl services::Host for Sandbox {
    async fn start_call(&mut self, request: String) -> Answer<u32> {
        let request = match Request::read(request) {
            Ok(request) => request,
            Err(failure) => return self.refuse(failure),
        };
        self.meter.count_call()?;
        self.forward_output(false).await;
        let args = request.args.into();
        let call = Call { interface: BuiltIn::Services.name().into(), function: "start-call".into(), args };
        let started = self.calls.start(call).await;
        self.open_service_calls.extend(started.iter().map(|id| (*id, request.call_id.clone())));
        Ok(started.map_err(failure::to_guest))
    }
}

impl services::Host for Denier<'_> {
    async fn start_call(&mut self, _: String) -> Answer<u32> {
        self.answer(BuiltIn::Services)
    }
}

impl Request {
    fn read(text: String) -> Result<Request, Failure> {
        let json = parsed(text)?;
        let member = |name: &str| json.get(name).and_then(Json::as_str).unwrap_or_default();
        let (call_id, service) = (member("callId"), member("service"));
        let members = json.as_object().ok_or_else(|| wrong("it must be an object"))?;
        if let Some(odd) = members.keys().find(|key| !["kind", "callId", "service", "args"].contains(&&***key)) {
            return Err(wrong(&format!("unknown member `{odd}`")));
        }
        if member("kind") != "flow-service-call" {
            return Err(wrong("`kind` must be `flow-service-call`"));
        }
        if call_id.is_empty() || call_id.len() > MAX_CALL_ID_BYTES {
            return Err(wrong(&format!("`callId` must be a text of 1 to {MAX_CALL_ID_BYTES} bytes")));
        }
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_".contains(&byte);
        if service.is_empty() || service.len() > MAX_NAME_BYTES || !service.bytes().all(plain) {
            let message = format!("`service` must be a name of 1 to {MAX_NAME_BYTES} letters, digits, `-` and `_`");
            return Err(wrong(&message));
        }
        let args = json.get("args").filter(|args| args.as_array().is_some());
        let args = args.ok_or_else(|| wrong("`args` must be a list"))?.clone();
        let call_id = call_id.to_owned();
        Ok(Request { call_id, args: Json::object([("service", Json::from(service)), ("args", args)]) })
    }
}

/// Returns the JSON answer for a service call that has ended. A failure becomes an answer with `error`.
pub(super) fn answer(call_id: String, outcome: Result<Value, Failure>) -> String {
    let ended = match outcome {
        Ok(result) => ("result", result.json().clone()),
        Err(failure) => {
            let members = [("code", Json::from(failure.code)), ("message", Json::from(failure.message))];
            ("error", Json::object(members))
        }
    };
    let (kind, ok) = (Json::from("flow-service-response"), Json::from(ended.0 == "result"));
    Json::object([("kind", kind), ("callId", Json::from(call_id)), ("ok", ok), ended]).to_text()
}

fn wrong(what: &str) -> Failure {
    let message = format!("invalid call of a service: {what}");
    Failure::new(code::INVALID_INPUT, message)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

    use super::*;

    #[test]
    fn malformed_service_calls_are_refused() {
        let good = r#"{"kind":"flow-service-call","callId":"a","service":"img","args":[[],"x"]}"#;
        let read = Request::read(good.into()).unwrap();
        assert_eq!(
            (read.call_id.as_str(), read.args.to_text().as_str()),
            ("a", r#"{"service":"img","args":[[],"x"]}"#)
        );
        let long = "x".repeat(257);
        let cases = [
            ("[]".to_owned(), "an object"),
            (good.replace("service-call", "service-response"), "`kind`"),
            (good.replace("\"a\"", "\"\""), "`callId`"),
            (good.replace("\"a\"", "7"), "`callId`"),
            (good.replace("\"a\"", &format!("\"{long}\"")), "`callId`"),
            (good.replace("img", "i m g"), "`service`"),
            (good.replace("img", &long), "`service`"),
            (good.replace("[[],\"x\"]", "{}"), "`args`"),
            (good.replace("\"args\"", "\"arguments\""), "unknown member `arguments`"),
            ("{".to_owned(), "not JSON"),
        ];
        for (text, message) in cases {
            let failure = Request::read(text.clone()).err().unwrap();
            assert_eq!(failure.code, code::INVALID_INPUT, "{text}");
            assert!(failure.message.contains(message), "{text}: {failure}");
        }
    }

    #[test]
    fn results_and_failures_become_answers() {
        let good = answer("a".into(), Ok(Value::from(Json::from(7u32))));
        assert_eq!(good, r#"{"kind":"flow-service-response","callId":"a","ok":true,"result":7}"#);
        let bad = answer("a".into(), Err(Failure::retryable("denied", "no")));
        let text =
            r#"{"kind":"flow-service-response","callId":"a","ok":false,"error":{"code":"denied","message":"no"}}"#;
        assert_eq!(bad, text);
    }
}
