//! The operator's file of targets.

use std::{path::PathBuf, sync::Arc};

use flowcell_services::{mail, webhook::SecretSource};
use jiff::{Timestamp, tz::TimeZone};
use serde::Deserialize;
use url::Url;

use super::message::NoticeKind;
use crate::operate::{address::check_protected, settings_file::SettingsFile};

/// Maximum size of the file.
pub const MAX_NOTIFY_FILE_BYTES: u64 = 1024 * 1024;
/// Maximum number of targets.
pub const MAX_TARGETS: usize = 32;
/// The number of messages about a tenant that a target gets in a minute, unless the file has another one.
pub const DEFAULT_PER_MINUTE: u32 = 30;
/// The greatest number of messages about a tenant that a target gets in a minute.
pub const MAX_PER_MINUTE: u32 = 600;
/// Maximum number of receivers of one target for mail, and of words of a program.
const MAX_WORDS: usize = 32;
/// The address of PagerDuty, if the file has no other.
const PAGERDUTY: &str = "https://events.pagerduty.com/v2/enqueue";
/// The path of alerts at an Alertmanager.
const ALERTS: &str = "/api/v2/alerts";

/// The time in hours for which a link answers a gate, unless the file has another one.
pub const DEFAULT_LINK_HOURS: u32 = 24;
/// The longest time in hours for which a link answers a gate.
pub const MAX_LINK_HOURS: u32 = 168;
/// Maximum length of the public address of the server.
const MAX_CONSOLE_BYTES: usize = 256;

/// The file: its targets, the mail server, and the address of the console.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct NotifyFile {
    /// The targets.
    #[serde(default)]
    pub targets: Vec<TargetSettings>,
    /// The mail server.
    #[serde(default)]
    pub mail: Option<MailServer>,
    /// The scheme, name and port by which people reach the console, such as `https://flows.example.com`.
    #[serde(default)]
    pub console: Option<String>,
}

/// A target.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct TargetSettings {
    /// The name, unique in the file.
    pub name: String,
    /// The way to the target.
    pub channel: ChannelKind,
    /// The form of the body of a webhook.
    #[serde(default)]
    pub format: Option<Format>,
    /// The URL of a webhook.
    #[serde(default)]
    pub url: Option<String>,
    /// The place of the URL, if it is a secret: `env:NAME` or `file:PATH`.
    #[serde(default)]
    pub url_from: Option<String>,
    /// The place of the secret that signs posts, or of the key for PagerDuty.
    #[serde(default)]
    pub secret_from: Option<String>,
    /// True if the URL may have a private address.
    #[serde(default)]
    pub allow_private: bool,
    /// The receivers of mail.
    #[serde(default)]
    pub to: Vec<String>,
    /// The program with its arguments.
    #[serde(default)]
    pub command: Vec<String>,
    /// The kinds of messages. `None`: all.
    #[serde(default)]
    pub kinds: Option<Vec<NoticeKind>>,
    /// The tenants. `None`: all, and the server itself.
    #[serde(default)]
    pub tenants: Option<Vec<String>>,
    /// The flows. `None`: all, and what concerns no flow.
    #[serde(default)]
    pub flows: Option<Vec<String>>,
    /// True if the target gets texts of runs: questions of gates.
    #[serde(default)]
    pub contents: bool,
    /// True if a message about a gate has a link on which one person may answer it.
    #[serde(default)]
    pub answer: bool,
    /// The time in hours for which a link answers its gate.
    #[serde(default)]
    pub answer_hours: Option<u32>,
    /// The number of messages about each tenant in a minute. Further ones are counted.
    #[serde(default)]
    pub per_minute: Option<u32>,
    /// The hours without messages that are not urgent.
    #[serde(default)]
    pub quiet: Option<QuietHours>,
}

/// The way to a target.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum ChannelKind {
    /// A post to a URL.
    Webhook,
    /// A mail.
    Mail,
    /// A program of the operator.
    Program,
}

/// The form of the body of a webhook.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Format {
    /// JSON of Flowcell, signed as Standard Webhooks.
    #[default]
    Standard,
    /// An incoming webhook of Slack.
    Slack,
    /// An adaptive card for Microsoft Teams.
    Teams,
    /// An event of version 2 for PagerDuty.
    PagerDuty,
    /// An alert for an Alertmanager.
    AlertManager,
}

