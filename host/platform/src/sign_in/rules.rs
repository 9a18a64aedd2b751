//! The rules from claims to a tenant and its scopes.

use std::collections::BTreeSet;

use serde_json::Value;

use super::{config::Rule, token::Claims};

/// Maximum number of claims that a refusal names.
const MAX_NAMED: usize = 8;

/// The fit of a claim.
#[derive(PartialEq, Eq)]
enum Fit {
    Good,
    Missing,
    Other,
    Unverified,
}

/// Returns the first rule that fits. The error is part of a sentence: it names the claims that are missing or have another
/// value, and no value.
pub(super) fn choose<'a>(rules: &'a [Rule], claims: &Claims) -> Result<&'a Rule, String> {
    let (mut missing, mut other, mut is_unverified) = (BTreeSet::new(), BTreeSet::new(), false);
    for rule in rules {
        let mut fits = true;
        for (name, value) in &rule.when {
            let fit = fit(claims, name, value);
            fits &= fit == Fit::Good;
            match fit {
                Fit::Good => {}
                Fit::Missing => _ = missing.insert(name.as_str()),
                Fit::Other => _ = other.insert(name.as_str()),
                Fit::Unverified => is_unverified = true,
            }
        }
        if fits {
            return Ok(rule);
        }
    }
    let mut why = Vec::new();
    if !missing.is_empty() {
        why.push(format!("the issuer sends no claim {}", listed(&missing)));
    }
    if !other.is_empty() {
        why.push(format!("no value of {} fits", listed(&other)));
    }
    if is_unverified {
        why.push("the issuer has not verified the mail address (`email_verified`)".to_owned());
    }
    Err(format!("no rule of this server fits the account: {}", why.join("; ")))
}

fn fit(claims: &Claims, name: &str, value: &Value) -> Fit {
    let found = match name.strip_prefix('/') {
        Some(path) => {
            let (first, rest) =
                path.split_once('/').map_or((path, String::new()), |(first, rest)| (first, format!("/{rest}")));
            claims.get(&first.replace("~1", "/").replace("~0", "~")).and_then(|claim| claim.pointer(&rest))
        }
        None => claims.get(name),
    };
    let fits = match found {
        None | Some(Value::Null) => return Fit::Missing,
        Some(Value::Array(list)) => list.contains(value),
        Some(found) => found == value,
    };
    if !fits {
        return Fit::Other;
    }
    // A person may enter any address at some issuers.
    let is_verified = || claims.get("email_verified").is_some_and(|flag| *flag == true || flag == "true");
    if name.trim_start_matches('/') == "email" && !is_verified() { Fit::Unverified } else { Fit::Good }
}

/// Returns names, at most [`MAX_NAMED`] of them.
fn listed(names: &BTreeSet<&str>) -> String {
    let shown: Vec<_> = names.iter().take(MAX_NAMED).map(|name| format!("`{}`", name.escape_debug())).collect();
    let rest = names.len().saturating_sub(MAX_NAMED);
    let rest = if rest > 0 { format!(" and {rest} more") } else { String::new() };
    shown.join(", ") + &rest
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

    use serde_json::json;

    use super::*;

    fn rule(when: Value, tenant: &str) -> Rule {
        Rule { when: serde_json::from_value(when).unwrap(), tenant: tenant.into(), scopes: vec!["run:read".into()] }
    }

    fn tenant(rules: &[Rule], claims: Value) -> Result<String, String> {
        choose(rules, claims.as_object().unwrap()).map(|rule| rule.tenant.clone())
    }

    #[test]
    fn the_first_rule_whose_claims_all_fit_decides() {
        let rules = [
            rule(json!({ "groups": "admins", "hd": "acme.test" }), "first"),
            rule(json!({ "/realm_access/roles": "flow" }), "second"),
            rule(json!({ "/https:~1~1acme.test~1team": 7, "ok": true }), "third"),
        ];
        let table = [
            (json!({ "groups": ["users", "admins"], "hd": "acme.test" }), Some("first")),
            (json!({ "groups": "admins", "hd": "acme.test" }), Some("first")),
            (json!({ "groups": ["admins"], "hd": "evil.test", "realm_access": { "roles": ["flow"] } }), Some("second")),
            (json!({ "https://acme.test/team": 7, "ok": true }), Some("third")),
            (json!({ "https://acme.test/team": "7", "ok": true }), None),
            (json!({ "groups": ["admins-of-others"], "hd": "acme.test" }), None),
            (json!({ "groups": [["admins"]], "hd": "acme.test" }), None),
            (json!({ "groups": { "admins": true }, "hd": "acme.test" }), None),
            (json!({ "realm_access": "flow" }), None),
            (json!({}), None),
        ];
        for (claims, expected) in table {
            assert_eq!(tenant(&rules, claims.clone()).ok().as_deref(), expected, "{claims}");
        }
    }

    #[test]
    fn a_refusal_names_claims_and_no_values() {
        let rules = [rule(json!({ "groups": "secret-group", "hd": "acme.test" }), "a")];
        let why = tenant(&rules, json!({ "hd": "evil.test" })).unwrap_err();
        assert!(why.contains("no claim `groups`") && why.contains("no value of `hd` fits"), "{why}");
        assert!(!why.contains("secret-group") && !why.contains("evil.test"), "{why}");
        let many: Vec<_> = (0..20).map(|n| rule(json!({ format!("claim-{n:02}"): true }), "a")).collect();
        assert!(tenant(&many, json!({})).unwrap_err().contains("and 12 more"));
    }

    #[test]
    fn a_mail_address_counts_once_the_issuer_has_verified_it() {
        for name in ["email", "/email"] {
            let rules = [rule(json!({ name: "ada@acme.test" }), "a")];
            let with =
                |verified: Value| tenant(&rules, json!({ "email": "ada@acme.test", "email_verified": verified }));
            assert!(with(json!(true)).is_ok() && with(json!("true")).is_ok());
            assert!(with(json!(false)).unwrap_err().contains("not verified"));
            assert!(tenant(&rules, json!({ "email": "ada@acme.test" })).is_err());
        }
    }
}
