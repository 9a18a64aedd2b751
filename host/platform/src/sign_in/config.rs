//! The operator's file of issuers.

use std::{collections::BTreeMap, path::PathBuf};

use flowcell_services::webhook::SecretSource;
use serde::Deserialize;
use serde_json::Value;
use url::Url;

use crate::operate::{address::check_protected, identity::Scope, settings_file::SettingsFile};

/// Maximum size of the file.
pub const MAX_SIGN_IN_FILE_BYTES: u64 = 1024 * 1024;
/// Maximum number of issuers.
pub const MAX_ISSUERS: usize = 16;
/// Maximum number of rules of an issuer.
pub const MAX_RULES: usize = 256;
/// Maximum number of addresses of the console.
pub const MAX_ORIGINS: usize = 16;
/// Maximum number of claims in a rule, and of requested scopes.
const MAX_WORDS: usize = 16;
/// Maximum length of an address, a claim, or a value.
const MAX_TEXT_BYTES: usize = 512;
/// Maximum length of a name.
const MAX_NAME_BYTES: usize = 32;
/// Maximum number of characters of a title.
const MAX_TITLE_CHARS: usize = 64;
/// The lifetime of a session in hours, unless the file has another one.
pub const DEFAULT_SESSION_HOURS: u32 = 12;
/// The longest lifetime of a session in hours.
pub const MAX_SESSION_HOURS: u32 = 24;

/// The file: its issuers, and the addresses of the console.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct SignInFile {
    /// The scheme, name and port of each address by which browsers reach the console.
    #[serde(default)]
    pub origins: Vec<String>,
    /// The issuers.
    #[serde(default)]
    pub issuers: Vec<IssuerSettings>,
}

/// An issuer.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct IssuerSettings {
    /// The name, unique in the file. It is part of the names of accounts.
    pub name: String,
    /// The text of the button. `None`: the name.
    #[serde(default)]
    pub title: Option<String>,
    /// The identifier of the issuer, exactly as its metadata and its tokens have it.
    pub issuer: String,
    /// The name of this server at the issuer, for people. `None`: people do not sign in with the issuer.
    #[serde(default)]
    pub client_id: Option<String>,
    /// The audience of the tokens of machines. `None`: machines do not.
    #[serde(default)]
    pub audience: Option<String>,
    /// The place of the client's secret: `env:NAME` or `file:PATH`. `None`: a public client.
    #[serde(default)]
    pub client_secret_from: Option<String>,
    /// The scopes to request from the issuer. `None`: `openid`.
    #[serde(default)]
    pub scopes: Option<Vec<String>>,
    /// The lifetime of a session.
    #[serde(default)]
    pub session_hours: Option<u32>,
    /// A file with certificates of private issuers of certificates, in PEM.
    #[serde(default)]
    pub ca_file: Option<PathBuf>,
    /// True if the issuer may have a private address.
    #[serde(default)]
    pub allow_private: bool,
    /// The rules. The first that fits decides.
    pub rules: Vec<Rule>,
}

/// A rule from claims to a tenant and scopes of Flowcell.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Rule {
    /// The claims, each with the value that it has, or that is in its list. All of them must fit.
    pub when: BTreeMap<String, Value>,
    /// The tenant.
    pub tenant: String,
    /// The scopes.
    pub scopes: Vec<String>,
}

impl SettingsFile for SignInFile {
    const MAX_BYTES: u64 = MAX_SIGN_IN_FILE_BYTES;
    const HELP: &'static str = "`flowcell help sign-in` describes the file";

    fn check(&self) -> Result<(), String> {
        if self.issuers.len() > MAX_ISSUERS {
            return Err(format!("the file has {} issuers, and {MAX_ISSUERS} are the limit", self.issuers.len()));
        }
        if self.origins.len() > MAX_ORIGINS {
            return Err(format!("`origins` has {} addresses, and {MAX_ORIGINS} are the limit", self.origins.len()));
        }
        for origin in &self.origins {
            check_origin(origin).map_err(|why| format!("`origins`: `{}` {why}", origin.escape_debug()))?;
        }
        if self.origins.is_empty() && self.issuers.iter().any(|issuer| issuer.client_id.is_some()) {
            return Err("`origins` is missing: the addresses by which browsers reach the console, such as \
                        `https://flows.example.com`"
                .to_owned());
        }
        for (index, issuer) in self.issuers.iter().enumerate() {
            let wrong = |why: String| format!("`issuers[{index}]` (`{}`): {why}", issuer.name.escape_debug());
            issuer.check().map_err(wrong)?;
            for earlier in &self.issuers[..index] {
                issuer.check_beside(earlier).map_err(wrong)?;
            }
        }
        Ok(())
    }
}