/// The operator's mail server.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct MailServer {
    /// The host name.
    pub server: String,
    /// The port. `None`: 587, or 465 with `tls: tls`.
    #[serde(default)]
    pub port: Option<u16>,
    /// The encryption.
    #[serde(default)]
    pub tls: TlsMode,
    /// The name for the server.
    #[serde(default)]
    pub user: Option<String>,
    /// The place of the password.
    #[serde(default)]
    pub password_from: Option<String>,
    /// A file with certificates of private issuers, in PEM.
    #[serde(default)]
    pub ca_file: Option<PathBuf>,
    /// The address of the sender.
    pub from: String,
}

/// The encryption of the connection to a mail server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum TlsMode {
    /// STARTTLS, which is required.
    #[default]
    StartTls,
    /// TLS from the start.
    Tls,
    /// No encryption.
    None,
}

/// Hours in a time zone, from a time of day to another one.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct QuietHours {
    /// The name of the time zone, such as `Europe/Berlin`.
    pub zone: String,
    /// The start, such as `22:00`.
    pub from: String,
    /// The end, such as `07:00`. Before the start: on the next day.
    pub to: String,
}

impl SettingsFile for NotifyFile {
    const MAX_BYTES: u64 = MAX_NOTIFY_FILE_BYTES;
    const HELP: &'static str = "`flowcell help notifications` describes the file";

    fn check(&self) -> Result<(), String> {
        if self.targets.len() > MAX_TARGETS {
            return Err(format!("the file has {} targets, and {MAX_TARGETS} are the limit", self.targets.len()));
        }
        if let Some(mail) = &self.mail {
            mail.check().map_err(|why| format!("`mail`: {why}"))?;
        }
        if let Some(console) = &self.console {
            check_console(console).map_err(|why| format!("`console`: {why}"))?;
        }
        for (index, target) in self.targets.iter().enumerate() {
            let wrong = |why: String| format!("`targets[{index}]` (`{}`): {why}", target.name.escape_debug());
            target.check().map_err(wrong)?;
            if self.targets[..index].iter().any(|earlier| earlier.name == target.name) {
                return Err(wrong("another target has the same name".to_owned()));
            }
            if target.channel == ChannelKind::Mail && self.mail.is_none() {
                return Err(wrong("`channel: mail` needs the mail server, in `mail` beside `targets`".to_owned()));
            }
            if target.answer && self.console.is_none() {
                let why = "`answer` needs the public address of this server, in `console` beside `targets`, such as \
                           `https://flows.example.com`";
                return Err(wrong(why.to_owned()));
            }
        }
        Ok(())
    }
}

