//! The schemes of webhooks: how a sender proves that a post comes from it, and which part of a post makes repeated
//! deliveries count once. [`SCHEMES`] has one row per scheme.

use serde::Serialize;

/// The scheme of a webhook that names none: Standard Webhooks.
pub const STANDARD: &str = "standard";

/// The scheme of a webhook: a row of [`SCHEMES`], with the settings of the webhook in place of those of the row.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Scheme<'a> {
    /// Name in the flow.
    pub name: &'static str,
    /// Members of `webhook` that the scheme requires, besides `secret`.
    pub required: &'static [&'static str],
    /// Members of `webhook` that the scheme permits, besides the required ones.
    pub optional: &'static [&'static str],
    /// The part of a post that only the owner of the secret can make.
    pub proof: Proof<'a>,
    /// The place of the id. Posts with the same id start one run. `None`: every post starts a run.
    pub id: Option<Place<&'a str>>,
    /// The header with the kind of event, for schemes whose body does not name it.
    pub event: Option<&'static str>,
    /// The posts that only test the address and start no run.
    pub challenge: Option<Challenge>,
    /// False if a repeated delivery may have another body. Otherwise the same id with another body is a conflict.
    pub repeats_body: bool,
    /// True if the id of a post without an id at its place is the digest of its body.
    pub digests: bool,
    /// True if the sender expects 204 without a body once the run exists.
    pub expects_nothing: bool,
}

/// The part of a post that only the owner of the secret can make.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Proof<'a> {
    /// A header with signatures.
    Hmac(Hmac<'a>),
    /// A header with a signature in hexadecimal digits that belongs to a public key. The signed text is the time and then
    /// the body. The time is a number that is close to the present one, so no digit can move from one to the other.
    Ed25519 {
        /// The header with the signature.
        header: &'static str,
        /// The header with the time, in seconds since 1970.
        timestamp: &'static str,
    },
    /// A header with the secret itself, after a prefix that is compared without regard to case.
    Token {
        /// Name of the header.
        header: &'a str,
        /// The text before the secret.
        prefix: &'static str,
    },
    /// A name and the secret as in RFC 7617.
    Basic {
        /// The name.
        user: &'a str,
    },
}

/// The form of HMAC signatures.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Hmac<'a> {
    /// The header with the signatures.
    pub header: &'a str,
    /// The character between several entries of the header. `None`: the header is one entry.
    pub separator: Option<char>,
    /// The text before each signature. Entries with another prefix are skipped.
    pub prefix: &'a str,
    /// The encoding of a signature.
    pub encoding: Encoding,
    /// The hash function.
    pub algorithm: Algorithm,
    /// The signed text, with `{id}`, `{timestamp}` and `{body}`.
    pub signed: &'a str,
    /// The place of the time, in seconds since 1970. `None`: the post has none, so an old post is as good as a new one.
    pub timestamp: Option<Timestamp<'a>>,
}

/// The place of the time of a post.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Timestamp<'a> {
    /// A header of this name.
    Header(&'a str),
    /// The entry with this prefix in the header with the signatures.
    Entry(&'static str),
}

/// A place in a post.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Place<T> {
    /// A header of this name.
    Header(T),
    /// A JSON Pointer (RFC 6901) into the body.
    Pointer(T),
}

/// A post that only tests the address.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Challenge {
    /// The kind of event is `ping`.
    Ping,
    /// The `type` in the body is `url_verification`. The answer repeats the `challenge` in the body.
    UrlVerification,
    /// The `type` in the body is 0, and is answered with 204; or it is 1 without an `event`, and is answered with
    /// `{ "type": 1 }`.
    TypedPing,
}

/// The encoding of a signature.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Encoding {
    /// Hexadecimal digits.
    Hex,
    /// Base64 with padding.
    Base64,
}

/// The hash function of a signature.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Algorithm {
    /// SHA-256, with signatures of 32 bytes.
    Sha256,
    /// SHA-512, with signatures of 64 bytes.
    Sha512,
}

/// A part of the signed text.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Part<'a> {
    /// The same text in each post.
    Text(&'a str),
    /// The id of the post.
    Id,
    /// The time of the post.
    Timestamp,
    /// The bytes of the body.
    Body,
}

