//! The selection of events in a page, and previews of their large values.

use std::collections::VecDeque;

use flowcell_contract::Json;
use flowcell_platform::host::events::EventReader;
use flowcell_runtime::{
    Event,
    inputs::CutText,
    paging::{Filling, PageLimits},
};
use serde_json::json;

use super::{
    api_error::ApiError,
    broadcast::{Frame, LAGGED, Page, frame},
};

/// The maximum number of events that a page with a filter looks at.
pub(crate) const MAX_SCANNED_EVENTS: u64 = 100_000;
/// The maximum number of types in a filter.
const MAX_KINDS: usize = 32;
/// The maximum number of bytes of a value that a preview shows whole.
const MAX_PREVIEW_BYTES: u64 = 1 << 20;

/// The events that a page contains.
#[derive(Debug, Default)]
pub(crate) struct EventFilter {
    /// The types. Empty: all.
    kinds: Vec<String>,
    /// The address of the task.
    task: Option<String>,
    /// The number of the first event after the page.
    before: Option<u64>,
    /// The maximum number of bytes of a value that is shown whole.
    preview: Option<u64>,
}

impl EventFilter {
    /// Creates a filter from the query of a request. Returns `None` if it selects all events and cuts no values.
    pub(crate) fn parse(
        kinds: Option<&str>,
        task: Option<String>,
        before: Option<u64>,
        preview: Option<u64>,
    ) -> Result<Option<EventFilter>, ApiError> {
        let kinds: Vec<_> = kinds.iter().flat_map(|kinds| kinds.split(',')).map(str::to_owned).collect();
        let is_kind = |kind: &String| {
            let fits = |byte: u8| byte.is_ascii_alphanumeric() || b":_-".contains(&byte);
            (1..=64).contains(&kind.len()) && kind.bytes().all(fits)
        };
        if kinds.len() > MAX_KINDS || !kinds.iter().all(is_kind) {
            let why = format!("`type` must be a list of at most {MAX_KINDS} types such as `task:failed,log`");
            return Err(ApiError::bad_request(why));
        }
        if preview.is_some_and(|bytes| bytes > MAX_PREVIEW_BYTES) {
            return Err(ApiError::bad_request(format!("`preview` must be from 0 to {MAX_PREVIEW_BYTES} bytes")));
        }
        let filter = EventFilter { kinds, task, before, preview };
        let is_any = filter.kinds.is_empty() && filter.task.is_none() && before.is_none() && preview.is_none();
        Ok((!is_any).then_some(filter))
    }

    fn selects(&self, event: &Event) -> bool {
        let is_of_kind = self.kinds.is_empty() || self.kinds.iter().any(|kind| kind == event.kind);
        is_of_kind && self.task.as_deref().is_none_or(|task| is_of_task(&event.data, task))
    }

    /// Returns an event of a stream, with large values cut, or `None` if the filter does not select it. Notices of the
    /// stream itself pass.
    pub(crate) fn pass(&self, frame: Frame) -> Option<Frame> {
        if &*frame.kind == LAGGED {
            return Some(frame);
        }
        if !self.kinds.is_empty() && !self.kinds.iter().any(|kind| **kind == *frame.kind) {
            return None;
        }
        if self.task.is_none() && self.preview.is_none() {
            return Some(frame);
        }
        let data = std::str::from_utf8(&frame.text).ok().and_then(|text| Json::parse(text).ok())?;
        if self.task.as_deref().is_some_and(|task| !is_of_task(&data, task)) {
            return None;
        }
        match self.preview.and_then(|most| cut_values(&data, most)) {
            None => Some(frame),
            Some(data) => Some(Frame { text: data.to_text().into(), ..frame }),
        }
    }

    /// Returns the serialized event. Values that are too large are cut.
    fn frame(&self, event: &Event) -> Frame {
        match self.preview.and_then(|most| cut_values(&event.data, most)) {
            None => frame(event, Some(event.seq), event.kind),
            Some(data) => frame(&Event { data, ..event.clone() }, Some(event.seq), event.kind),
        }
    }

