//! The operator's policy for a tenant: the maximum grants of its flows, the packs that they may bring, and quotas.

use std::{collections::BTreeMap, sync::Arc};

use flowcell_contract::{BuiltIn, GrantShape, Json, NodeLimits, Tenant, similar};
use flowcell_engine::Engine;
use flowcell_runtime::{
    LiveRuns,
    ports::{DocumentStore, StoreError},
};
use flowcell_services::{
    egress::{Egress, OriginGrants, OutboundLimits},
    pattern,
};
use serde::{Deserialize, Serialize};

use crate::operate::{
    documents::Documents,
    retention::{self, RetentionRule},
};

/// The limits of a tenant. A missing member means no limit.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Policy {
    /// The maximum grants of flows, by capability. Unlisted capabilities cannot be granted. Patterns of `http` are
    /// origins, see [`OriginGrants::from_policy`]. In all others `*` matches any characters.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub grants: Option<BTreeMap<String, Vec<String>>>,
    /// The packs that flows may bring, by the SHA-256 of their files.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub packs: Option<Vec<String>>,
    /// Maximum number of unfinished runs that are not children of another run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_live_runs: Option<u32>,
    /// Maximum number of concurrent attempts, including those that wait for a call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_concurrency: Option<u64>,
    /// Maximum memory of the tenant's concurrent attempts, in MiB, beyond the first 4 MiB of each attempt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_memory_mib: Option<u64>,
    /// The largest limits that node types may ask for in their manifests. The operator of the process grants them, so a
    /// missing member grants as much as the process does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node_limits: Option<NodeLimits>,
    /// The limits on requests to each origin.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub per_origin: Option<OutboundLimits>,
    /// The daily quotas.
    #[serde(default, skip_serializing_if = "PerDay::is_unlimited")]
    pub per_day: PerDay,
    /// Always refused, with the reason: only quotas that renew can pause runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub on_exhausted: Option<OnExhausted>,
    /// The rules by which ended runs are removed. `None`: the rules of the process that drives the store.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retention: Option<Vec<RetentionRule>>,
}

/// The quotas of a tenant per day of UTC. A missing member means no limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct PerDay {
    /// Milliseconds of computing time of the tenant's attempts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub compute_ms: Option<u64>,
    /// Number of events of the tenant's runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub events: Option<u64>,
    /// MiB that the tenant's runs write to the store: events and files.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub written_mib: Option<u64>,
    /// Costs of models and images, in USD. With this limit, calls of models and images without known prices are
    /// refused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model_usd: Option<f64>,
    /// What happens to the runs of a tenant that has used up one of these quotas.
    #[serde(default, skip_serializing_if = "OnExhausted::is_default")]
    pub on_exhausted: OnExhausted,
}

/// What happens to a run whose next attempt or call would exceed a quota of its tenant.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OnExhausted {
    /// The attempt or call fails with `quota_exceeded`.
    #[default]
    Fail,
    /// The run is parked, and goes on when the quota renews.
    Pause,
}

impl OnExhausted {
    fn is_default(&self) -> bool {
        *self == OnExhausted::default()
    }
}

impl PerDay {
    pub(crate) fn is_unlimited(&self) -> bool {
        PerDay { on_exhausted: OnExhausted::Fail, ..*self } == PerDay::default()
    }

    /// Checks that runs can wait for these quotas, if they pause runs.
    fn check_pause(&self) -> Result<(), String> {
        if self.on_exhausted == OnExhausted::Fail {
            return Ok(());
        }
        if self.is_unlimited() {
            return Err("`perDay.onExhausted`: needs a quota beside it, such as `modelUsd`".into());
        }
        let amounts = [
            ("computeMs", self.compute_ms == Some(0)),
            ("events", self.events == Some(0)),
            ("writtenMib", self.written_mib == Some(0)),
            ("modelUsd", self.model_usd == Some(0.0)),
        ];
        match amounts.iter().find(|(_, is_zero)| *is_zero) {
            Some((name, _)) => Err(format!(
                "`perDay.{name}`: with `onExhausted: pause` runs would wait for ever for a quota of 0; use `fail`, or a \
                 larger quota"
            )),
            None => Ok(()),
        }
    }
}

/// The owner of policy documents: the operators, who are not a tenant.
pub(crate) const OPERATORS: &str = "";
/// The document kind of policies.
pub(crate) const POLICY: &str = "policy";