impl<'a> Hmac<'a> {
    /// Returns the parts of the signed text; `None` if it has a `{` or `}` that does not belong to a known name.
    pub fn parts(&self) -> Option<Vec<Part<'a>>> {
        let (mut parts, mut rest) = (Vec::new(), self.signed);
        while let Some((before, after)) = rest.split_once('{') {
            let (name, after) = after.split_once('}')?;
            let part = match name {
                "id" => Part::Id,
                "timestamp" => Part::Timestamp,
                "body" => Part::Body,
                _ => return None,
            };
            parts.extend([Part::Text(before), part]);
            rest = after;
        }
        parts.push(Part::Text(rest));
        let stray = |part: &Part<'_>| matches!(part, Part::Text(text) if text.contains('}'));
        (!parts.iter().any(stray)).then_some(parts)
    }

    /// Returns the characters beside `{id}`. No id may have them, because the end of an id could then be taken for the
    /// beginning of another part. Returns `None` if the parts cannot be told apart whatever the id is: two names in
    /// braces touch, or a digit is beside the time.
    pub fn id_separators(&self) -> Option<Vec<char>> {
        let mut parts = self.parts()?;
        parts.retain(|part| *part != Part::Text(""));
        let mut separators = Vec::new();
        for (at, part) in parts.iter().enumerate().filter(|(_, part)| !matches!(part, Part::Text(_))) {
            let text = |at: Option<usize>| match at.and_then(|at| parts.get(at)) {
                None => Some(""),
                Some(Part::Text(text)) => Some(*text),
                Some(_) => None,
            };
            let before = text(at.checked_sub(1))?.chars().next_back();
            let after = text(Some(at + 1))?.chars().next();
            let mut beside = before.into_iter().chain(after);
            match part {
                Part::Id => separators.extend(beside),
                Part::Timestamp if beside.any(|letter| letter.is_ascii_digit()) => return None,
                _ => {}
            }
        }
        Some(separators)
    }
}

const HMAC: Hmac<'static> = Hmac {
    header: "",
    separator: None,
    prefix: "",
    encoding: Encoding::Hex,
    algorithm: Algorithm::Sha256,
    signed: "{body}",
    timestamp: None,
};

const SCHEME: Scheme<'static> = Scheme {
    name: "",
    required: &[],
    optional: &["id"],
    proof: Proof::Hmac(HMAC),
    id: None,
    event: None,
    challenge: None,
    repeats_body: true,
    digests: false,
    expects_nothing: false,
};

