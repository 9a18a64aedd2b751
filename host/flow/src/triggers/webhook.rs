//! Webhooks of triggers: their secrets, and the settings of their schemes.

use serde::Serialize;

use super::{
    Cause, choice, report_unknown_name,
    schemes::{Algorithm, Encoding, Hmac, Part, Place, Proof, SCHEMES, STANDARD, Scheme, Timestamp},
    texts,
};
use crate::{
    CheckContext,
    diagnostic::Diagnostics,
    fields::{check_keys, entries, map, required, text, whole_number},
    limits::{RESPOND_TIMEOUT_MS, SIGNING_KEYS, WEBHOOK_TEXT},
    yaml::{Span, Tree},
};

/// A webhook: the secrets of its senders, its scheme, and the settings that replace those of the scheme.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Webhook {
    /// Names of the secrets that senders may use. There is more than one while a secret is being replaced.
    pub secret: Vec<String>,
    #[serde(skip_serializing_if = "is_standard")]
    scheme: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    header: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    algorithm: Option<Algorithm>,
    #[serde(skip_serializing_if = "Option::is_none")]
    encoding: Option<Encoding>,
    #[serde(skip_serializing_if = "Option::is_none")]
    prefix: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    signed: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    timestamp: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    user: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<Place<String>>,
    /// The answer to a post.
    #[serde(skip_serializing_if = "Respond::is_run")]
    pub respond: Respond,
    #[serde(skip_serializing_if = "Option::is_none")]
    respond_timeout_ms: Option<u64>,
}

/// The answer to a post that has started a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Respond {
    /// The id of the run, as soon as the run is on stable storage.
    #[default]
    Run,
    /// The output of the first `control.respond` that succeeds.
    Node,
    /// The outputs of the run, at its end.
    Outputs,
}

