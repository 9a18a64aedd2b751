//! A message, its id, and its texts.

use std::time::Instant;

use flowcell_contract::RunId;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::shape::time;

/// Maximum characters of a name in a message, such as that of a flow.
pub const MAX_NAME_CHARS: usize = 120;
/// Maximum characters of a text of a run in a message, such as the question of a gate.
pub const MAX_TEXT_CHARS: usize = 500;
/// The end of a text that was cut.
const CUT: &str = " … (cut)";

/// The kind of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NoticeKind {
    /// A run asks a person: a gate, or a call that needs approval.
    GateOpened,
    /// A run has failed.
    RunFailed,
    /// A run needs the decision of a person.
    RunBlocked,
    /// A run is parked, since its process has died repeatedly.
    CrashLoop,
    /// A run is parked, since the store was restored from an older copy.
    Restored,
    /// A tenant has used 80 % or all of a daily quota.
    Quota,
    /// The store does not answer, or its disk is nearly full.
    StoreTrouble,
    /// A trigger refuses posts repeatedly.
    WebhookRefused,
    /// A token expires soon, or has expired.
    TokenExpires,
    /// The server that issued a secret ends it soon, or has ended it.
    SecretExpires,
    /// The host can renew the token of a credential only for a short time, or no longer.
    CredentialExpires,
    /// The host gets no token for a credential.
    CredentialFailed,
    /// The number of messages that were left out. Not in the operator's file: each target gets it.
    LeftOut,
}

impl NoticeKind {
    /// All kinds that a file may name.
    pub const ALL: [NoticeKind; 12] = [
        NoticeKind::GateOpened,
        NoticeKind::RunFailed,
        NoticeKind::RunBlocked,
        NoticeKind::CrashLoop,
        NoticeKind::Restored,
        NoticeKind::Quota,
        NoticeKind::StoreTrouble,
        NoticeKind::WebhookRefused,
        NoticeKind::TokenExpires,
        NoticeKind::SecretExpires,
        NoticeKind::CredentialExpires,
        NoticeKind::CredentialFailed,
    ];

    /// Returns the name in files and messages.
    pub fn name(self) -> &'static str {
        match self {
            NoticeKind::GateOpened => "gate_opened",
            NoticeKind::RunFailed => "run_failed",
            NoticeKind::RunBlocked => "run_blocked",
            NoticeKind::CrashLoop => "crash_loop",
            NoticeKind::Restored => "restored",
            NoticeKind::Quota => "quota",
            NoticeKind::StoreTrouble => "store_trouble",
            NoticeKind::WebhookRefused => "webhook_refused",
            NoticeKind::TokenExpires => "token_expires",
            NoticeKind::SecretExpires => "secret_expires",
            NoticeKind::CredentialExpires => "credential_expires",
            NoticeKind::CredentialFailed => "credential_failed",
            NoticeKind::LeftOut => "left_out",
        }
    }

    /// Returns whether a message of this kind is sent in quiet hours, too.
    pub fn is_urgent(self) -> bool {
        matches!(self, NoticeKind::CrashLoop | NoticeKind::Restored | NoticeKind::StoreTrouble)
    }

    /// Returns the severity in the words of PagerDuty.
    pub(super) fn severity(self) -> &'static str {
        match self {
            kind if kind.is_urgent() => "critical",
            NoticeKind::RunFailed | NoticeKind::RunBlocked | NoticeKind::CredentialFailed => "error",
            NoticeKind::GateOpened => "info",
            _ => "warning",
        }
    }
}

/// The open question of a gate.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Question {
    /// The whole address of the gate in its run.
    pub address: String,
    /// The digest of the question.
    pub digest: String,
    /// The time of the question, in milliseconds since 1970.
    pub since: u64,
}

/// A link for people.
#[derive(Clone, Debug, PartialEq)]
pub struct Link {
    /// The URL.
    pub url: String,
    /// The time at which the link to a gate ends, in milliseconds since 1970. `None`: the link is to the page of the run.
    pub ends: Option<u64>,
}

impl Link {
    /// Returns the words of the link.
    pub(super) fn label(&self) -> String {
        match self.ends {
            Some(ends) => format!("Answer until {}", time(ends)),
            None => "Open the run".to_owned(),
        }
    }
}

