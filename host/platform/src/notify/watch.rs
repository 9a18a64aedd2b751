//! The messages that do not follow from runs: quotas, tokens, secrets, credentials, refused posts, and trouble of the
//! store.

use std::time::{Duration, Instant};

use flowcell_contract::{Tenant, shell::shell_word};
use flowcell_runtime::ports::StoreError;
use flowcell_services::code::CREDENTIAL_REFRESH_FAILED;

use super::{
    message::{MAX_TEXT_CHARS, Message, NoticeKind, cut, message_id, name},
    record::Progress,
};
use crate::{
    Host,
    operate::{policy::Policy, usage::Used},
    shape::time,
    tenants::{TenantError, Tenants, token::TokenRow},
    vault::{SecretRow, TokenHealth, VaultError},
};

/// The part of a quota at which a first message is sent.
const FIRST_SHARE: f64 = 0.8;
/// The time in milliseconds before the end of a token or secret at which a message is sent.
const END_NOTICE_MS: u64 = 7 * DAY_MS;
/// The minimum lifetime in milliseconds of a token or secret with a message before its end. The tokens of browsers are
/// shorter.
const MIN_LIFE_MS: u64 = 14 * DAY_MS;
const DAY_MS: u64 = 24 * 3_600_000;
const WEEK_MS: u64 = 7 * DAY_MS;
/// The time in milliseconds for which renewals of a token must fail if the server may only be away.
const AWAY_MS: u64 = 3_600_000;
/// The time for which a trouble of the store must last.
const TROUBLE_TIME: Duration = Duration::from_secs(5);
/// The time in milliseconds after which a trigger that refuses posts is reported again.
const REFUSAL_MS: u64 = 3_600_000;

/// Returns the messages about the daily quotas of a tenant: at 80 % and when nothing is left, once a day each.
pub(super) fn quotas(host: &Host, progress: &mut Progress, now: u64) -> Result<Vec<Message>, StoreError> {
    let per_day = Policy::read(host.documents(), host.tenant())?.per_day;
    if per_day.is_unlimited() {
        return Ok(Vec::new());
    }
    let Used { compute_ms, events, written_bytes, model_usd } = host.usage().of_today(host.tenant())?;
    let quotas = [
        ("perDay.computeMs", compute_ms, per_day.compute_ms.map(|most| most as f64)),
        ("perDay.events", events as f64, per_day.events.map(|most| most as f64)),
        ("perDay.writtenMib", written_bytes as f64 / f64::from(1 << 20), per_day.written_mib.map(|most| most as f64)),
        ("perDay.modelUsd", model_usd, per_day.model_usd),
    ];
    let day = now / DAY_MS;
    let mut found = Vec::new();
    for (quota, used, most) in quotas {
        let Some(most) = most else { continue };
        let level = match () {
            () if used >= most => "100",
            () if used >= most * FIRST_SHARE => "80",
            () => continue,
        };
        let place = [quota, &day.to_string(), level];
        let mut message = Message::new(NoticeKind::Quota, host.tenant().as_str(), None, &place, now);
        if progress.tell_once(message.id.clone(), (day + 2) * DAY_MS) {
            message.code = Some(quota.to_owned());
            message.about =
                format!("{level} % of `{quota}` are used: {used:.0} of {most}, until {}", time((day + 1) * DAY_MS));
            found.push(message);
        }
    }
    Ok(found)
}

/// A token that expires soon or has expired, with the message about it.
pub(super) type TokenNotice = (Tenant, Message, u64);

/// Returns the messages about the tokens of all tenants that expire within a week, and that have expired on the last day.
/// Each has the time until which it is remembered.
pub(super) fn tokens(host: &Host, now: u64) -> Result<Vec<TokenNotice>, TenantError> {
    let all = Tenants::of(host).tokens(None)?.into_iter();
    let notice = |row: TokenRow| {
        let expires = row.expires.filter(|_| row.revoked.is_none())?;
        let stage = stage_of_end(row.created, expires, now)?;
        let place = [row.id.as_str(), &expires.to_string(), stage];
        let mut message = Message::new(NoticeKind::TokenExpires, &row.tenant, None, &place, now);
        let named = if row.name.is_empty() { String::new() } else { format!(" (`{}`)", name(&row.name)) };
        let verb = if stage == "soon" { "expires" } else { "has expired" };
        message.about = format!("the token {}{named} {verb} at {}", row.id, time(expires));
        Some((Tenant::from(row.tenant), message, expires + 2 * DAY_MS))
    };
    Ok(all.filter_map(notice).collect())
}