impl Respond {
    /// All ways, by their names.
    pub const ALL: [(&'static str, Respond); 3] =
        [("run", Respond::Run), ("node", Respond::Node), ("outputs", Respond::Outputs)];

    fn is_run(&self) -> bool {
        *self == Respond::Run
    }
}

fn is_standard(scheme: &str) -> bool {
    scheme == STANDARD
}

impl Webhook {
    /// Returns the time in milliseconds after which a post without an answer of its run gets the id of the run.
    pub fn respond_timeout_ms(&self) -> u64 {
        self.respond_timeout_ms.unwrap_or(RESPOND_TIMEOUT_MS)
    }

    /// Returns the row of the webhook's scheme, with the settings of the webhook.
    pub fn scheme(&self) -> Scheme<'_> {
        let row = SCHEMES.iter().find(|row| row.name == self.scheme).unwrap_or(&SCHEMES[0]);
        let proof = match row.proof {
            Proof::Hmac(hmac) => {
                let signed = if self.timestamp.is_some() { "{timestamp}.{body}" } else { hmac.signed };
                Proof::Hmac(Hmac {
                    header: self.header.as_deref().unwrap_or(hmac.header),
                    prefix: self.prefix.as_deref().unwrap_or(hmac.prefix),
                    signed: self.signed.as_deref().unwrap_or(signed),
                    timestamp: self.timestamp.as_deref().map(Timestamp::Header).or(hmac.timestamp),
                    algorithm: self.algorithm.unwrap_or(hmac.algorithm),
                    encoding: self.encoding.unwrap_or(hmac.encoding),
                    ..hmac
                })
            }
            Proof::Token { header, prefix } => match self.header.as_deref() {
                Some(header) => Proof::Token { header, prefix: "" },
                None => Proof::Token { header, prefix },
            },
            Proof::Basic { user } => Proof::Basic { user: self.user.as_deref().unwrap_or(user) },
            proof @ Proof::Ed25519 { .. } => proof,
        };
        let id = match &self.id {
            Some(Place::Header(name)) => Some(Place::Header(name.as_str())),
            Some(Place::Pointer(pointer)) => Some(Place::Pointer(pointer.as_str())),
            None => row.id,
        };
        Scheme { proof, id, digests: row.digests && self.id.is_none(), ..*row }
    }
}

pub(super) fn read(tree: &Tree, context: &dyn CheckContext, diagnostics: &mut Diagnostics<'_>) -> Option<Cause> {
    let members = entries(tree, "`webhook`", diagnostics);
    let names = SCHEMES.map(|row| (row.name, row));
    let row = match tree.member("scheme") {
        Some(name) => choice("scheme", name, &names, diagnostics)?,
        None => SCHEMES[0],
    };
    check_keys(
        members,
        &[&["secret", "scheme", "respond", "respondTimeoutMs"], row.required, row.optional].concat(),
        diagnostics,
    );
    let secret = read_secrets(tree, context, diagnostics)?;
    for key in row.required.iter().filter(|key| tree.member(key).is_none()) {
        required(tree, key, "webhook", diagnostics);
    }
    let algorithms = [("sha256", Algorithm::Sha256), ("sha512", Algorithm::Sha512)];
    let encodings = [("hex", Encoding::Hex), ("base64", Encoding::Base64)];
    let webhook = Webhook {
        secret,
        scheme: row.name,
        header: read_text(tree, "header", HEADER, diagnostics),
        algorithm: tree.member("algorithm").and_then(|name| choice("algorithm", name, &algorithms, diagnostics)),
        encoding: tree.member("encoding").and_then(|name| choice("encoding", name, &encodings, diagnostics)),
        prefix: read_text(tree, "prefix", PRINTABLE, diagnostics),
        signed: read_text(tree, "signed", PRINTABLE, diagnostics),
        timestamp: read_text(tree, "timestamp", HEADER, diagnostics),
        user: read_text(tree, "user", USER, diagnostics),
        id: read_id(tree, diagnostics),
        respond: tree
            .member("respond")
            .and_then(|name| choice("respond", name, &Respond::ALL, diagnostics))
            .unwrap_or_default(),
        respond_timeout_ms: whole_number(tree, "respondTimeoutMs", (1, RESPOND_TIMEOUT_MS), diagnostics),
    };
    if let (Respond::Run, Some(odd)) = (webhook.respond, tree.member("respondTimeoutMs")) {
        let help = Some("add `respond: node` or `respond: outputs`, or remove `respondTimeoutMs`".into());
        diagnostics.error("bad_trigger", odd.span, "without `respond` no post waits for an answer", help);
    }
    check_signed(tree, &webhook.scheme(), diagnostics);
    check_headers(tree, diagnostics);
    if webhook.scheme().id.is_none() && tree.member("id").is_none() {
        let message = format!("a repeated delivery starts a second run: the scheme `{}` has no id of a post", row.name);
        let help = "if the sender repeats an id, add `id: { header: NAME }` or `id: { pointer: /PATH }`";
        diagnostics.warning("no_post_id", tree.span, message, Some(help.into()));
    }
    Some(Cause::Webhook(webhook))
}

/// A rule for a text of a webhook, and its description.
type Rule = (fn(&str) -> bool, &'static str);

const HEADER: Rule = (is_header, "the name of a header");
const PRINTABLE: Rule = (is_printable, "printable ASCII characters");
const USER: Rule = (|text| is_printable(text) && !text.contains(':'), "printable ASCII characters without `:`");
const POINTER: Rule = (|text| text.starts_with('/'), "a JSON Pointer, such as `/event/id`");

fn is_printable(text: &str) -> bool {
    text.bytes().all(|byte| byte == b' ' || byte.is_ascii_graphic())
}

/// Returns true for a token of RFC 9110.
fn is_header(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte))
}