    /// Reads a page of events. With `from`, or without `before`, it begins with the event number `from`, and the page may
    /// end before it has `most.items` events. Otherwise it has the last events before `before`. Returns the page, and for the
    /// latter the `before` of the page before it, if that is not empty.
    pub(crate) fn read(
        &self,
        reader: &mut EventReader,
        from: Option<u64>,
        most: PageLimits,
    ) -> Result<(Page, Option<u64>), ApiError> {
        match (from, self.before) {
            (None, Some(before)) => self.read_last(reader, before, most),
            _ => Ok((self.read_first(reader, from.unwrap_or(0), most)?, None)),
        }
    }

    fn read_first(&self, reader: &mut EventReader, from: u64, most: PageLimits) -> Result<Page, ApiError> {
        let mut page = Page { frames: Vec::new(), next: from, is_full: false, bytes: 0 };
        let mut filling = Filling::new(most);
        let last = from.saturating_add(MAX_SCANNED_EVENTS);
        while let Some(event) = reader.next(page.next)? {
            if self.before.is_some_and(|before| event.seq >= before) {
                break;
            }
            if event.seq >= last || filling.is_full() {
                page.is_full = true;
                break;
            }
            if self.selects(&event) {
                let frame = self.frame(&event);
                if !filling.take(frame.text.len() as u64) {
                    page.is_full = true;
                    break;
                }
                page.frames.push(frame);
            }
            page.next = event.seq + 1;
        }
        page.bytes = filling.bytes();
        reader.drop_read_ahead();
        Ok(page)
    }

    fn read_last(
        &self,
        reader: &mut EventReader,
        before: u64,
        most: PageLimits,
    ) -> Result<(Page, Option<u64>), ApiError> {
        let (mut frames, mut bytes, mut dropped, mut next) = (VecDeque::<Frame>::new(), 0_u64, false, 0);
        while let Some(event) = reader.next(next)?.filter(|event| event.seq < before) {
            next = event.seq + 1;
            if !self.selects(&event) {
                continue;
            }
            let frame = self.frame(&event);
            bytes += frame.text.len() as u64;
            frames.push_back(frame);
            while frames.len() > most.items || frames.len() > 1 && bytes > most.bytes {
                bytes -= frames.pop_front().map_or(0, |frame| frame.text.len() as u64);
                dropped = true;
            }
        }
        reader.drop_read_ahead();
        let previous = frames.front().and_then(|frame| frame.seq).filter(|_| dropped);
        Ok((Page { frames: frames.into(), next, is_full: false, bytes }, previous))
    }
}

/// Returns whether an event is about the task at an address, such as `each[3].pay`.
fn is_of_task(data: &Json, task: &str) -> bool {
    let text = |key: &str| data.get(key).and_then(Json::as_str);
    let Some(node) = text("nodeId") else { return false };
    match text("scope") {
        None => task == node,
        Some(scope) => task.strip_prefix(scope).and_then(|rest| rest.strip_prefix('.')) == Some(node),
    }
}

/// Returns the members of an event without those that are larger than `most` bytes as JSON text. A member `cut` has the
/// size and the beginning of each of these. Returns `None` if no member is larger.
fn cut_values(data: &Json, most: u64) -> Option<Json> {
    let members = data.as_object()?;
    let is_large = |value: &Json| value.measure(most).map_or(true, |bytes| bytes > most);
    if !members.values().any(is_large) {
        return None;
    }
    let (mut kept, mut cut) = (Vec::new(), serde_json::Map::new());
    for (name, value) in members {
        if is_large(value) && !is_name(name) {
            cut.insert(name.to_string(), json!(CutText::of(value)));
        } else {
            kept.push((name.clone(), value.clone()));
        }
    }
    kept.push(("cut".into(), Json::from(serde_json::Value::Object(cut))));
    Some(Json::object(kept))
}