/// Returns the messages about the secrets of a tenant that expire within a week, and that have expired on the last day. Each
/// has the time until which it is remembered.
pub(super) fn secrets(host: &Host, now: u64) -> Result<Vec<(Message, u64)>, VaultError> {
    let notice = |row: SecretRow| {
        let expires = row.expires?;
        let stage = stage_of_end(row.updated, expires, now)?;
        let place = [row.name.as_str(), &row.version.to_string(), stage];
        let mut message = Message::new(NoticeKind::SecretExpires, host.tenant().as_str(), None, &place, now);
        let verb = if stage == "soon" { "expires" } else { "has expired" };
        message.about = format!("the secret `{}` {verb} at {}", row.name, time(expires));
        Some((message, expires + 2 * DAY_MS))
    };
    Ok(host.vault().list(host.tenant())?.into_iter().filter_map(notice).collect())
}

/// Returns the messages about the credentials of a tenant: those whose tokens the host can renew only for a week, or since a
/// day no longer, and those whose renewals fail. Each has the time until which it is remembered.
pub(super) fn credentials(host: &Host, now: u64) -> Result<Vec<(Message, u64)>, VaultError> {
    let notices = |token: TokenHealth| [ending(host, &token, now), failing(host, &token, now)];
    Ok(host.vault().token_health(host.tenant())?.into_iter().flat_map(notices).flatten().collect())
}

fn ending(host: &Host, TokenHealth { name: of, lifetime, .. }: &TokenHealth, now: u64) -> Option<(Message, u64)> {
    let lifetime = (*lifetime)?;
    let stage = stage_of_end(lifetime.since, lifetime.ends, now)?;
    let place = [of.as_str(), &lifetime.ends.to_string(), stage];
    let mut message = Message::new(NoticeKind::CredentialExpires, host.tenant().as_str(), None, &place, now);
    let (verb, ends) = (if stage == "soon" { "ends" } else { "has ended" }, time(lifetime.ends));
    message.about = format!("the token of the credential `{of}` {verb} at {ends}; connect or set the credential again");
    Some((message, lifetime.ends.saturating_add(2 * DAY_MS)))
}

/// Returns the message about renewals that fail: at once if they cannot succeed later, otherwise after an hour. It comes again
/// each week, as long as they are tried.
fn failing(host: &Host, TokenHealth { name: of, failure, .. }: &TokenHealth, now: u64) -> Option<(Message, u64)> {
    let failure = failure.as_ref()?;
    let lasts = failure.at.saturating_sub(failure.since);
    if failure.retryable && lasts < AWAY_MS || now.saturating_sub(failure.at) > DAY_MS {
        return None;
    }
    let week = lasts / WEEK_MS;
    let place = [of.as_str(), &failure.since.to_string(), &week.to_string()];
    let mut message = Message::new(NoticeKind::CredentialFailed, host.tenant().as_str(), None, &place, now);
    message.code = Some(CREDENTIAL_REFRESH_FAILED.to_owned());
    message.about = format!(
        "the host gets no token for the credential `{of}` since {}; `flowcell credential show {}` has the reason",
        time(failure.since),
        shell_word(of)
    );
    message.text = Some(cut(&failure.message, MAX_TEXT_CHARS));
    Some((message, failure.since.saturating_add((week + 2) * WEEK_MS)))
}

/// Returns whether something that was made for at least two weeks ends `soon` or is `over` since less than a day. Otherwise
/// returns `None`.
fn stage_of_end(made: u64, ends: u64, now: u64) -> Option<&'static str> {
    let is_long = ends.saturating_sub(made) >= MIN_LIFE_MS;
    match () {
        () if is_long && now < ends && ends - now <= END_NOTICE_MS => Some("soon"),
        () if is_long && now >= ends && now - ends <= DAY_MS => Some("over"),
        () => None,
    }
}