impl Policy {
    /// Reads the policy of a tenant. Default: no limits.
    pub(crate) fn read(documents: &dyn DocumentStore, tenant: &Tenant) -> Result<Policy, StoreError> {
        let found = Documents { store: documents, tenant: &Tenant::from(OPERATORS) }.get(POLICY, tenant.as_str())?;
        Ok(found.map(|(policy, _)| policy).unwrap_or_default())
    }

    /// Applies the tenant's limits to its attempts in an engine, to the number of its live runs, and to its requests.
    pub(crate) fn apply_limits(&self, engine: &Engine, live: &LiveRuns, egress: &Egress, tenant: &Tenant) {
        egress.set_limits(tenant, self.per_origin);
        live.set_limit(tenant, self.max_live_runs);
        engine.set_bounds(tenant, self.max_concurrency, self.max_memory_mib.map(|mib| mib.saturating_mul(1 << 20)));
        engine.set_largest_limits(tenant, self.largest_limits());
    }

    /// Returns the largest limits of node types. An attempt never gets more memory than all of the tenant's attempts.
    pub(crate) fn largest_limits(&self) -> NodeLimits {
        let most = self.node_limits.unwrap_or_default();
        NodeLimits { memory_mib: most.memory_mib.into_iter().chain(self.max_memory_mib).min(), ..most }
    }

    /// Returns the maximum grants of a capability, as patterns. `None` means no limit.
    pub(crate) fn most_granted(&self, capability: &str) -> Option<Vec<String>> {
        Some(self.grants.as_ref()?.get(capability).cloned().unwrap_or_default())
    }

    /// Checks an item of a grant. The error is a sentence for people.
    pub(crate) fn check_grant(&self, capability: &str, item: &Json) -> Result<(), String> {
        let Some(grants) = &self.grants else { return Ok(()) };
        let Some(most) = grants.get(capability).filter(|most| !most.is_empty()) else {
            return Err("the operator does not allow this tenant to grant it".into());
        };
        let refused = match GrantShape::named(capability) {
            Some(GrantShape::Origins) => is_outside(most, item)?.then(|| plain_text(item)),
            shape => unmatched(most, shape, item),
        };
        let Some(refused) = refused else { return Ok(()) };
        let most: Vec<_> = most.iter().map(|pattern| format!("`{pattern}`")).collect();
        Err(format!("`{refused}` exceeds the operator's limits for this tenant: {}", most.join(", ")))
    }

    /// Checks that the host may send requests of the tenant itself, and not of a flow, to a URL: `grants.http` bounds them,
    /// too. The error is a sentence for people.
    pub(crate) fn check_url(&self, url: &str) -> Result<(), String> {
        let http = BuiltIn::Http.name();
        match self.most_granted(http) {
            None => Ok(()),
            Some(most) if most.is_empty() => Err("the operator allows this tenant no requests to servers".into()),
            // A grant has no query.
            Some(_) => self.check_grant(http, &Json::from(url.split('?').next().unwrap_or_default())),
        }
    }

    /// Checks that the policy has no unknown names and no invalid numbers, which would look like limits without being
    /// limits.
    pub(crate) fn check(&self, capabilities: &[String]) -> Result<(), String> {
        for name in self.grants.iter().flat_map(BTreeMap::keys) {
            if !capabilities.contains(name) {
                let near = similar(name, capabilities.iter().map(String::as_str));
                let meant = near.map(|near| format!("; did you mean `{near}`?")).unwrap_or_default();
                return Err(format!("`grants.{name}`: unknown capability `{name}`{meant}"));
            }
        }
        let are_origins = |name: &str| GrantShape::named(name) == Some(GrantShape::Origins);
        for (name, patterns) in self.grants.iter().flatten().filter(|(name, _)| are_origins(name)) {
            for pattern in patterns {
                OriginGrants::from_policy(pattern).map_err(|why| format!("`grants.{name}`: {why}"))?;
            }
        }
        for digest in self.packs.iter().flatten() {
            let is_hash = digest.len() == 64 && digest.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
            if !is_hash {
                return Err(format!("`packs`: `{digest}` is not a SHA-256: write 64 digits of `0-9a-f`"));
            }
        }
        retention::check(self.retention.as_deref().unwrap_or_default())?;
        if self.on_exhausted.is_some() {
            return Err(
                "`onExhausted`: belongs in `perDay`: the limits beside it do not renew with time, so no run can wait \
                        for them"
                    .into(),
            );
        }
        if let Some(limits) = &self.per_origin {
            limits.check().map_err(|why| format!("`perOrigin`: {why}"))?;
        }
        self.per_day.check_pause()?;
        match self.per_day.model_usd {
            Some(usd) if !usd.is_finite() || usd < 0.0 => {
                Err(format!("`perDay.modelUsd`: {usd} is not an amount of USD"))
            }
            _ => Ok(()),
        }
    }

