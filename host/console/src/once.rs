//! The keys of forms that begin a run or a job. A form that a browser sends twice begins one of them.

use std::sync::atomic::{AtomicU64, Ordering};

use flowcell_server::api::{Answer, Refusal};
use jiff::Timestamp;
use maud::{Markup, html};
use serde_json::Value;

use crate::{sent::Form, visit::Visit};

/// The name of the field with the id of a shown form.
const FIELD: &str = "once";

/// Returns an id that no other form has.
pub(crate) fn new_id() -> String {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    format!("console-{}-{}", Timestamp::now().as_nanosecond(), COUNT.fetch_add(1, Ordering::Relaxed))
}

/// Returns the hidden field with the id of a form. Browsers that show an earlier page again do not fill it in.
pub(crate) fn field() -> Markup {
    html! { input type="hidden" autocomplete="off" name=(FIELD) value=(new_id()); }
}

/// Returns the hidden field with the id of a form that is shown again, or with a new one.
pub(crate) fn kept_field(sent: Option<&Form>) -> Markup {
    match sent.and_then(id_of) {
        Some(id) => html! { input type="hidden" autocomplete="off" name=(FIELD) value=(id); },
        None => field(),
    }
}

/// Returns the id of a sent form.
pub(crate) fn id_of(form: &Form) -> Option<&str> {
    form.text(FIELD).filter(|id| !id.is_empty())
}

/// Returns the key of a sent form with all of its members. The same form has the same key, however often and when it is sent.
pub(crate) fn key_of(form: &Form, path: &str) -> Option<String> {
    key(form, path, &form.content())
}

/// Sends a change to the API, which makes it once however often the browser sends the form.
pub(crate) async fn post(visit: &Visit, path: &str, body: &Value, form: &Form) -> Result<Answer, Refusal> {
    match key(form, path, body) {
        Some(key) => visit.post_with_key(path, body, &key).await,
        None => visit.post(path, body).await,
    }
}

/// Returns the `Idempotency-Key` of a request that a form causes. Returns `None` for a form without an id.
///
/// A browser that goes back may show the id of a form that was sent. Another content is another request.
fn key(form: &Form, path: &str, body: &Value) -> Option<String> {
    let id = id_of(form)?;
    let mut hasher = blake3::Hasher::new();
    for part in [id, path, &body.to_string()] {
        hasher.update(&part.len().to_le_bytes()).update(part.as_bytes());
    }
    Some(format!("console-{}", &hasher.finalize().to_hex()[..32]))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::sent::form_of;

    #[test]
    fn a_key_follows_from_the_form_the_path_and_the_content() {
        let of = |id: &str, path: &str, body: Value| key(&form_of(&[(FIELD, id)]), path, &body);
        let first = of("1", "/v1/runs", json!({ "flow": "a" }));
        assert_eq!(first, of("1", "/v1/runs", json!({ "flow": "a" })));
        let others = [
            of("2", "/v1/runs", json!({ "flow": "a" })),
            of("1", "/v1/jobs", json!({ "flow": "a" })),
            of("1", "/v1/runs", json!({ "flow": "b" })),
            of("1/v1", "/runs", json!({ "flow": "a" })),
        ];
        assert!(others.iter().all(|other| other.is_some() && *other != first), "{others:?}");
        // A hostile id is a part of a digest, so it cannot break a header.
        let hostile = of("\r\nX-Evil: 1\u{202e}", "/v1/runs", json!({})).unwrap_or_default();
        assert!(hostile.len() == 40 && hostile.bytes().all(|byte| byte.is_ascii_graphic()), "{hostile:?}");
        assert_eq!((of("", "/v1/runs", json!({})), key(&form_of(&[]), "/v1/runs", &json!({}))), (None, None));
        assert_ne!(new_id(), new_id());
    }
}