/// Returns the messages about the triggers that have refused posts repeatedly. Each has the key of its trigger and the time
/// until which this trigger is not reported again.
pub(super) fn refusals(host: &Host, now: u64) -> Vec<(Message, String, u64)> {
    let found = host.metrics().refused_triggers().take(now).into_iter();
    let message = |refused: crate::observe::metrics::RefusedTrigger| {
        let hour = (now / REFUSAL_MS).to_string();
        let place = [refused.flow.as_str(), refused.trigger.as_str(), &hour];
        let key = message_id(&[refused.tenant.as_str(), &refused.flow, &refused.trigger]);
        let mut message = Message::new(NoticeKind::WebhookRefused, refused.tenant.as_str(), None, &place, now);
        message.flow = Some(name(&refused.flow));
        message.address = Some(name(&refused.trigger));
        message.code = Some(refused.outcome.to_owned());
        message.about = format!("the trigger refused {} posts within 15 minutes", refused.posts);
        (message, key, now + REFUSAL_MS)
    };
    found.map(message).collect()
}

/// Watches whether the store has trouble. Reads no store.
pub(super) struct StoreWatch {
    /// The name of this process in ids.
    process: String,
    since: Option<Instant>,
    /// The id of the message about the present trouble.
    told: Option<String>,
    count: u64,
}

impl StoreWatch {
    pub(super) fn new(process: String) -> StoreWatch {
        StoreWatch { process, since: None, told: None, count: 0 }
    }

    /// Takes the present trouble, or `None` if there is none. Returns a message when a trouble has lasted for some seconds, and
    /// one when it is over.
    pub(super) fn see(&mut self, trouble: Option<String>, at: Instant, now: u64) -> Option<Message> {
        let new = |watch: &mut StoreWatch, stage: &str| {
            let place = [watch.process.as_str(), &watch.count.to_string(), stage];
            Message::new(NoticeKind::StoreTrouble, "", None, &place, now)
        };
        match trouble {
            Some(about) => {
                let since = *self.since.get_or_insert(at);
                if self.told.is_some() || at.saturating_duration_since(since) < TROUBLE_TIME {
                    return None;
                }
                let mut message = new(self, "begin");
                message.about = about;
                self.told = Some(message.id.clone());
                Some(message)
            }
            None => {
                self.since = None;
                let begin = self.told.take()?;
                let mut message = new(self, "end");
                message.resolves = Some(begin);
                self.count += 1;
                Some(message)
            }
        }
    }
}

/// Returns the present trouble of the store of a host, as a sentence of Flowcell. The texts of the store stay in the log.
pub(super) fn store_trouble(host: &Host, cannot_read: bool) -> Option<String> {
    if host.shared().and_then(|shared| shared.outage()).is_some() {
        return Some("the server of the shared store is away; the log has the reason".to_owned());
    }
    match host.store().and_then(|store| store.room()) {
        Some(room) if room.is_low() => Some(format!(
            "the disk of the store has {} MiB of free room, and new runs need {} MiB",
            room.free >> 20,
            room.least >> 20
        )),
        _ => cannot_read.then(|| "the store cannot be read or written; the log has the reason".to_owned()),
    }
}