    /// Returns whether the policy limits the grants, the packs or the node types of flows.
    pub(crate) fn limits_flows(&self) -> bool {
        self.grants.is_some() || self.packs.is_some() || self.node_limits.is_some()
    }

    /// Returns whether a flow may bring a pack.
    pub(crate) fn allows_pack(&self, digest: &str) -> bool {
        self.packs.as_ref().is_none_or(|packs| packs.iter().any(|allowed| allowed == digest))
    }
}

/// Returns whether no pattern of a policy contains the origin of an item. It compares parsed origins and paths, never
/// texts.
fn is_outside(most: &[String], item: &Json) -> Result<bool, String> {
    let granted = OriginGrants::parse(item)?;
    let contains = |pattern: &String| match OriginGrants::from_policy(pattern) {
        Ok(allowed) => allowed.first_not_contained(&granted).is_none(),
        // Older versions compared texts, so a store may have patterns that are not origins.
        Err(why) => {
            tracing::warn!(why, "a pattern of a tenant's policy is invalid and allows nothing; set the policy again");
            false
        }
    };
    Ok(!most.iter().any(contains))
}

/// Returns the first text of an item that no pattern of a policy matches, or `None` if each text is matched. A text
/// may itself be a pattern of the flow. A policy pattern that matches the characters of such a text also allows
/// everything that the flow's pattern matches.
fn unmatched(most: &[String], shape: Option<GrantShape>, item: &Json) -> Option<String> {
    let allowed = |text: &String| most.iter().any(|pattern| pattern::matches(pattern, text));
    texts(shape, item).into_iter().find(|text| !allowed(text))
}

/// Returns the texts of an item that are compared with a policy's patterns. For a secret or a credential the text is its name. For
/// files each text is `read:` or `write:` with a pattern of paths. Otherwise the text is the item itself.
fn texts(shape: Option<GrantShape>, item: &Json) -> Vec<String> {
    let Some(members) = item.as_object() else { return vec![plain_text(item)] };
    if let Some(name) = item.get("name").filter(|_| shape == Some(GrantShape::Secrets)) {
        return vec![plain_text(name)];
    }
    if let Some(credential) = item.get("credential").filter(|_| shape == Some(GrantShape::Credentials)) {
        return vec![plain_text(credential)];
    }
    let of_member = |(key, value): (&Arc<str>, &Json)| match value.as_array() {
        Some(items) => items.iter().map(|item| format!("{key}:{}", plain_text(item))).collect(),
        None => vec![format!("{key}:{}", plain_text(value))],
    };
    let texts: Vec<_> = members.iter().flat_map(of_member).collect();
    // An item of files without paths grants nothing. For other capabilities, the meaning of an empty item is unknown
    // here.
    if texts.is_empty() && shape != Some(GrantShape::Paths) { vec![plain_text(item)] } else { texts }
}