impl TargetSettings {
    fn check(&self) -> Result<(), String> {
        let is_name = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
        if self.name.is_empty() || self.name.len() > 64 || !self.name.bytes().all(is_name) {
            return Err("a name has 1 to 64 letters, digits, `-`, `_` and `.`".to_owned());
        }
        let is_webhook = self.channel == ChannelKind::Webhook;
        let strays = [
            ("format", self.format.is_some(), is_webhook),
            ("url", self.url.is_some(), is_webhook),
            ("urlFrom", self.url_from.is_some(), is_webhook),
            ("secretFrom", self.secret_from.is_some(), is_webhook),
            ("allowPrivate", self.allow_private, is_webhook),
            ("to", !self.to.is_empty(), self.channel == ChannelKind::Mail),
            ("command", !self.command.is_empty(), self.channel == ChannelKind::Program),
        ];
        if let Some((name, ..)) = strays.iter().find(|(_, is_given, fits)| *is_given && !fits) {
            return Err(format!("`{name}` does not fit this `channel`"));
        }
        match self.channel {
            ChannelKind::Webhook => self.check_webhook()?,
            ChannelKind::Mail if self.to.is_empty() => return Err("`to` needs an address".to_owned()),
            ChannelKind::Program if self.command.is_empty() => return Err("`command` needs a program".to_owned()),
            _ => {}
        }
        if self.to.len().max(self.command.len()) > MAX_WORDS {
            return Err(format!("`to` and `command` have at most {MAX_WORDS} items"));
        }
        self.to.iter().try_for_each(|address| mail::check_address(address))?;
        let empty = |list: &Option<Vec<String>>| list.as_ref().is_some_and(Vec::is_empty);
        if empty(&self.tenants) || empty(&self.flows) || self.kinds.as_ref().is_some_and(Vec::is_empty) {
            return Err("an empty list in `kinds`, `tenants` or `flows` hears nothing; leave the key out".to_owned());
        }
        if self.kinds.iter().flatten().any(|kind| *kind == NoticeKind::LeftOut) {
            return Err("each target gets `left_out`, so `kinds` does not name it".to_owned());
        }
        if self.answer && !self.hears_kind(NoticeKind::GateOpened) {
            return Err("`answer` needs `gate_opened` in `kinds`".to_owned());
        }
        match self.answer_hours {
            Some(_) if !self.answer => return Err("`answerHours` needs `answer: true`".to_owned()),
            Some(hours) if hours == 0 || hours > MAX_LINK_HOURS => {
                return Err(format!("`answerHours` is a number from 1 to {MAX_LINK_HOURS}"));
            }
            _ => {}
        }
        if self.per_minute.is_some_and(|count| count == 0 || count > MAX_PER_MINUTE) {
            return Err(format!("`perMinute` is a number from 1 to {MAX_PER_MINUTE}"));
        }
        self.quiet.as_ref().map_or(Ok(()), |quiet| quiet.parse().map(drop).map_err(|why| format!("`quiet`: {why}")))
    }

    fn check_webhook(&self) -> Result<(), String> {
        let format = self.format.unwrap_or_default();
        match (&self.url, &self.url_from) {
            (Some(_), Some(_)) => return Err("give `url` or `urlFrom`, and not both".to_owned()),
            (None, None) if format != Format::PagerDuty => return Err("`url` or `urlFrom` is missing".to_owned()),
            (Some(url), None) => check_url(url)?,
            _ => {}
        }
        match (format, &self.secret_from) {
            (Format::Slack | Format::Teams | Format::AlertManager, Some(_)) => {
                return Err("`secretFrom` fits only the formats `standard` and `pagerduty`".to_owned());
            }
            (Format::PagerDuty, None) => return Err("`secretFrom` is missing: the place of the routing key".to_owned()),
            _ => {}
        }
        for (name, place) in [("urlFrom", &self.url_from), ("secretFrom", &self.secret_from)] {
            let Some(place) = place else { continue };
            place.parse::<SecretSource>().map_err(|why| format!("`{name}`: {why}"))?;
        }
        Ok(())
    }

    /// Returns the URL of a webhook, for a URL in the file or from `urlFrom`.
    pub(super) fn full_url(&self, url: Option<&str>) -> String {
        let url = url.unwrap_or(PAGERDUTY);
        match self.format {
            Some(Format::AlertManager) if !url.ends_with(ALERTS) => format!("{}{ALERTS}", url.trim_end_matches('/')),
            _ => url.to_owned(),
        }
    }

    /// Returns whether the target hears of a tenant, or of the server if the name is empty.
    pub(super) fn hears_tenant(&self, tenant: &str) -> bool {
        self.tenants.as_ref().is_none_or(|tenants| tenants.iter().any(|name| name == tenant))
    }

    /// Returns whether the target gets messages of this kind.
    pub(super) fn hears_kind(&self, kind: NoticeKind) -> bool {
        self.kinds.as_ref().is_none_or(|kinds| kinds.contains(&kind))
    }

    /// Returns whether the target gets a message of this kind about a flow of a tenant.
    pub(super) fn hears(&self, kind: NoticeKind, tenant: &str, flow: Option<&str>) -> bool {
        self.hears_tenant(tenant)
            && self.hears_kind(kind)
            && self.flows.as_ref().is_none_or(|flows| flow.is_some_and(|flow| flows.iter().any(|name| name == flow)))
    }
}

/// Checks the public address of the server. Codes of links are sent to it, so only this machine may be without TLS.
fn check_console(console: &str) -> Result<(), String> {
    let url = Url::parse(console).map_err(|error| format!("not a URL: {error}"))?;
    check_protected(&url)?;
    let is_bare = url.username().is_empty() && url.password().is_none() && url.path() == "/";
    if !is_bare || url.query().is_some() || url.fragment().is_some() || console.len() > MAX_CONSOLE_BYTES {
        return Err("give the scheme, the name and the port alone, such as `https://flows.example.com`".to_owned());
    }
    Ok(())
}

