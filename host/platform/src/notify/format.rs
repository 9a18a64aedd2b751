//! The bodies of the formats. All of them are JSON, so a text never leaves its string. In addition, no text is a link, a
//! mention or markup for the receiver.

use serde_json::{Value, json};

use super::{config::Format, message::Message};
use crate::shape::time;

/// Maximum characters of the summary that PagerDuty takes.
const MAX_SUMMARY_CHARS: usize = 1_024;
/// The time in milliseconds from an attempt to the end of the alert. An Alertmanager drops alerts that have ended.
const ALERT_MS: u64 = 3_600_000;
/// The name that messages give as their source.
const SOURCE: &str = "flowcell";

/// Returns the body of a message in a format. `contents` includes the text of the run, `key` is the routing key for
/// PagerDuty, and `now` the time of the attempt.
pub(super) fn body(format: Format, message: &Message, contents: bool, key: Option<&str>, now: u64) -> Value {
    match format {
        Format::Standard => standard(message, contents),
        Format::Slack => slack(message, contents),
        Format::Teams => teams(message, contents),
        Format::PagerDuty => pagerduty(message, contents, key.unwrap_or_default()),
        Format::AlertManager => json!([alert(message, contents, now)]),
    }
}

/// Returns a message as JSON of Flowcell, which programs get, too.
pub(super) fn standard(message: &Message, contents: bool) -> Value {
    let mut body = json!({
        "v": 1,
        "id": message.id,
        "kind": message.kind.name(),
        "urgent": message.kind.is_urgent(),
        "at": time(message.at),
        "title": message.title(),
    });
    let text = message.text.as_ref().filter(|_| contents);
    let members = [
        ("tenant", Some(&message.tenant).filter(|tenant| !tenant.is_empty())),
        ("flow", message.flow.as_ref()),
        ("run", message.run.as_ref()),
        ("address", message.address.as_ref()),
        ("code", message.code.as_ref()),
        ("about", Some(&message.about).filter(|about| !about.is_empty())),
        ("text", text),
        ("resolves", message.resolves.as_ref()),
    ];
    for (name, value) in members {
        if let Some(value) = value {
            body[name] = json!(value);
        }
    }
    if let Some(link) = &message.link {
        body["link"] = json!(link.url);
        if let Some(ends) = link.ends {
            body["linkEnds"] = json!(time(ends));
        }
    }
    body
}

/// Returns a message as plain text, such as for mail: the lines, without the title.
pub(super) fn plain(message: &Message, contents: bool) -> String {
    let mut lines: Vec<String> =
        message.lines(contents).into_iter().map(|(label, value)| without_links(&format!("{label}: {value}"))).collect();
    if let Some(link) = &message.link {
        lines.push(format!("{}: {}", link.label(), link.url));
    }
    lines.push(format!("Time: {}", time(message.at)));
    lines.push(format!("Id: {}", message.id));
    format!("{}\n\n{}\n", without_links(&message.title()), lines.join("\n"))
}

/// Returns a text whose addresses are no links for programs that look for some in plain text. The id of a run may be one.
fn without_links(text: &str) -> String {
    text.replace("://", "[:]//")
}

/// Returns a text for an annotation of an alert. The templates of an Alertmanager put it into messages of other services, for
/// which it may not begin a mention, a link or an element.
fn annotation(text: &str) -> String {
    without_links(text).replace('<', "‹").replace('>', "›")
}

