//! Fixtures of test cases: results of nodes, and replies to calls that leave the host.

use std::collections::BTreeMap;

use flowcell_contract::{BuiltIn, Failure, Json, instant_milliseconds};
use serde::{Deserialize, Deserializer, de::Error as _};

use crate::world::test_run::{CallFixture, Fixtures, NodeFixture};

/// A reply, and the calls that receive it.
#[derive(Clone, Deserialize)]
#[serde(try_from = "WrittenReply")]
pub struct ReplyFixture(CallFixture);

/// A [`ReplyFixture`] as the file of cases writes it.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenReply {
    #[serde(default = "http", deserialize_with = "parse_capability")]
    capability: BuiltIn,
    node: Option<String>,
    method: Option<String>,
    url: Option<String>,
    /// Further members of the call's description. Only calls that have equal members receive the reply.
    #[serde(default)]
    about: BTreeMap<String, Json>,
    /// The name of the called service.
    service: Option<String>,
    times: Option<Times>,
    reply: Option<Json>,
    /// The result of a service call.
    result: Option<Json>,
    #[serde(default, deserialize_with = "not_null")]
    error: Option<FixtureError>,
}

fn http() -> BuiltIn {
    BuiltIn::Http
}

/// Reads the name of a capability whose calls leave the host. `services` is not accepted: a fixture for a service has
/// the member `service` instead.
fn parse_capability<'de, D: Deserializer<'de>>(deserializer: D) -> Result<BuiltIn, D::Error> {
    let name = String::deserialize(deserializer)?;
    let is_called = |capability: &BuiltIn| capability.effect().is_external() && *capability != BuiltIn::Services;
    BuiltIn::named(&name).filter(is_called).ok_or_else(|| {
        let known = BuiltIn::ALL.iter().copied().filter(is_called);
        let known: Vec<_> = known.map(|capability| format!("`{}`", capability.name())).collect();
        D::Error::custom(format!("unknown variant `{name}`, expected one of {}", known.join(", ")))
    })
}

/// The number of calls that receive a reply.
#[derive(Deserialize)]
#[serde(untagged)]
enum Times {
    Number(u32),
    Word(Any),
}

#[derive(Deserialize)]
#[serde(rename_all = "lowercase")]
enum Any {
    Any,
}

/// A response of an HTTP server. The default status is 200.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Reply {
    #[serde(default = "ok")]
    status: u16,
    #[serde(default)]
    headers: BTreeMap<String, String>,
    json: Option<Json>,
    text: Option<String>,
}

fn ok() -> u16 {
    200
}

impl ReplyFixture {
    /// Returns the reply for a test run.
    pub fn as_fixture(&self) -> CallFixture {
        self.0.clone()
    }

    /// Returns the node whose calls receive the reply, if the reply names one.
    pub fn node(&self) -> Option<&str> {
        self.0.node.as_deref()
    }
}

impl TryFrom<WrittenReply> for ReplyFixture {
    type Error = String;

    fn try_from(written: WrittenReply) -> Result<ReplyFixture, String> {
        let capability = if written.service.is_some() { BuiltIn::Services } else { written.capability };
        let asked = [("method", written.method), ("url", written.url), ("service", written.service)];
        let asked = asked.into_iter().filter_map(|(key, value)| Some((key.to_owned(), Json::from(value?))));
        let reply = match (written.error, capability, written.reply) {
            (Some(error), ..) => Err(error.as_failure()),
            (None, BuiltIn::Services, _) => Ok(written.result.unwrap_or_default()),
            (None, BuiltIn::Http, None) => Ok(Reply::default().as_json()),
            (None, BuiltIn::Http, Some(reply)) => Ok(Reply::read(&reply)?.as_json()),
            (None, _, reply) => Ok(reply.unwrap_or_default()),
        };
        let times = match written.times {
            None => Some(1),
            Some(Times::Number(times)) => Some(times),
            Some(Times::Word(Any::Any)) => None,
        };
        Ok(ReplyFixture(CallFixture {
            interface: Some(capability.name().into()),
            node: written.node,
            about: asked.chain(written.about).collect(),
            reply,
            times,
        }))
    }
}