/// Checks a URL. The error does not repeat it, since it may be a secret.
pub(super) fn check_url(url: &str) -> Result<(), String> {
    let parsed = Url::parse(url).map_err(|error| format!("`url` is not a URL: {error}"))?;
    if !matches!(parsed.scheme(), "http" | "https") {
        return Err("`url` must begin with `https://` or `http://`".to_owned());
    }
    if !parsed.username().is_empty() || parsed.password().is_some() {
        return Err("`url` has a user name or a password, which no webhook may have".to_owned());
    }
    Ok(())
}

impl MailServer {
    fn check(&self) -> Result<(), String> {
        let is_host = |byte: u8| byte.is_ascii_alphanumeric() || b"-.:".contains(&byte);
        if self.server.is_empty() || !self.server.bytes().all(is_host) {
            return Err("`server` is not the name of a host".to_owned());
        }
        mail::check_address(&self.from).map_err(|why| format!("`from`: {why}"))?;
        match (&self.user, &self.password_from) {
            (Some(_), Some(place)) => {
                _ = place.parse::<SecretSource>().map_err(|why| format!("`passwordFrom`: {why}"))?
            }
            (None, None) => {}
            _ => return Err("give `user` and `passwordFrom`, or neither".to_owned()),
        }
        if self.tls == TlsMode::None && self.ca_file.is_some() {
            return Err("`caFile` has no use with `tls: none`; use `startTls` or `tls`".to_owned());
        }
        let is_here = ["127.0.0.1", "::1", "localhost"].contains(&self.server.as_str());
        if self.tls == TlsMode::None && self.user.is_some() && !is_here {
            return Err("`tls: none` would send the password in plain text; use `startTls` or `tls`".to_owned());
        }
        Ok(())
    }

    /// Returns the port.
    pub(super) fn port(&self) -> u16 {
        self.port.unwrap_or(if self.tls == TlsMode::Tls { 465 } else { 587 })
    }
}

/// Checked quiet hours.
#[derive(Clone, Debug)]
pub(super) struct Quiet {
    zone: Arc<TimeZone>,
    from: u32,
    to: u32,
}

impl QuietHours {
    /// Parses the zone and the times of day.
    pub(super) fn parse(&self) -> Result<Quiet, String> {
        let zone =
            TimeZone::get(&self.zone).map_err(|_| format!("unknown time zone `{}`", self.zone.escape_debug()))?;
        let (from, to) = (minutes(&self.from)?, minutes(&self.to)?);
        if from == to {
            return Err("`from` and `to` are the same".to_owned());
        }
        Ok(Quiet { zone: Arc::new(zone), from, to })
    }
}

/// Returns the minutes since midnight of a time such as `22:00`.
fn minutes(text: &str) -> Result<u32, String> {
    let wrong = || format!("`{}` is not a time such as `22:00`; write it in quotes", text.escape_debug());
    let (hours, minutes) = text.split_once(':').ok_or_else(wrong)?;
    let number = |text: &str, most: u32| -> Option<u32> {
        let is_number = text.len() == 2 && text.bytes().all(|byte| byte.is_ascii_digit());
        text.parse::<u32>().ok().filter(|number| is_number && *number <= most)
    };
    Ok(number(hours, 23).ok_or_else(wrong)? * 60 + number(minutes, 59).ok_or_else(wrong)?)
}

impl Quiet {
    /// Returns whether a time, in milliseconds since 1970, is in the quiet hours.
    pub(super) fn contains(&self, now: u64) -> bool {
        let Some(now) = i64::try_from(now).ok().and_then(|now| Timestamp::from_millisecond(now).ok()) else {
            return false;
        };
        let time = now.to_zoned((*self.zone).clone()).time();
        let at = u32::from(time.hour().unsigned_abs()) * 60 + u32::from(time.minute().unsigned_abs());
        if self.from < self.to { (self.from..self.to).contains(&at) } else { at >= self.from || at < self.to }
    }
}
