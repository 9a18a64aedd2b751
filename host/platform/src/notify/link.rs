//! Links that answer a gate: their codes, and the question of a code.
//!
//! A code is signed and not stored. It has the tenant, the run, the address and the digest of the question, the name of the
//! target and the end, and a signature with a key that follows from the tenant's data key ([`Vault`]). So all processes of
//! a shared store accept it, a reader of the store or of a backup cannot make one, a message that is sent again needs no
//! record, and the removal of the tenant ends all of its links. A code is made for each attempt to send, and no document
//! has it.
//!
//! A code counts while the file has its target with `answer: true`, so the operator ends the links of a target by changing
//! the file. The run decides which answer was first: a code can be shown again and again, and answers once.
//!
//! [`Vault`]: crate::operate::vault::Vault

use std::sync::Arc;

use flowcell_contract::{RunId, Tenant};
use serde::{Deserialize, Serialize};

use super::{
    config::DEFAULT_LINK_HOURS,
    message::{Link, Message, NoticeKind},
    target::{Opened, Target},
};
use crate::{
    Host,
    operate::{
        identity::AuthError,
        vault::{VaultError, signing::SignedText},
    },
};

/// Maximum length of a code.
pub const MAX_CODE_BYTES: usize = 2_048;
const CODE: SignedText = SignedText { prefix: "fca_", purpose: "flowcell answer link 1", most: MAX_CODE_BYTES };
/// The path of the page of a link.
const PAGE: &str = "/console/answer";
const HOUR_MS: u64 = 3_600_000;

/// The signed content of a code.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Content {
    tenant: String,
    run: RunId,
    address: String,
    digest: String,
    since: u64,
    ends: u64,
    target: String,
}

/// A question that a link may answer. Its code was signed by this store and has not ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AnswerLink {
    /// The tenant of the run.
    pub tenant: Tenant,
    /// The run.
    pub run: RunId,
    /// The address of the gate in the run.
    pub address: String,
    /// The digest of the question.
    pub digest: String,
    /// The time of the question, in milliseconds since 1970.
    pub since: u64,
    /// The end of the link, in milliseconds since 1970.
    pub ends: u64,
    /// The name of the target that got the link.
    pub target: String,
}

impl AnswerLink {
    /// Returns the name of the link in the audit log.
    pub fn actor(&self) -> Arc<str> {
        format!("link:{}", self.target).into()
    }
}

/// The reason why a code opens nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LinkError {
    /// The code is not one of this store, or its tenant or its target has no links now. The caller learns no more.
    Unknown,
    /// The signature is right, and the time of the link, in milliseconds since 1970, is over.
    Ended(u64),
    /// The store does not answer.
    Unavailable,
}

impl From<AuthError> for LinkError {
    fn from(error: AuthError) -> LinkError {
        match error {
            AuthError::Unavailable => LinkError::Unavailable,
            AuthError::Missing | AuthError::Unknown => LinkError::Unknown,
        }
    }
}

