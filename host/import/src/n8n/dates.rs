//! Date & Time from version 2.

use serde_json::{Map, Value, json};

use super::{
    N8n, Port, calls, pointer,
    values::{self, Place},
};
use crate::{
    draft::Node,
    expr::{Term, atom, binding, bounded, quoted},
    report::{At, Verdict},
};

/// Signs of a format there and here, the longest first.
const SIGNS: [(&str, &str); 18] = [
    ("yyyy", "%Y"),
    ("MMMM", "%B"),
    ("EEEE", "%A"),
    ("MMM", "%b"),
    ("EEE", "%a"),
    ("SSS", "%L"),
    ("yy", "%y"),
    ("MM", "%m"),
    ("dd", "%d"),
    ("HH", "%H"),
    ("hh", "%I"),
    ("mm", "%M"),
    ("ss", "%S"),
    ("ZZ", "%:z"),
    ("M", "%-m"),
    ("d", "%-d"),
    ("H", "%-H"),
    ("a", "%p"),
];
/// Units of a duration with their parts of ISO 8601.
const UNITS: [(&str, &str, &str); 7] = [
    ("years", "P", "Y"),
    ("months", "P", "M"),
    ("weeks", "P", "W"),
    ("days", "P", "D"),
    ("hours", "PT", "H"),
    ("minutes", "PT", "M"),
    ("seconds", "PT", "S"),
];

/// Writes `data.map` with one more field.
pub(super) fn date(n8n: &mut N8n<'_>, node: usize, parameters: &Map<String, Value>, list: &str, sources: &[Port]) {
    let at = pointer(node).join("parameters");
    let place = Place { item: Some("item"), index: Some("index"), list };
    let version = n8n.nodes[node].get("typeVersion").and_then(Value::as_f64).unwrap_or(1.0);
    let found = if version < 2.0 { None } else { field(n8n, parameters, place, &at) };
    let Some((usual, expr)) = found.and_then(|(usual, expr)| Some((usual, bounded(expr).ok()?))) else {
        return calls::missing(n8n, node, list, sources);
    };
    let name = parameters.get("outputFieldName").and_then(Value::as_str).unwrap_or(usual);
    let keeps = parameters.get("options").and_then(|options| options.get("includeInputFields")) == Some(&true.into());
    n8n.options(parameters, &["includeInputFields"], &at);
    let known = ["operation", "date", "magnitude", "format", "customFormat", "timeUnit", "duration"];
    n8n.unknown(parameters, &[&known[..], &["outputFieldName", "options", "includeTime"]].concat(), &at);
    let why = "dates are read and written as RFC 3339 in UTC, and there in the time zone of the workflow";
    n8n.report.note(Verdict::Approximated, &at, "dateTime", why);
    let template = match keeps {
        true => Term::Expr(format!("item | merge({{{}: {expr}}})", quoted(name))),
        false => Term::Object(vec![(name.to_owned(), Term::Expr(expr))]),
    };
    let id = n8n.fresh(node);
    let input = json!({ "list": binding(list), "template": template.to_value() });
    n8n.add(node, Node::new(&id, "data.map", input), sources);
    n8n.single(node, &id, "list", format!("{id}.list"), false);
}

/// Returns the usual name of the field, and the expression of its value; `None` for another operation.
fn field(
    n8n: &mut N8n<'_>,
    parameters: &Map<String, Value>,
    place: Place<'_>,
    at: &At,
) -> Option<(&'static str, String)> {
    let text = |key: &str| parameters.get(key).and_then(Value::as_str);
    let mut value = |key: &str| values::parameter(n8n, parameters, key, place, at).map(|term| atom(&term.to_expr()));
    match text("operation").unwrap_or("getCurrentDate") {
        "getCurrentDate" if parameters.get("includeTime") != Some(&false.into()) => Some(("currentDate", "now".into())),
        "getCurrentDate" => Some(("currentDate", "now | datestart('day')".into())),
        operation @ ("addToDate" | "subtractFromDate") => {
            let (_, start, end) = UNITS.iter().find(|(unit, ..)| *unit == text("timeUnit").unwrap_or("days"))?;
            let sign = if operation == "addToDate" { "" } else { "-" };
            let (date, count) = (value("magnitude")?, value("duration").unwrap_or_else(|| "0".into()));
            let duration = format!("'{sign}{start}' ~ ({count} | string) ~ '{end}'");
            Some(("newDate", format!("{date} | dateadd({duration})")))
        }
        "formatDate" => {
            let date = value("date")?;
            let format = match text("format").unwrap_or("MM/dd/yyyy") {
                "custom" => text("customFormat")?,
                known => known,
            };
            Some(("formattedDate", format!("{date} | dateformat({})", quoted(&converted(format)?))))
        }
        _ => None,
    }
}

/// Converts the signs of a format; `None` if it has one that is not known.
fn converted(format: &str) -> Option<String> {
    let mut written = String::new();
    let mut rest = format;
    while let Some(first) = rest.chars().next() {
        if let Some((sign, own)) = SIGNS.iter().find(|(sign, _)| rest.starts_with(sign)) {
            written.push_str(own);
            rest = &rest[sign.len()..];
        } else if first.is_alphabetic() || matches!(first, '%' | '\'') {
            return None;
        } else {
            written.push(first);
            rest = &rest[first.len_utf8()..];
        }
    }
    (!written.is_empty()).then_some(written)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formats_with_known_signs_are_converted() {
        let cases = [
            ("yyyy-MM-dd", Some("%Y-%m-%d")),
            ("MMMM dd yyyy", Some("%B %d %Y")),
            ("d.M.yyyy HH:mm:ss.SSS", Some("%-d.%-m.%Y %H:%M:%S.%L")),
            ("X", None),
            ("yyyy 'at' HH", None),
            ("100%", None),
            ("", None),
        ];
        for (format, expected) in cases {
            assert_eq!(converted(format).as_deref(), expected, "{format}");
        }
    }
}