/// Returns an id of the process.
pub(super) fn process_id() -> String {
    message_id(&[&hex::encode(rand::random::<[u8; 16]>())])
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

    use flowcell_services::credentials::{CredentialStore, Lifetime, RefreshFailure, Token, TokenState};
    use serde_json::json;

    use super::*;
    use crate::tenants::operation::credential::set;

    const HOUR: u64 = 3_600_000;
    /// A time long after the times of the tokens.
    const NOW: u64 = 100 * DAY_MS;

    /// Returns a host with a credential, whose tokens have this state.
    fn host(lifetime: Option<(u64, u64)>, failure: Option<(u64, u64, bool)>) -> Host {
        let host = Host::builder().build().unwrap();
        let to = json!({
            "kind": "oauth2", "secrets": { "clientSecret": "client-secret" }, "for": ["https://api.example.com"],
            "settings": { "grant": "authorization_code", "tokenUrl": "https://login.example.com/token",
                "authorizeUrl": "https://login.example.com/authorize", "clientId": "flows" },
        });
        set(&host, "test", "crm", &serde_json::from_value(to).unwrap()).unwrap();
        let lifetime = lifetime.map(|(since, ends)| Lifetime { since, ends });
        let token = Token {
            access: "access-token-of-tests".to_owned().into(),
            refresh: Some("refresh-token-of-tests".to_owned().into()),
            issued: Some(DAY_MS),
            renew_at: None,
            lifetime,
        };
        let failure = failure.map(|(since, at, retryable)| RefreshFailure {
            at,
            since,
            message: "login.example.com answered 400 (invalid_grant: <!channel>)".into(),
            details: None,
            retryable,
        });
        let state = TokenState { token: Some(token), failure, ..TokenState::default() };
        assert!(host.vault().replace_tokens(host.tenant(), "crm", 1, &state).unwrap());
        assert_eq!(host.vault().tokens(host.tenant(), "crm", 1).unwrap(), TokenState { seen: 1, ..state });
        host
    }

    /// Returns the messages about the credentials at a time: the kind and the text of each.
    fn told(host: &Host, now: u64) -> Vec<(NoticeKind, String)> {
        let found = credentials(host, now).unwrap();
        assert!(found.iter().all(|(_, until)| *until > now), "{found:?}");
        assert!(!format!("{found:?}").contains("-token-of-tests"), "{found:?}");
        found.into_iter().map(|(message, _)| (message.kind, message.about)).collect()
    }

    #[test]
    fn a_credential_is_told_a_week_before_the_end_of_its_refresh_token_and_on_the_day() {
        let ends = NOW + 20 * DAY_MS;
        let host = self::host(Some((NOW, ends)), None);
        for (now, expected) in [
            (NOW, None),
            (ends - WEEK_MS - 1, None),
            (ends - WEEK_MS, Some("ends at 19")),
            (ends - 1, Some("ends at 19")),
            (ends, Some("has ended at 19")),
            (ends + DAY_MS, Some("has ended at 19")),
            (ends + DAY_MS + 1, None),
        ] {
            let told = told(&host, now);
            assert_eq!(told.len(), usize::from(expected.is_some()), "{now}: {told:?}");
            if let Some(part) = expected {
                assert_eq!(told[0].0, NoticeKind::CredentialExpires);
                assert!(told[0].1.contains("`crm`") && told[0].1.contains(part), "{told:?}");
            }
        }
        // An end that each renewal moves, of less than two weeks, is none.
        assert_eq!(told(&self::host(Some((NOW, NOW + 13 * DAY_MS)), None), NOW + 10 * DAY_MS), vec![]);
        assert_eq!(told(&self::host(None, None), u64::MAX / 2), vec![]);
        let row = host.vault().find_credential(host.tenant(), "crm").unwrap().unwrap().token.unwrap();
        assert_eq!((row.exists, row.expires, row.failed_since), (true, Some(ends), None));
    }

    #[test]
    fn renewals_that_fail_are_told_once_a_week_while_they_are_tried() {
        let ids = |failure: (u64, u64, bool), now: u64| -> Vec<String> {
            let found = credentials(&host(None, Some(failure)), now).unwrap();
            assert!(found.iter().all(|(message, _)| message.kind == NoticeKind::CredentialFailed), "{found:?}");
            found.into_iter().map(|(message, _)| message.id).collect()
        };
        let first = ids((NOW, NOW, false), NOW);
        assert_eq!(first.len(), 1);
        assert_eq!(ids((NOW, NOW + HOUR, false), NOW + HOUR), first, "the same failures have one message");
        assert_eq!(ids((NOW, NOW, false), NOW + DAY_MS + 1), Vec::<String>::new(), "it is not tried any more");
        let later = ids((NOW, NOW + WEEK_MS, false), NOW + WEEK_MS);
        assert!(later.len() == 1 && later != first, "{later:?}");
        // A server that may only be away is told after an hour.
        assert_eq!(ids((NOW, NOW + HOUR - 1, true), NOW + HOUR), Vec::<String>::new());
        assert_eq!(ids((NOW, NOW + HOUR, true), NOW + HOUR).len(), 1);
        let (message, _) = credentials(&host(None, Some((NOW, NOW, false))), NOW).unwrap().remove(0);
        assert!(message.about.contains("flowcell credential show crm") && !message.about.contains("channel"));
        assert!(message.text.unwrap().contains("invalid_grant"), "only targets with `contents` get it");
        let mut progress = Progress::starting(0);
        let begins = [0, 1, 299_999, 300_000, 300_001].map(|now| progress.begins_look_at_credentials(now));
        assert_eq!(begins, [true, false, false, true, false]);
    }
}