/// The reason why a message has no link.
#[derive(Debug, thiserror::Error)]
pub(super) enum NoLink {
    #[error("the address of the gate is too long for a link")]
    TooLong,
    #[error("the server cannot sign links; its log has the reason")]
    Key(#[source] VaultError),
}

/// Returns the link of a message to a target at `now`: to the gate if the target may answer, or to the page of the run.
/// `None`: the file has no address of the console, or the message is about no run. Reads the store.
pub(super) fn link_of(
    host: &Host,
    opened: &Opened,
    target: &Target,
    (tenant, message): (&Tenant, &Message),
    now: u64,
) -> Result<Option<Link>, NoLink> {
    let (Some(console), Some(run)) = (&opened.console, &message.run_id) else { return Ok(None) };
    let settings = &target.settings;
    let Some(question) = message.question.as_ref().filter(|_| settings.answer) else {
        let url = format!("{console}/console/runs/{}", escape(run.as_str()));
        return Ok(Some(Link { url, ends: None }));
    };
    let hours = settings.answer_hours.unwrap_or(DEFAULT_LINK_HOURS);
    let ends = now.saturating_add(u64::from(hours) * HOUR_MS);
    let content = Content {
        tenant: tenant.to_string(),
        run: run.clone(),
        address: question.address.clone(),
        digest: question.digest.clone(),
        since: question.since,
        ends,
        target: settings.name.clone(),
    };
    let code = CODE.sign(host.vault(), tenant, &content).map_err(NoLink::Key)?;
    if code.len() > MAX_CODE_BYTES {
        return Err(NoLink::TooLong);
    }
    Ok(Some(Link { url: format!("{console}{PAGE}#{code}"), ends: Some(ends) }))
}

/// Opens a code: checks its target, its tenant, its signature and its end. `tenants` returns the enabled tenants.
///
/// Before the check of its signature, the content selects only a target in memory, a tenant of the list, and a data key of this
/// tenant.
pub(super) fn open(
    host: &Host,
    opened: &Opened,
    code: &str,
    tenants: impl FnOnce() -> Vec<Tenant>,
) -> Result<AnswerLink, LinkError> {
    let unchecked = CODE.parse::<Content>(code).ok_or(LinkError::Unknown)?;
    let tenant = Tenant::from(unchecked.content.tenant.as_str());
    let target = opened.targets.iter().find(|target| target.name() == unchecked.content.target);
    let gives = |target: &Arc<Target>| target.settings.answer && target.settings.hears_tenant(tenant.as_str());
    if !target.is_some_and(gives) || !tenants().contains(&tenant) {
        return Err(LinkError::Unknown);
    }
    let checked = unchecked.check(host.vault(), &tenant).map_err(|error| {
        tracing::error!("cannot read the key of a link: {error}");
        LinkError::Unavailable
    })?;
    let content = checked.ok_or(LinkError::Unknown)?;
    if host.now() >= content.ends {
        return Err(LinkError::Ended(content.ends));
    }
    let Content { run, address, digest, since, ends, target, .. } = content;
    Ok(AnswerLink { tenant, run, address, digest, since, ends, target })
}

/// Returns whether the target of a link still hears of the gates of a flow.
pub(super) fn hears(opened: &Opened, link: &AnswerLink, flow: &str) -> bool {
    let target = opened.targets.iter().find(|target| target.name() == link.target);
    target.is_some_and(|target| target.settings.hears(NoticeKind::GateOpened, link.tenant.as_str(), Some(flow)))
}

/// Escapes a text as a segment of a path.
fn escape(text: &str) -> String {
    let plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"-_.~".contains(byte);
    text.bytes().map(|byte| if plain(&byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") }).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

    use super::*;
    use crate::{
        notify::{config::NotifyFile, message::Question},
        operate::{settings_file::SettingsFile, vault::signing::new_key},
    };

    const DAY_MS: u64 = 24 * HOUR_MS;

    fn opened(host: &Host, targets: &str) -> Opened {
        let file =
            NotifyFile::parse(&format!("console: 'https://Flows.example.com:443/'\ntargets: [{targets}]")).unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(Opened::new(host, &file)).unwrap()
    }

    fn host() -> (tempfile::TempDir, Host) {
        let folder = tempfile::tempdir().unwrap();
        let host = Host::builder().state_dir(folder.path()).build().unwrap();
        (folder, host)
    }

    fn asks(address: &str) -> Message {
        let mut message = Message::new(NoticeKind::GateOpened, "a", Some("r"), &[address], 7);
        message.run_id = Some("r/1".into());
        message.question = Some(Question { address: address.into(), digest: "d".into(), since: 7 });
        message
    }

    const OPS: &str = "{ name: ops, channel: program, command: [a], answer: true, tenants: [a, b] }";

    fn made(host: &Host, opened: &Opened, message: &Message, now: u64) -> Option<Link> {
        link_of(host, opened, &opened.targets[0], (&Tenant::from("a"), message), now).unwrap()
    }

    fn code(link: &Link) -> &str {
        link.url.strip_prefix("https://flows.example.com/console/answer#").unwrap()
    }

    fn all() -> Vec<Tenant> {
        vec![Tenant::from("a"), Tenant::from("b")]
    }

    #[test]
    fn a_code_opens_its_question_until_its_end() {
        let ((_folder, host), address) = (host(), "é[3].\"x\"/ask");
        let opened = opened(&host, OPS);
        let now = host.now();
        let link = made(&host, &opened, &asks(address), now).unwrap();
        assert_eq!(link.ends, Some(now + DAY_MS));
        let found = open(&host, &opened, code(&link), all).unwrap();
        let shown = (found.tenant.as_str(), found.run.as_str(), found.address.as_str(), found.digest.as_str());
        assert_eq!((shown, found.since, found.actor().as_ref()), (("a", "r/1", address, "d"), 7, "link:ops"));
        let late = made(&host, &opened, &asks(address), now - DAY_MS).unwrap();
        assert_eq!(open(&host, &opened, code(&late), all), Err(LinkError::Ended(now)));
        let page = Message { question: None, ..asks(address) };
        let page = made(&host, &opened, &page, now).unwrap();
        assert_eq!((page.url.as_str(), page.ends), ("https://flows.example.com/console/runs/r%2F1", None));
        let long = link_of(&host, &opened, &opened.targets[0], (&Tenant::from("a"), &asks(&"x".repeat(2_000))), now);
        assert!(matches!(long, Err(NoLink::TooLong)));
    }

    #[test]
    fn each_change_of_a_code_is_refused() {
        let (_folder, host) = host();
        let opened = opened(&host, OPS);
        let link = made(&host, &opened, &asks("ask"), host.now()).unwrap();
        let code = code(&link);
        let refused = |code: &str| open(&host, &opened, code, all) == Err(LinkError::Unknown);
        for index in 0..code.len() {
            let mut other = code.as_bytes().to_vec();
            other[index] = if other[index] == b'A' { b'B' } else { b'A' };
            assert!(refused(std::str::from_utf8(&other).unwrap()), "{index}");
            assert!(refused(&code[..index]), "{index}");
        }
        let (signed, tag) = code.split_once('.').unwrap();
        let content = CODE.parse::<Content>(code).unwrap().content;
        let (number, _) = new_key(host.vault(), &Tenant::from("a"), CODE.purpose).unwrap();
        let far = Content { ends: u64::MAX, ..content.clone() };
        for other in [
            far,
            Content { tenant: "b".into(), ..content.clone() },
            Content { run: "other".into(), ..content.clone() },
            Content { address: "other".into(), ..content.clone() },
            Content { digest: "other".into(), ..content.clone() },
            Content { target: "none".into(), ..content.clone() },
            Content { tenant: "../../x".into(), ..content.clone() },
        ] {
            // The signature of another key, and the one of the true content.
            let (_, key) = new_key(host.vault(), &Tenant::from("b"), CODE.purpose).unwrap();
            for number in [&*number, "00000002", "../x"] {
                let forged = CODE.seal(number.to_owned(), &key, &other);
                let is_of_b = other.tenant == "b";
                assert!(is_of_b || refused(&forged), "{other:?}");
                assert!(refused(&format!("{}.{tag}", forged.split_once('.').unwrap().0)), "{other:?}");
            }
        }
        for odd in [
            "",
            ".",
            "fca_.",
            "fca_e30.",
            "\u{0}",
            "é",
            &format!("{signed}."),
            &format!("{code}="),
            &format!("{code}\n"),
        ] {
            assert!(refused(odd), "{odd:?}");
        }
        assert!(refused(&"a".repeat(1 << 20)));
    }

    #[test]
    fn a_code_needs_its_tenant_its_target_and_its_store() {
        let (_folder, host) = host();
        let present = opened(&host, OPS);
        let link = made(&host, &present, &asks("ask"), host.now()).unwrap();
        let opens = |targets: &str, tenants: Vec<Tenant>| {
            open(&host, &opened(&host, targets), code(&link), || tenants).map(drop)
        };
        assert_eq!(opens(OPS, all()), Ok(()));
        assert_eq!(opens(OPS, vec![Tenant::from("b")]), Err(LinkError::Unknown), "disabled");
        for other in [
            "",
            "{ name: ops, channel: program, command: [a] }",
            "{ name: other, channel: program, command: [a], answer: true }",
            "{ name: ops, channel: program, command: [a], answer: true, tenants: [b] }",
        ] {
            assert_eq!(opens(other, all()), Err(LinkError::Unknown), "{other}");
        }
        let found = open(&host, &present, code(&link), all).unwrap();
        let flows = opened(&host, "{ name: ops, channel: program, command: [a], answer: true, flows: [pays] }");
        assert!(hears(&present, &found, "any") && hears(&flows, &found, "pays") && !hears(&flows, &found, "any"));
        // Another store has other keys, also for a tenant of the same name.
        let (_other_folder, other) = self::host();
        new_key(other.vault(), &Tenant::from("a"), CODE.purpose).unwrap();
        assert_eq!(open(&other, &present, code(&link), all), Err(LinkError::Unknown));
        assert_eq!(opens(OPS, all()), Ok(()), "a code may be opened again and again");
    }

    #[test]
    fn a_code_is_in_no_document() {
        let message = Message { link: Some(Link { url: "the-code".into(), ends: Some(1) }), ..asks("ask") };
        assert!(!serde_json::to_string(&message).unwrap().contains("the-code"));
    }
}