fn plain_text(item: &Json) -> String {
    item.as_str().map_or_else(|| item.to_text(), str::to_owned)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

    use super::*;

    fn check(most: &[&str], item: &str) -> bool {
        let most = most.iter().map(|pattern| (*pattern).to_owned()).collect();
        let policy = Policy { grants: Some([("http".to_owned(), most)].into()), ..Policy::default() };
        policy.check_grant("http", &Json::from(item)).is_ok()
    }

    #[test]
    fn a_grant_stays_within_the_policy() {
        let api = "https://api.example.com";
        assert!(check(&[api], api) && check(&["https://*"], api) && check(&["no", "*"], api));
        assert!(check(&["https://*.example.com"], "https://*.example.com"));
        assert!(check(&["https://*"], "https://*.example.com"));
        assert!(!check(&[api], "https://*.example.com") && !check(&[], api) && !check(&["http://*"], api));
        assert!(
            check(&["https://*"], "https://api.example.com:8443/v1") && check(&[api], "https://api.example.com/v1")
        );
        let nothing = Policy { grants: Some(BTreeMap::new()), ..Policy::default() };
        assert!(nothing.check_grant("model", &Json::from("a/b")).is_err());
        assert!(Policy::default().check_grant("model", &Json::from("a/b")).is_ok());
        assert!(serde_json::from_str::<Policy>(r#"{ "maxRuns": 1 }"#).is_err());
    }

    #[test]
    fn a_policy_bounds_the_requests_of_the_tenant_itself() {
        let http = |most: &[&str]| {
            let most = most.iter().map(|pattern| (*pattern).to_owned()).collect();
            Policy { grants: Some([("http".to_owned(), most)].into()), ..Policy::default() }
        };
        let bounded = http(&["https://api.example.com", "https://login.example.com/oauth/*"]);
        for (url, allowed) in [
            ("https://api.example.com/token", true),
            ("https://api.example.com/token?tenant=a", true),
            ("https://login.example.com/oauth/token?x=/", true),
            ("https://login.example.com/token?x=/oauth/token", false),
            ("https://evil.example/token?https://api.example.com", false),
            ("https:evil.example/token", false),
            ("http://api.example.com/token", false),
        ] {
            assert_eq!(bounded.check_url(url).is_ok(), allowed, "{url}");
        }
        let told = bounded.check_url("https://evil.example/token").unwrap_err();
        assert!(told.contains("`https://evil.example/token` exceeds") && told.contains("`https://api.example.com`"));
        let nothing = Policy { grants: Some(BTreeMap::new()), ..Policy::default() };
        for none in [http(&[]), nothing] {
            assert!(none.check_url("https://api.example.com").unwrap_err().contains("no requests to servers"));
        }
        assert_eq!(Policy::default().check_url("https://evil.example"), Ok(()));
    }

    #[test]
    fn a_policy_is_compared_after_parsing() {
        for (pattern, grant, allowed) in [
            ("http://*.allowed.test", "http://127.0.0.1:1/x.allowed.test", false),
            ("http://*.allowed.test", "http://evil.test/.allowed.test", false),
            ("http://*.allowed.test", "http://evilallowed.test", false),
            ("http://*.allowed.test", "http://A.B.Allowed.TEST/x", true),
            ("http://*.allowed.test", "http://allowed.test", false),
            ("https://a.test/v1/*", "https://a.test/v1/../admin", false),
            ("https://a.test/v1/*", "https://a.test/v1/%2e%2e/admin", false),
            ("https://a.test/v1/*", "https://a.test/v1/.%2E/admin", false),
            ("https://a.test/v1/*", "https://a.test/v10", false),
            ("https://a.test/v1/*", "https://a.test", false),
            ("https://a.test/v1/*", "https://a.test/v1/users/", true),
            ("https://a.test/v1/*", "https://a.test/x/../%76%31/users", true),
            ("https://a.test/*/users", "https://a.test/v1/users/7", true),
            ("https://a.test/*/users", "https://a.test/v1/x/users", false),
            ("https://a.test", "https://a.test:8443", false),
            ("https://a.test:*", "https://a.test:8443", true),
            ("https://a.test:*", "https://a.test.evil.test:1", false),
            ("https://*:8443", "https://b.test:8443", true),
            ("https://*:8443", "https://b.test", false),
            ("*://a.test", "http://a.test", true),
            ("*://a.test", "http://a.test:443", false),
            ("https://127.0.0.1", "https://0x7f.1", true),
            // Patterns that older versions stored as text allow nothing.
            ("https://a*", "https://a.test", false),
            ("https://*a.test", "https://a.test", false),
            ("https://a.test/v*", "https://a.test/v1", false),
            ("*a.test", "https://a.test", false),
        ] {
            assert_eq!(check(&[pattern], grant), allowed, "{pattern} {grant}");
        }
    }

    #[test]
    fn only_a_secret_is_compared_by_its_name() {
        let grants = [("secrets".to_owned(), vec!["a".to_owned()]), ("robot".to_owned(), vec!["a".to_owned()])];
        let policy = Policy { grants: Some(grants.into()), ..Policy::default() };
        let allows = |capability: &str, item: &str| policy.check_grant(capability, &Json::parse(item).unwrap()).is_ok();
        assert!(allows("secrets", r#"{ "name": "a" }"#));
        assert!(
            !allows("robot", r#"{ "name": "a", "arm": "left" }"#) && !allows("robot", "{}") && !allows("robot", "[]")
        );
    }

    #[test]
    fn items_that_are_not_texts_are_compared_by_their_texts() {
        let most = |pattern: &str| vec![pattern.to_owned()];
        let grants = [("files".to_owned(), most("read:data/*")), ("secrets".to_owned(), most("api-*"))];
        let policy = Policy { grants: Some(grants.into()), ..Policy::default() };
        let allows = |capability: &str, item: &str| policy.check_grant(capability, &Json::parse(item).unwrap()).is_ok();
        assert!(allows("files", r#"{ "read": ["data/a", "data/**"] }"#));
        assert!(!allows("files", r#"{ "read": ["data/a", "out/b"] }"#));
        assert!(!allows("files", r#"{ "read": "data/a", "write": "data/a" }"#));
        assert!(allows("secrets", r#"{ "name": "api-token", "header": "x" }"#));
        assert!(!allows("secrets", r#"{ "name": "other", "header": "api-token" }"#));
    }

    #[test]
    fn errors_in_a_policy_are_reported_with_their_place() {
        let known = ["http".to_owned(), "model".to_owned()];
        for (policy, told) in [
            (r#"{ "grants": { "http": ["https://*"], "model": [] }, "perDay": { "modelUsd": 0.5 } }"#, None),
            (r#"{ "grants": { "htpp": [] } }"#, Some("`grants.htpp`: unknown capability `htpp`; did you mean `http`?")),
            (r#"{ "grants": { "x": [] } }"#, Some("`grants.x`: unknown capability `x`")),
            (
                r#"{ "grants": { "http": ["*", "https://api-*.example.com"] } }"#,
                Some(
                    "`grants.http`: `https://api-*.example.com` is not a pattern of origins such as \
                     `https://*.example.com/v1`: in a host, `*` must be alone or before the first dot",
                ),
            ),
            (
                r#"{ "packs": ["sha256:ab"] }"#,
                Some("`packs`: `sha256:ab` is not a SHA-256: write 64 digits of `0-9a-f`"),
            ),
            (r#"{ "retention": [{ "flow": "a" }] }"#, Some("`retention[0]`: needs `olderThan` or `keepLatest`")),
            (r#"{ "retention": [{ "flow": "a", "olderThan": "30d" }, { "keepLatest": 5 }] }"#, None),
            (r#"{ "perOrigin": { "perSecond": 0.5, "burst": 3, "maxConcurrency": 1 } }"#, None),
            (
                r#"{ "perOrigin": { "perSecond": 0 } }"#,
                Some("`perOrigin`: `perSecond`: 0 is not from 0.001 to 1000000"),
            ),
            (r#"{ "perOrigin": { "burst": 3 } }"#, Some("`perOrigin`: `burst` needs `perSecond` beside it")),
            (r#"{ "perDay": { "modelUsd": -1 } }"#, Some("`perDay.modelUsd`: -1 is not an amount of USD")),
            (r#"{ "perDay": { "modelUsd": 1, "onExhausted": "pause" } }"#, None),
            (
                r#"{ "maxLiveRuns": 5, "onExhausted": "pause" }"#,
                Some(
                    "`onExhausted`: belongs in `perDay`: the limits beside it do not renew with time, so no run can wait \
                     for them",
                ),
            ),
            (
                r#"{ "perDay": { "onExhausted": "pause" } }"#,
                Some("`perDay.onExhausted`: needs a quota beside it, such as `modelUsd`"),
            ),
            (
                r#"{ "perDay": { "events": 0, "onExhausted": "pause" } }"#,
                Some(
                    "`perDay.events`: with `onExhausted: pause` runs would wait for ever for a quota of 0; use `fail`, or \
                     a larger quota",
                ),
            ),
        ] {
            let policy: Policy = serde_json::from_str(policy).unwrap();
            assert_eq!(policy.check(&known).err().as_deref(), told);
        }
        let packs = Some(vec!["0a".repeat(32)]);
        assert_eq!(Policy { packs, ..Policy::default() }.check(&known), Ok(()));
    }

    #[test]
    fn only_listed_packs_are_allowed() {
        let only = Policy { packs: Some(vec!["abc".into()]), ..Policy::default() };
        assert!(only.allows_pack("abc") && !only.allows_pack("abd") && Policy::default().allows_pack("abd"));
    }
}