/// Headers about the connection or the form of the body, in lowercase. Clients and proxies set them, so a sender can put
/// neither a proof nor a time into them.
const RESERVED_HEADERS: [&str; 12] = [
    "connection",
    "content-encoding",
    "content-length",
    "content-type",
    "expect",
    "host",
    "keep-alive",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

/// Checks that the headers of the proof and of the time are two, and that a sender can set them.
fn check_headers(tree: &Tree, diagnostics: &mut Diagnostics<'_>) {
    let named = |key: &str| {
        let member = tree.member(key)?;
        Some((member.text()?.to_ascii_lowercase(), member.span))
    };
    let help = || Some("write the name of a header that only the sender sets, such as `X-Signature`".to_owned());
    for key in ["header", "timestamp"] {
        let Some((name, span)) = named(key).filter(|(name, _)| RESERVED_HEADERS.contains(&name.as_str())) else {
            continue;
        };
        let message = format!("`{key}` cannot be `{name}`, which each client and proxy sets by itself");
        diagnostics.new_rule("bad_value", span, message, help());
    }
    if let (Some((header, _)), Some((timestamp, span))) = (named("header"), named("timestamp"))
        && header == timestamp
    {
        diagnostics.new_rule("bad_value", span, "`timestamp` names the header of the signature", help());
    }
}

fn read_text(tree: &Tree, key: &str, (fits, what): Rule, diagnostics: &mut Diagnostics<'_>) -> Option<String> {
    let (text, span) = text(tree, key, diagnostics)?;
    if text.len() > WEBHOOK_TEXT || !fits(&text) {
        let message = format!("`{key}` must be {what}, at most {WEBHOOK_TEXT} bytes");
        diagnostics.error("bad_value", span, message, None);
    }
    Some(text)
}

fn read_id(tree: &Tree, diagnostics: &mut Diagnostics<'_>) -> Option<Place<String>> {
    let id = map(tree, "id", diagnostics)?;
    check_keys(entries(id, "`id`", diagnostics), &["header", "pointer"], diagnostics);
    match ["header", "pointer"].map(|key| id.member(key).is_some()) {
        [true, false] => read_text(id, "header", HEADER, diagnostics).map(Place::Header),
        [false, true] => read_text(id, "pointer", POINTER, diagnostics).map(Place::Pointer),
        _ => {
            let help = Some("write `id: { header: NAME }` or `id: { pointer: /PATH }`".into());
            diagnostics.error("bad_trigger", id.span, "`id` must have one of `header` and `pointer`", help);
            None
        }
    }
}

/// Checks that the signed text has the body, and the time exactly if posts have one. A time that is not signed could be
/// replaced by anyone.
fn check_signed(tree: &Tree, scheme: &Scheme<'_>, diagnostics: &mut Diagnostics<'_>) {
    let (Some(written), Proof::Hmac(hmac)) = (tree.member("signed"), scheme.proof) else { return };
    let parts = hmac.parts().unwrap_or_default();
    let count = |wanted: Part<'_>| parts.iter().filter(|part| **part == wanted).count();
    let times = usize::from(hmac.timestamp.is_some());
    let may_sign_id = matches!(scheme.id, Some(Place::Header(_)));
    let is_complete =
        count(Part::Body) == 1 && count(Part::Timestamp) == times && count(Part::Id) <= usize::from(may_sign_id);
    if !is_complete || hmac.id_separators().is_none() {
        let message = "`signed` must have `{body}` once, `{timestamp}` once if `timestamp` names a header, no other \
                       braces but `{id}` if `id` names a header, and a character such as `.` between each two of them";
        diagnostics.error("bad_value", written.span, message, Some("write `signed: \"{timestamp}.{body}\"`".into()));
    }
}

fn read_secrets(tree: &Tree, context: &dyn CheckContext, diagnostics: &mut Diagnostics<'_>) -> Option<Vec<String>> {
    let Some(secret) = tree.member("secret") else {
        let help = Some("write `webhook: { secret: NAME }`; senders sign their posts with this secret".into());
        diagnostics.error("missing_key", tree.span, "the webhook has no `secret`", help);
        return None;
    };
    match texts(secret) {
        Some(names) if (1..=SIGNING_KEYS).contains(&names.len()) => {
            check_secrets(&names, context, diagnostics);
            Some(names.into_iter().map(|(name, _)| name).collect())
        }
        _ => {
            let message = format!("`secret` must be the name of a secret, or a list of 1 to {SIGNING_KEYS} names");
            diagnostics.error("bad_trigger", secret.span, message, Some("write `secret: NAME`".into()));
            None
        }
    }
}

/// Checks that the secrets of a webhook are usable. Only warns of some that are not, because they may be missing
/// while a secret is being replaced. If none is usable, the webhook rejects every post; this is an error if the
/// flow is being added to a library, otherwise a warning.
fn check_secrets(names: &[(String, Span)], context: &dyn CheckContext, diagnostics: &mut Diagnostics<'_>) {
    let refused = |(name, span): &(String, Span)| Some((*span, context.check_signing_secret(name).err()?));
    let refused: Vec<_> = names.iter().filter_map(refused).collect();
    for (span, why) in &refused {
        match refused.len() == names.len() {
            true => report_unknown_name(
                "missing_secret",
                *span,
                (format!("the webhook rejects every post: {why}"), None),
                diagnostics,
            ),
            false => diagnostics.warning("missing_secret", *span, why.clone(), None),
        }
    }
    for (name, span) in names {
        if let Some(why) = context.locked_secret(name) {
            diagnostics.warning("locked_secret", *span, why, None);
        }
    }
}