impl Default for Reply {
    fn default() -> Reply {
        Reply { status: ok(), headers: BTreeMap::new(), json: None, text: None }
    }
}

impl Reply {
    fn read(reply: &Json) -> Result<Reply, String> {
        let wrong = |why: String| format!("a reply to http must be {{ status, headers, json or text }}: {why}");
        let read: Reply = serde_json::from_value(reply.to_serde()).map_err(|error| wrong(error.to_string()))?;
        match (&read.json, &read.text) {
            (Some(_), Some(_)) => Err(wrong("use either `json` or `text`, not both".into())),
            _ => Ok(read),
        }
    }

    fn as_json(&self) -> Json {
        let header = |name: &str, value: &str| Json::array([Json::from(name.to_lowercase()), Json::from(value)]);
        let mut headers: Vec<_> = self.headers.iter().map(|(name, value)| header(name, value)).collect();
        let text = match (&self.json, &self.text) {
            (Some(json), _) => {
                headers.push(header("content-type", "application/json"));
                Some(json.to_text())
            }
            (None, text) => text.clone(),
        };
        let body = text.map_or(Json::Null, |text| Json::object([("text", Json::from(text))]));
        let status = Json::from(u32::from(self.status));
        Json::object([("status", status), ("headers", Json::array(headers)), ("body", body)])
    }
}

/// The fixture of a node that does not run.
#[derive(Clone, Deserialize)]
#[serde(try_from = "BTreeMap<String, Json>")]
pub enum FixtureResult {
    /// The output of the node.
    Output(Json),
    /// The failure of the node.
    Error(FixtureError),
}

/// A failure, as the file of cases writes it.
#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FixtureError {
    code: String,
    #[serde(default)]
    message: String,
    #[serde(default)]
    retryable: bool,
}

impl TryFrom<BTreeMap<String, Json>> for FixtureResult {
    type Error = String;

    fn try_from(written: BTreeMap<String, Json>) -> Result<FixtureResult, String> {
        let mut members = written.into_iter();
        let (Some((key, value)), None) = (members.next(), members.next()) else {
            return Err("write either `{ output: … }` or `{ error: { code: …, message: … } }`".into());
        };
        match key.as_str() {
            "output" => Ok(FixtureResult::Output(value)),
            "error" => {
                for key in ["code", "message"] {
                    if let Some(odd) = value.get(key).filter(|text| text.as_str().is_none()) {
                        let kind = odd.type_name();
                        return Err(format!("`{key}` of `error` must be a text, not {kind}: write it in quotes"));
                    }
                }
                let error = serde_json::from_value(value.to_serde());
                error
                    .map(FixtureResult::Error)
                    .map_err(|error| format!("`error` must be {{ code, message? }}: {error}"))
            }
            other => Err(format!("unknown field `{other}`, expected `output` or `error`")),
        }
    }
}

impl FixtureResult {
    /// Returns the output, or `None` for a failure.
    pub fn output(&self) -> Option<&Json> {
        match self {
            FixtureResult::Output(output) => Some(output),
            FixtureResult::Error(_) => None,
        }
    }

    /// Returns the result for a test run.
    pub fn as_fixture(&self) -> NodeFixture {
        match self {
            FixtureResult::Output(output) => NodeFixture::Output(output.clone()),
            FixtureResult::Error(error) => NodeFixture::Failure(error.as_failure()),
        }
    }
}

impl FixtureError {
    fn as_failure(&self) -> Failure {
        Failure { retryable: self.retryable, ..Failure::new(&self.code, &self.message) }
    }
}

/// Returns an error text if the fixtures have replies that no call has used. Returns `None` if all are used.
pub fn unused_error(script: &Fixtures) -> Option<String> {
    let replies = match script.unused_replies() {
        0 => return None,
        1 => "1 reply".to_owned(),
        left => format!("{left} replies"),
    };
    Some(format!("{replies} under `calls` not used by any call"))
}