/// Returns a message for an incoming webhook of Slack. Its texts are of the type `plain_text`, which has no markup. Slack
/// shows `text` in previews, where `<`, `>` and `&` would begin mentions and links.
fn slack(message: &Message, contents: bool) -> Value {
    let plain =
        |text: String| json!({ "type": "section", "text": { "type": "plain_text", "text": text, "emoji": false } });
    let lines: Vec<String> =
        message.lines(contents).into_iter().map(|(label, value)| format!("{label}: {value}")).collect();
    let mut blocks = vec![plain(message.title())];
    if !lines.is_empty() {
        blocks.push(plain(lines.join("\n")));
    }
    if let Some(link) = &message.link {
        // The only markup. It has no text of a tenant: the code of a link is Base64.
        let markup = format!("<{}|{}>", escape_slack(&link.url), escape_slack(&link.label()));
        blocks.push(json!({ "type": "section", "text": { "type": "mrkdwn", "text": markup, "verbatim": true } }));
    }
    json!({
        "text": escape_slack(&message.title()),
        "mrkdwn": false,
        "parse": "none",
        "link_names": false,
        "unfurl_links": false,
        "unfurl_media": false,
        "blocks": blocks,
    })
}

fn escape_slack(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

/// Returns an adaptive card for Teams. Its texts are runs of rich text, which have no Markdown.
fn teams(message: &Message, contents: bool) -> Value {
    let run = |text: String, weight: &str| {
        let runs = json!([{ "type": "TextRun", "text": text, "weight": weight }]);
        json!({ "type": "RichTextBlock", "inlines": runs })
    };
    let mut blocks = vec![run(message.title(), "Bolder")];
    let lines = message.lines(contents).into_iter();
    blocks.extend(lines.map(|(label, value)| run(format!("{label}: {value}"), "Default")));
    let mut content = json!({
        "$schema": "http://adaptivecards.io/schemas/adaptive-card.json",
        "type": "AdaptiveCard",
        "version": "1.4",
        "body": blocks,
    });
    if let Some(link) = &message.link {
        content["actions"] = json!([{ "type": "Action.OpenUrl", "title": link.label(), "url": link.url }]);
    }
    let attachment = json!({ "contentType": "application/vnd.microsoft.card.adaptive", "content": content });
    json!({ "type": "message", "attachments": [attachment] })
}

/// Returns an event for PagerDuty. A message about the end of a trouble resolves the incident of its begin.
fn pagerduty(message: &Message, contents: bool, key: &str) -> Value {
    let action = if message.resolves.is_some() { "resolve" } else { "trigger" };
    let summary: String = message.title().chars().take(MAX_SUMMARY_CHARS).collect();
    let mut event = json!({
        "routing_key": key,
        "event_action": action,
        "dedup_key": message.resolves.as_ref().unwrap_or(&message.id),
        "payload": {
            "summary": summary,
            "source": SOURCE,
            "severity": message.kind.severity(),
            "timestamp": time(message.at),
            "class": message.kind.name(),
            "custom_details": standard(message, contents),
        },
    });
    if let Some(link) = &message.link {
        event["links"] = json!([{ "href": link.url, "text": link.label() }]);
    }
    event
}

/// Returns an alert for an Alertmanager. Alerts with the same labels are one alert, so the id is a label.
fn alert(message: &Message, contents: bool, now: u64) -> Value {
    let mut labels = json!({
        "alertname": "FlowcellNotification",
        "kind": message.kind.name(),
        "severity": message.kind.severity(),
        "id": message.resolves.as_ref().unwrap_or(&message.id),
    });
    let names = [("tenant", Some(&message.tenant)), ("flow", message.flow.as_ref()), ("run", message.run.as_ref())];
    for (label, value) in names {
        // The labels of the end of a trouble are those of its begin. An empty label counts as none.
        if let Some(value) = value.filter(|value| !value.is_empty()) {
            labels[label] = json!(value);
        }
    }
    let lines: Vec<String> =
        message.lines(contents).into_iter().map(|(label, value)| annotation(&format!("{label}: {value}"))).collect();
    let ends = if message.resolves.is_some() { message.at } else { now.saturating_add(ALERT_MS) };
    let mut alert = json!({
        "labels": labels,
        "annotations": { "summary": annotation(&message.title()), "description": lines.join("\n") },
        "startsAt": time(message.at.min(ends)),
        "endsAt": time(ends),
    });
    if let Some(link) = &message.link {
        alert["generatorURL"] = json!(link.url);
        alert["annotations"]["link"] = json!(link.url);
    }
    alert
}