impl IssuerSettings {
    fn check(&self) -> Result<(), String> {
        let is_name = |byte: u8| byte.is_ascii_alphanumeric() || b"-_".contains(&byte);
        if self.name.is_empty() || self.name.len() > MAX_NAME_BYTES || !self.name.bytes().all(is_name) {
            return Err(format!("a name has 1 to {MAX_NAME_BYTES} letters, digits, `-` and `_`"));
        }
        if self.name == "callback" {
            return Err("the name `callback` is taken by the page that issuers send browsers to".to_owned());
        }
        if self.title.as_ref().is_some_and(|title| title.trim().is_empty() || title.chars().count() > MAX_TITLE_CHARS) {
            return Err(format!("`title` has 1 to {MAX_TITLE_CHARS} characters"));
        }
        check_issuer(&self.issuer).map_err(|why| format!("`issuer` {why}"))?;
        self.check_names()?;
        if let Some(place) = &self.client_secret_from {
            place.parse::<SecretSource>().map_err(|why| format!("`clientSecretFrom`: {why}"))?;
        }
        self.check_scopes()?;
        if self.session_hours.is_some_and(|hours| hours == 0 || hours > MAX_SESSION_HOURS) {
            return Err(format!("`sessionHours` is a number from 1 to {MAX_SESSION_HOURS}"));
        }
        check_rules(&self.rules)
    }

    /// Checks that no token is one of two issuers of the file, and that a token of a person is none of a machine.
    fn check_beside(&self, earlier: &IssuerSettings) -> Result<(), String> {
        if earlier.name == self.name {
            return Err("another issuer has the same name".to_owned());
        }
        let is_shared = |one: &Option<String>, other: &Option<String>| one.is_some() && one == other;
        if earlier.issuer != self.issuer {
            return Ok(());
        }
        if is_shared(&self.audience, &earlier.audience) {
            return Err(format!(
                "`{}` has the same `issuer` and `audience`, and no token can tell them apart",
                earlier.name
            ));
        }
        match is_shared(&self.client_id, &earlier.audience) || is_shared(&self.audience, &earlier.client_id) {
            true => Err(format!(
                "`clientId` and `audience` must differ from those of `{}`, which has the same `issuer`, so that no ID token \
                 of a person is one of a machine",
                earlier.name
            )),
            false => Ok(()),
        }
    }

    fn check_names(&self) -> Result<(), String> {
        let wrong =
            |name: &Option<String>| name.as_ref().is_some_and(|name| !(1..=MAX_TEXT_BYTES).contains(&name.len()));
        if wrong(&self.client_id) || wrong(&self.audience) {
            return Err(format!("`clientId` and `audience` have 1 to {MAX_TEXT_BYTES} bytes"));
        }
        match (&self.client_id, &self.audience) {
            (None, None) => Err("`clientId` is missing, for people, or `audience`, for machines".to_owned()),
            // A token of a person would be one of a machine, too.
            (Some(id), Some(audience)) if id == audience => {
                Err("`clientId` and `audience` must differ, so that no ID token of a person is one of a machine"
                    .to_owned())
            }
            (None, Some(_)) if self.client_secret_from.is_some() || self.title.is_some() || self.scopes.is_some() => {
                Err("`clientSecretFrom`, `title` and `scopes` need `clientId`".to_owned())
            }
            _ => Ok(()),
        }
    }