/// Returns whether a member names an event or its place. Such members are never cut.
fn is_name(member: &str) -> bool {
    matches!(
        member,
        "taskId" | "nodeId" | "scope" | "attempt" | "call" | "v" | "seq" | "ts" | "tenant" | "runId" | "type"
    )
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

    use super::*;

    fn event(data: serde_json::Value) -> Event {
        let data = Json::from(data);
        Event { seq: 3, ts: 0, tenant: "local".into(), run_id: "r".into(), kind: "task:complete", data }
    }

    #[test]
    fn a_filter_selects_by_type_and_task() {
        let pay = event(json!({ "nodeId": "pay", "scope": "each[3]" }));
        for (kinds, task, expected) in [
            (None, None, None),
            (Some("task:complete"), None, Some(true)),
            (Some("log,task:complete"), None, Some(true)),
            (Some("log"), None, Some(false)),
            (None, Some("each[3].pay"), Some(true)),
            (None, Some("pay"), Some(false)),
            (None, Some("each[3]pay"), Some(false)),
            (None, Some("each[31].pay"), Some(false)),
            (Some("log"), Some("each[3].pay"), Some(false)),
        ] {
            let filter = EventFilter::parse(kinds, task.map(str::to_owned), None, None).unwrap();
            assert_eq!(filter.map(|filter| filter.selects(&pay)), expected, "{kinds:?} {task:?}");
        }
        let many = vec!["log"; MAX_KINDS + 1].join(",");
        for wrong in ["", "log,", "a b", "log,\u{202e}", &many] {
            assert!(EventFilter::parse(Some(wrong), None, None, None).is_err(), "{wrong}");
        }
        assert!(EventFilter::parse(None, None, None, Some(MAX_PREVIEW_BYTES + 1)).is_err());
    }

    #[test]
    fn a_stream_passes_selected_events_and_its_own_notices() {
        let of = |kind: &str, node: &str| {
            let text = json!({ "v": 1, "seq": 3, "type": kind, "nodeId": node, "result": "x".repeat(200) }).to_string();
            Frame { text: text.into(), seq: Some(3), kind: kind.into() }
        };
        let filter = |kinds: Option<&str>, task: Option<&str>, preview| {
            EventFilter::parse(kinds, task.map(str::to_owned), None, preview).unwrap().unwrap()
        };
        let passes = |filter: &EventFilter, kind, node| filter.pass(of(kind, node)).map(|frame| frame.text.len());
        let by_kind = filter(Some("log,task:failed"), None, None);
        assert!(passes(&by_kind, "log", "a") > Some(200) && passes(&by_kind, "task:start", "a").is_none());
        let by_task = filter(None, Some("a"), None);
        assert!(passes(&by_task, "log", "a").is_some() && passes(&by_task, "log", "b").is_none());
        assert!(passes(&by_task, "lagged", "b").is_some());
        let cut = filter(None, None, Some(0)).pass(of("log", "a")).unwrap();
        let cut: serde_json::Value = serde_json::from_slice(&cut.text).unwrap();
        assert_eq!(
            (&cut["type"], &cut["nodeId"], &cut["cut"]["result"]["bytes"]),
            (&json!("log"), &json!("a"), &json!(202))
        );
    }

    #[test]
    fn large_values_are_named_with_their_size() {
        let long = "é".repeat(3_000);
        let data = Json::from(json!({ "nodeId": long, "result": { "text": long }, "durationMs": 7 }));
        let cut = cut_values(&data, 100).unwrap().to_serde();
        assert_eq!((&cut["nodeId"], &cut["durationMs"], cut.get("result")), (&json!(long), &json!(7), None));
        assert_eq!(cut["cut"]["result"]["bytes"], json!({ "text": long }).to_string().len());
        assert_eq!(cut["cut"]["result"]["start"].as_str().unwrap().chars().count(), CutText::CHARS);
        assert_eq!(cut_values(&data, 10_000), None);
    }
}