/// A message. Names and texts are cut, and have no control characters.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Message {
    /// The id, which a repeated message has again.
    pub id: String,
    /// The kind.
    pub kind: NoticeKind,
    /// The tenant. Empty: the server.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub tenant: String,
    /// The time of the event, in milliseconds since 1970.
    pub at: u64,
    /// The time at which the message was queued, in milliseconds since 1970.
    pub queued: u64,
    /// The name of the flow.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub flow: Option<String>,
    /// The id of the run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run: Option<String>,
    /// The address of the task in the run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address: Option<String>,
    /// The code of the error, or the reason of the wait.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<String>,
    /// A sentence of Flowcell about the event.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub about: String,
    /// A text of the run, such as the question of a gate. Only targets with `contents: true` get it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
    /// The whole id of the run, for links.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run_id: Option<RunId>,
    /// The open question of a gate, for links. Only targets with `answer: true` get it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub question: Option<Question>,
    /// The link of this attempt. It is in no document, since a link to a gate is a secret.
    #[serde(skip)]
    pub link: Option<Link>,
    /// The id of the message whose trouble is over.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resolves: Option<String>,
    /// The number of failed attempts of this process.
    #[serde(skip)]
    pub attempts: u32,
    /// The number of these attempts in which the target has refused this message.
    #[serde(skip)]
    pub refusals: u32,
    /// The time before which this process does not try again.
    #[serde(skip)]
    pub next: Option<Instant>,
}

impl Message {
    /// Creates a message about an event. Its id follows from the tenant, the kind, the run and `place`.
    pub(super) fn new(kind: NoticeKind, tenant: &str, run: Option<&str>, place: &[&str], at: u64) -> Message {
        let parts = [&[tenant, kind.name(), run.unwrap_or_default()], place].concat();
        Message {
            id: message_id(&parts),
            kind,
            tenant: name(tenant),
            at,
            queued: 0,
            flow: None,
            run: run.map(name),
            address: None,
            code: None,
            about: String::new(),
            text: None,
            run_id: None,
            question: None,
            link: None,
            resolves: None,
            attempts: 0,
            refusals: 0,
            next: None,
        }
    }

    /// Returns the first line: the event and its names.
    pub fn title(&self) -> String {
        let what = match self.kind {
            NoticeKind::GateOpened => "A run waits for an answer",
            NoticeKind::RunFailed => "A run has failed",
            NoticeKind::RunBlocked => "A run needs a decision",
            NoticeKind::CrashLoop => "A run ends its process and is parked",
            NoticeKind::Restored => "A run is parked after the store was restored",
            NoticeKind::Quota => "A quota is nearly or wholly used",
            NoticeKind::StoreTrouble if self.resolves.is_some() => "The trouble of the store is over",
            NoticeKind::StoreTrouble => "The store has trouble",
            NoticeKind::WebhookRefused => "A trigger refuses posts",
            NoticeKind::TokenExpires => "A token expires",
            NoticeKind::SecretExpires => "A secret expires",
            NoticeKind::CredentialExpires => "A credential expires",
            NoticeKind::CredentialFailed => "A credential has no valid token",
            NoticeKind::LeftOut => "Notifications were left out",
        };
        let flow = self.flow.as_ref().map(|flow| format!(": {flow}")).unwrap_or_default();
        let tenant = if self.tenant.is_empty() { String::new() } else { format!(" [{}]", self.tenant) };
        format!("{what}{flow}{tenant}")
    }

    /// Returns the further lines: a label and a value each. `contents` adds the text of the run.
    pub fn lines(&self, contents: bool) -> Vec<(&'static str, String)> {
        let text = self.text.as_ref().filter(|_| contents);
        let all = [
            ("About", Some(&self.about).filter(|about| !about.is_empty())),
            ("Tenant", Some(&self.tenant).filter(|tenant| !tenant.is_empty())),
            ("Flow", self.flow.as_ref()),
            ("Run", self.run.as_ref()),
            ("Task", self.address.as_ref()),
            ("Code", self.code.as_ref()),
            ("Text", text),
        ];
        all.into_iter().filter_map(|(label, value)| Some((label, value?.clone()))).collect()
    }
}

/// Returns the id of a message with these parts. No two lists of parts have the same id.
pub(super) fn message_id(parts: &[&str]) -> String {
    let mut digest = Sha256::new();
    for part in parts {
        digest.update((part.len() as u64).to_le_bytes());
        digest.update(part);
    }
    format!("ntf_{}", hex::encode(&digest.finalize()[..16]))
}

/// Returns a name for a message: cut, and without control characters.
pub(super) fn name(text: &str) -> String {
    cut(text, MAX_NAME_CHARS)
}

/// Returns at most `most` characters of a text, and says so if it was cut. Characters that change lines, or the direction
/// of the text, are replaced.
pub(super) fn cut(text: &str, most: usize) -> String {
    let is_unseen = |letter: char| {
        letter.is_control()
            || matches!(letter, '\u{61c}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{2069}' | '\u{feff}')
    };
    let clean = |letter: char| match letter {
        '\n' | '\t' => ' ',
        letter if is_unseen(letter) => '\u{fffd}',
        letter => letter,
    };
    let mut letters = text.chars();
    let mut short: String = letters.by_ref().take(most).map(clean).collect();
    if letters.next().is_some() {
        short.push_str(CUT);
    }
    short
}