/// All schemes. The first is the default.
pub static SCHEMES: [Scheme<'static>; 10] = [
    // https://github.com/standard-webhooks/standard-webhooks/blob/main/spec/standard-webhooks.md
    Scheme {
        name: STANDARD,
        // The id is part of the signed text.
        optional: &[],
        proof: Proof::Hmac(Hmac {
            header: "webhook-signature",
            separator: Some(' '),
            prefix: "v1,",
            encoding: Encoding::Base64,
            signed: "{id}.{timestamp}.{body}",
            timestamp: Some(Timestamp::Header("webhook-timestamp")),
            ..HMAC
        }),
        id: Some(Place::Header("webhook-id")),
        ..SCHEME
    },
    // https://docs.github.com/en/webhooks/using-webhooks/validating-webhook-deliveries
    Scheme {
        name: "github",
        proof: Proof::Hmac(Hmac { header: "X-Hub-Signature-256", prefix: "sha256=", ..HMAC }),
        id: Some(Place::Header("X-GitHub-Delivery")),
        event: Some("X-GitHub-Event"),
        challenge: Some(Challenge::Ping),
        ..SCHEME
    },
    // https://docs.gitlab.com/user/project/integrations/webhooks/
    // `X-Gitlab-Event-UUID` is the same for the posts of several webhooks, so it is not the id.
    Scheme {
        name: "gitlab",
        proof: Proof::Token { header: "X-Gitlab-Token", prefix: "" },
        id: Some(Place::Header("Idempotency-Key")),
        event: Some("X-Gitlab-Event"),
        ..SCHEME
    },
    // https://docs.stripe.com/webhooks/signature
    // `pending_webhooks` in the body may change from one delivery to the next.
    Scheme {
        name: "stripe",
        proof: Proof::Hmac(Hmac {
            header: "Stripe-Signature",
            separator: Some(','),
            prefix: "v1=",
            signed: "{timestamp}.{body}",
            timestamp: Some(Timestamp::Entry("t=")),
            ..HMAC
        }),
        id: Some(Place::Pointer("/id")),
        repeats_body: false,
        ..SCHEME
    },
    // https://docs.slack.dev/authentication/verifying-requests-from-slack
    Scheme {
        name: "slack",
        proof: Proof::Hmac(Hmac {
            header: "X-Slack-Signature",
            prefix: "v0=",
            signed: "v0:{timestamp}:{body}",
            timestamp: Some(Timestamp::Header("X-Slack-Request-Timestamp")),
            ..HMAC
        }),
        id: Some(Place::Pointer("/event_id")),
        challenge: Some(Challenge::UrlVerification),
        ..SCHEME
    },
    // https://shopify.dev/docs/apps/build/webhooks/verify-deliveries
    Scheme {
        name: "shopify",
        proof: Proof::Hmac(Hmac { header: "X-Shopify-Hmac-SHA256", encoding: Encoding::Base64, ..HMAC }),
        id: Some(Place::Header("X-Shopify-Webhook-Id")),
        event: Some("X-Shopify-Topic"),
        ..SCHEME
    },
    // https://docs.discord.com/developers/events/webhook-events and
    // https://docs.discord.com/developers/interactions/overview
    // Events have no id; a repeated one has the same body and another signature.
    Scheme {
        name: "discord",
        proof: Proof::Ed25519 { header: "X-Signature-Ed25519", timestamp: "X-Signature-Timestamp" },
        id: Some(Place::Pointer("/id")),
        challenge: Some(Challenge::TypedPing),
        digests: true,
        expects_nothing: true,
        ..SCHEME
    },
    Scheme {
        name: "hmac",
        required: &["header"],
        optional: &["id", "algorithm", "encoding", "prefix", "signed", "timestamp"],
        ..SCHEME
    },
    // https://www.rfc-editor.org/rfc/rfc7617
    Scheme { name: "basic", required: &["user"], proof: Proof::Basic { user: "" }, ..SCHEME },
    // https://www.rfc-editor.org/rfc/rfc6750
    Scheme {
        name: "bearer",
        optional: &["id", "header"],
        proof: Proof::Token { header: "Authorization", prefix: "Bearer " },
        ..SCHEME
    },
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_scheme_signs_the_body_and_the_time() {
        for row in SCHEMES {
            let Proof::Hmac(hmac) = row.proof else { continue };
            let parts = hmac.parts().unwrap();
            let count = |wanted: Part<'_>| parts.iter().filter(|part| **part == wanted).count();
            assert_eq!(count(Part::Body), 1, "{}", row.name);
            assert_eq!(count(Part::Timestamp), usize::from(hmac.timestamp.is_some()), "{}", row.name);
            assert_eq!(count(Part::Id), usize::from(row.name == STANDARD), "{}", row.name);
            assert!(hmac.id_separators().is_some(), "{}", row.name);
        }
    }

    #[test]
    fn an_id_cannot_be_taken_for_another_part_of_the_signed_text() {
        let separators = |signed: &'static str| Hmac { signed, ..HMAC }.id_separators();
        for (signed, expected) in [
            ("{id}.{timestamp}.{body}", "."),
            ("{body}", ""),
            ("{timestamp}:{id}-{body}", ":-"),
            ("{body}|{id}", "|"),
            ("v0 {id} v1 {body}", "  "),
        ] {
            assert_eq!(separators(signed).unwrap(), expected.chars().collect::<Vec<_>>(), "{signed}");
        }
        for ambiguous in
            ["{id}{body}", "{timestamp}{body}", "{timestamp}.{body}{id}", "{timestamp}0{body}", "1{timestamp}"]
        {
            assert_eq!(separators(ambiguous), None, "{ambiguous}");
        }
    }

    #[test]
    fn the_signed_text_has_only_known_names_in_braces() {
        let parts = |signed: &'static str| Hmac { signed, ..HMAC }.parts();
        assert_eq!(
            parts("a{timestamp}{body}").unwrap(),
            [Part::Text("a"), Part::Timestamp, Part::Text(""), Part::Body, Part::Text("")]
        );
        for wrong in ["{nonce}{body}", "{body", "body}", "a}{body}", "{{body}}", "{}"] {
            assert_eq!(parts(wrong), None, "{wrong}");
        }
    }
}