/// Reads `clock`, a time in RFC 3339 such as `2026-01-31T23:59:00Z`, as milliseconds since 1970.
pub fn point_in_time<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u64>, D::Error> {
    let Some(text) = Option::<String>::deserialize(deserializer)? else { return Ok(None) };
    milliseconds(&text).map(Some).map_err(D::Error::custom)
}

/// Converts a time in RFC 3339 to milliseconds since 1970. The error is a sentence for people.
fn milliseconds(text: &str) -> Result<u64, String> {
    // A `jiff::Timestamp` lacks the last hours of the year 9999.
    let read = text.parse::<jiff::Timestamp>().map(|time| time.as_millisecond()).ok();
    if let Some(time) = read.or_else(|| instant_milliseconds(&Json::from(text)).ok()) {
        return u64::try_from(time).map_err(|_| format!("`{text}` is before 1970"));
    }
    let (day, rest) = text.split_once(['T', 't', ' ']).unwrap_or((text, ""));
    let time = rest.get(..8).unwrap_or_default();
    if matches_pattern(day, "0000-00-00") && day.parse::<jiff::civil::Date>().is_err() {
        return Err(format!("the day {day} does not exist"));
    }
    if matches_pattern(time, "00:00:00") && time.parse::<jiff::civil::Time>().is_err() {
        return Err(format!("the time {time} does not exist"));
    }
    Err(format!("`{text}` is not a time; write it as `2026-01-31T23:59:00Z`"))
}

/// Returns true if a text has a digit wherever the pattern has `0`, and the pattern's characters everywhere else.
fn matches_pattern(text: &str, pattern: &str) -> bool {
    let is_like = |(sign, like): (u8, u8)| if like == b'0' { sign.is_ascii_digit() } else { sign == like };
    text.len() == pattern.len() && text.bytes().zip(pattern.bytes()).all(is_like)
}

/// Reads the value of a key that tests nothing without one. `error:` alone is null, and most often a slip.
pub(super) fn not_null<'de, T: Deserialize<'de>, D: Deserializer<'de>>(deserializer: D) -> Result<Option<T>, D::Error> {
    let value = Option::<T>::deserialize(deserializer)?;
    value
        .map(Some)
        .ok_or_else(|| D::Error::custom("a key without a value tests nothing: write its value, or remove it"))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::{FixtureResult, milliseconds};
    use crate::Json;

    #[test]
    fn errors_with_a_code_that_is_no_text_say_so() {
        for (error, why) in [
            (r#"{ "code": false }"#, "`code` of `error` must be a text, not a boolean: write it in quotes"),
            (r#"{ "code": "a", "message": 7 }"#, "`message` of `error` must be a text, not a number"),
            ("{}", "`error` must be { code, message? }: missing field `code`"),
        ] {
            let written = BTreeMap::from([("error".to_owned(), Json::parse(error).unwrap())]);
            let refused = FixtureResult::try_from(written).err().unwrap();
            assert!(refused.contains(why), "{error}: {refused}");
        }
    }

    #[test]
    fn nonexistent_times_and_malformed_times_have_different_errors() {
        for (text, expected) in [
            ("1970-01-01T00:00:01Z", Ok(1000)),
            ("9999-12-31T23:59:59Z", Ok(253_402_300_799_000)),
            ("2026-02-31T23:59:00Z", Err("the day 2026-02-31 does not exist")),
            ("2026-13-01", Err("the day 2026-13-01 does not exist")),
            ("2026-02-28T25:00:00Z", Err("the time 25:00:00 does not exist")),
            ("1969-12-31T23:59:59Z", Err("`1969-12-31T23:59:59Z` is before 1970")),
            ("2026-02-28", Err("`2026-02-28` is not a time; write it as `2026-01-31T23:59:00Z`")),
            ("é026-02-2", Err("`é026-02-2` is not a time; write it as `2026-01-31T23:59:00Z`")),
            ("", Err("`` is not a time; write it as `2026-01-31T23:59:00Z`")),
        ] {
            assert_eq!(milliseconds(text), expected.map_err(str::to_owned), "{text}");
        }
    }
}