    fn check_scopes(&self) -> Result<(), String> {
        let Some(scopes) = &self.scopes else { return Ok(()) };
        // The characters of a scope in OAuth 2.0.
        let is_scope = |byte: u8| byte.is_ascii_graphic() && byte != b'"' && byte != b'\\';
        let fits = |scope: &String| (1..=MAX_TEXT_BYTES).contains(&scope.len()) && scope.bytes().all(is_scope);
        if scopes.len() > MAX_WORDS || !scopes.iter().all(fits) {
            return Err(format!("`scopes` is a list of at most {MAX_WORDS} words without spaces"));
        }
        match scopes.iter().any(|scope| scope == "openid") {
            true => Ok(()),
            false => Err("`scopes` needs `openid`, without which there is no ID token".to_owned()),
        }
    }

    /// Returns the text of the button.
    pub(super) fn title(&self) -> &str {
        self.title.as_deref().unwrap_or(&self.name)
    }

    /// Returns the scopes to request from the issuer, separated by spaces.
    pub(super) fn asked_scopes(&self) -> String {
        self.scopes.as_ref().map_or_else(|| "openid".to_owned(), |scopes| scopes.join(" "))
    }

    /// Returns the lifetime of a session in milliseconds.
    pub(super) fn session_ms(&self) -> u64 {
        u64::from(self.session_hours.unwrap_or(DEFAULT_SESSION_HOURS)) * 3_600_000
    }
}

fn check_rules(rules: &[Rule]) -> Result<(), String> {
    if rules.is_empty() || rules.len() > MAX_RULES {
        return Err(format!("`rules` has 1 to {MAX_RULES} rules; without one, no person may sign in"));
    }
    for (index, rule) in rules.iter().enumerate() {
        rule.check().map_err(|why| format!("`rules[{index}]`: {why}"))?;
    }
    Ok(())
}

impl Rule {
    fn check(&self) -> Result<(), String> {
        if self.when.is_empty() || self.when.len() > MAX_WORDS {
            return Err(format!(
                "`when` has 1 to {MAX_WORDS} claims; a rule without a claim would let each account of the issuer in"
            ));
        }
        for (claim, value) in &self.when {
            let is_short = |text: &str| (1..=MAX_TEXT_BYTES).contains(&text.len());
            let fits = match value {
                Value::String(text) => is_short(text),
                Value::Bool(_) | Value::Number(_) => true,
                _ => false,
            };
            if !is_short(claim) || !fits {
                return Err(format!(
                    "`when`: `{}` needs a text, a number or a boolean of at most {MAX_TEXT_BYTES} bytes",
                    claim.escape_debug()
                ));
            }
        }
        if self.tenant.is_empty() {
            return Err("`tenant` is empty; an account cannot belong to the operators".to_owned());
        }
        if self.scopes.is_empty() {
            return Err("`scopes` is empty, so that nothing is allowed".to_owned());
        }
        let of_tenants = || Scope::of_tenants().map(Scope::name).collect::<Vec<_>>().join(", ");
        match self.scopes.iter().find(|name| Scope::named(name).is_none_or(Scope::is_for_operators)) {
            Some(name) => {
                Err(format!("`{}` is not a scope of a tenant; they are {}", name.escape_debug(), of_tenants()))
            }
            None => Ok(()),
        }
    }
}

/// Checks a URL to which codes or secrets are sent: with TLS, unless it names this machine. The error continues a sentence.
pub(super) fn check_url(text: &str) -> Result<Url, String> {
    if text.len() > MAX_TEXT_BYTES {
        return Err(format!("is longer than {MAX_TEXT_BYTES} bytes"));
    }
    let url = Url::parse(text).map_err(|error| format!("is not a URL: {error}"))?;
    check_protected(&url)?;
    if !url.username().is_empty() || url.password().is_some() || url.fragment().is_some() {
        return Err("may have neither a user name, a password, nor a fragment".to_owned());
    }
    Ok(url)
}

fn check_issuer(text: &str) -> Result<(), String> {
    match check_url(text)?.query() {
        Some(_) => Err("may have no query".to_owned()),
        None => Ok(()),
    }
}

fn check_origin(text: &str) -> Result<(), String> {
    let url = check_url(text)?;
    match url.path() == "/" && url.query().is_none() {
        true => Ok(()),
        false => Err("has more than a scheme, a name and a port".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

    use super::*;

    const RULE: &str = "{ when: { groups: admins }, tenant: acme, scopes: [run:read] }";

    fn issuer(rest: &str) -> String {
        format!(
            "origins: [https://flows.test]\nissuers:\n- {{ name: a, issuer: 'https://login.test/x', clientId: c{rest} }}"
        )
    }

    #[test]
    fn a_file_with_its_defaults() {
        let file = SignInFile::parse(&issuer(&format!(", rules: [{RULE}]"))).unwrap();
        let issuer = &file.issuers[0];
        assert_eq!((issuer.title(), &*issuer.asked_scopes(), issuer.session_ms()), ("a", "openid", 43_200_000));
        assert!(SignInFile::parse("# nothing\n").unwrap().issuers.is_empty());
    }

    #[test]
    fn a_wrong_file_is_refused_with_the_place() {
        let rules = |rule: &str| issuer(&format!(", rules: [{rule}]"));
        let rule = |rest: &str| rules(&format!("{{ {rest} }}"));
        let table = [
            (issuer(""), "rules"),
            (issuer(&format!(", rules: [{RULE}], audience: c")), "must differ"),
            (issuer(&format!(", rules: [{RULE}]")).replace("clientId: c", "sessionHours: 1"), "`clientId` is missing"),
            (
                issuer(&format!(", rules: [{RULE}], scopes: [openid]")).replace("clientId", "audience"),
                "need `clientId`",
            ),
            (issuer(", rules: []"), "1 to 256"),
            (issuer(&format!(", rules: [{RULE}], sessionHours: 25")), "`sessionHours`"),
            (issuer(&format!(", rules: [{RULE}], scopes: [email]")), "`openid`"),
            (issuer(&format!(", rules: [{RULE}], clientSecretFrom: abc")), "`clientSecretFrom`"),
            (issuer(&format!(", rules: [{RULE}], secret: abc")), "unknown field"),
            (rule("when: {}, tenant: a, scopes: [run:read]"), "each account"),
            (rule("when: { a: [b] }, tenant: a, scopes: [run:read]"), "`a` needs a text"),
            (rule("when: { a: b }, tenant: '', scopes: [run:read]"), "operators"),
            (rule("when: { a: b }, tenant: a, scopes: []"), "nothing is allowed"),
            (rule("when: { a: b }, tenant: a, scopes: [admin:write]"), "`admin:write` is not a scope of a tenant"),
            (rules(RULE).replace("https://login.test", "http://login.test"), "`https://`"),
            (rules(RULE).replace("https://flows.test", "https://flows.test/x"), "more than"),
            (rules(RULE).replace("name: a", "name: callback"), "is taken"),
            (rules(RULE).replace("name: a", "name: a/b"), "a name has"),
            (rules(RULE).replace("origins: [https://flows.test]", "origins: []"), "`origins` is missing"),
        ];
        for (text, expected) in table {
            let why = SignInFile::parse(&text).unwrap_err();
            assert!(why.contains(expected), "{expected}: {why}");
        }
        let two = |keys: [&str; 2]| {
            let names = ["a", "b"].iter().zip(keys);
            let all = names.map(|(name, key)| {
                format!("- {{ name: {name}, issuer: 'https://login.test', {key}, rules: [{RULE}] }}\n")
            });
            format!("origins: [https://flows.test]\nissuers:\n{}", all.collect::<String>())
        };
        for (keys, expected) in [
            (["audience: x", "audience: x"], "no token can tell them apart"),
            (["audience: x", "clientId: x"], "must differ from those of `a`"),
            (["clientId: x", "audience: x"], "must differ from those of `a`"),
        ] {
            let why = SignInFile::parse(&two(keys)).unwrap_err();
            assert!(why.contains("issuers[1]") && why.contains(expected), "{expected}: {why}");
        }
        for keys in [["audience: x", "audience: y"], ["clientId: x", "clientId: x"], ["clientId: x", "audience: y"]] {
            assert!(SignInFile::parse(&two(keys)).is_ok(), "{keys:?}");
        }
        let machines = rules(RULE).replace("origins: [https://flows.test]", "").replace("clientId", "audience");
        assert!(SignInFile::parse(&machines).is_ok());
        let here = rules(RULE).replace("https://flows.test", "http://flowcell.localhost:7171");
        assert!(SignInFile::parse(&here).is_ok());
    }
}
