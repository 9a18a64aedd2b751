//! Tests `flowcell serve --sign-in`: people sign in with the real `oidc-provider`, and tokens that a made-up issuer sends are
//! refused.

mod command;
mod credentials;
mod fake;
mod hostile;
mod machines;
pub(super) mod site;
mod visitor;

use serde_json::{Value, json};

use self::{
    site::{Provider, Site},
    visitor::{Visitor, query, with_query},
};
use crate::{
    client::{Answer, ask},
    kit::has_program,
    server::console::browser::Browser,
};

const KEY: [(&str, &str); 1] = [("RS256", "first")];
const CLIENT: [(&str, &str); 1] = [("flowcell", "RS256")];
const USERS: &str = "{ when: { groups: users }, tenant: acme, scopes: [run:read, flow:read] }";

/// A server with the real issuer, whose accounts in the group `users` may read runs of `acme`. `None` without the issuer.
fn start() -> Option<(Provider, Site)> {
    let provider = Provider::start()?;
    let site = Site::start(&["acme", "beta"]);
    provider.set_up(&site, &CLIENT, &KEY);
    site.write(&provider.issuer("company", "flowcell", USERS));
    provider.seat("ada");
    Some((provider, site))
}

impl Site {
    /// Takes a browser to an issuer, and back to the callback. Returns its URL, which the browser has not opened.
    fn to_callback(&self, visitor: &mut Visitor, issuer: &str) -> String {
        let begin = self.url(&format!("/console/sign-in/{issuer}?next=/console/runs"));
        visitor.follow(&begin, &self.url("/console/sign-in/callback"))
    }

    /// Signs a browser in. Returns the answer of the callback.
    fn sign_in(&self, visitor: &mut Visitor, issuer: &str) -> Answer {
        let callback = self.to_callback(visitor, issuer);
        visitor.open(&callback)
    }
}

/// Checks that a page is that of a failed sign-in, and that the browser has no session.
#[track_caller]
fn refused(site: &Site, visitor: &Visitor, answer: &Answer, status: u16, code: &str, text: &str) {
    // A page shows a message as a sentence, and text between backticks as code.
    let shown = answer.body.replace("<code>", "`").replace("</code>", "`").to_lowercase();
    assert!(shown.contains(code) && shown.contains(&text.to_lowercase()), "{code} {text}: {answer:?}");
    assert_eq!(answer.status, status, "{answer:?}");
    assert_eq!(site.me(visitor).status, 401, "{text}");
}

#[test]
fn a_person_signs_in_and_out() {
    let Some((_provider, site)) = start() else { return };
    let mut visitor = Visitor::default();
    let login = visitor.go(&site.url("/console/login?next=/console/runs"));
    let button = r#"href="/console/sign-in/company?next=%2Fconsole%2Fruns""#;
    assert!(login.body.contains(button) && login.body.contains("Sign in with The company"), "{}", login.body);

    let begun = visitor.go(&site.url("/console/sign-in/company?next=/console/runs"));
    let location = begun.header("location").unwrap();
    assert_eq!((begun.status, query(location, "code_challenge_method").as_str()), (303, "S256"));
    let cookie = begun.header("set-cookie").unwrap();
    for part in ["HttpOnly", "SameSite=Lax", "Path=/console/sign-in/callback", "Max-Age=600"] {
        assert!(cookie.split("; ").any(|own| own == part), "{cookie}");
    }
    let done = site.sign_in(&mut visitor, "company");
    assert!(done.status == 200 && done.body.contains(r#"content="0; url=/console/runs""#), "{done:?}");
    let session = done.headers.iter().find(|(name, line)| name == "set-cookie" && line.contains("SameSite=Strict"));
    let session = &session.unwrap_or_else(|| panic!("{done:?}")).1;
    assert!(session.contains("Max-Age=43200; ") || session.ends_with("Max-Age=43200"), "{session}");

    let me = site.me(&visitor).json();
    assert_eq!((&me["tenant"], &me["scopes"]), (&json!("acme"), &json!(["flow:read", "run:read"])), "{me}");
    assert_eq!(me["token"]["name"], "oidc:company:ada");
    assert_eq!(visitor.go(&site.url("/console/runs")).status, 200);
    let rows = site.run(&["account", "list"]);
    assert_eq!(
        (&rows[0]["name"], &rows[0]["tenant"], &rows[0]["sessions"]),
        (&json!("oidc:company:ada"), &json!("acme"), &json!(1))
    );
    let log = site.run(&["audit", "list", "acme"]);
    let entry = log.as_array().unwrap().iter().find(|entry| entry["action"] == "account.sign-in").unwrap();
    assert_eq!((&entry["actor"], &entry["subject"]), (&json!("oidc:company:ada"), &me["token"]["id"]), "{log}");

    let cookies = visitor.cookies_for(site.address.port(), "/console/logout", false);
    let origin = site.origin();
    let out = ask(site.address, "POST", "/console/logout", &[("Cookie", &cookies), ("Origin", &origin)], "");
    assert_eq!((out.status, site.me(&visitor).status), (303, 401), "{out:?}");
    site.end();
}

#[test]
fn each_algorithm_counts_and_keys_may_change() {
    let Some((provider, site)) = start() else { return };
    for (alg, kid) in [("RS256", "second"), ("PS256", "third"), ("ES256", "fourth"), ("EdDSA", "fifth")] {
        // The server knows the keys of the last round, and looks for new ones at most once a minute. A reload forgets them.
        site.write(&provider.issuer("company", "flowcell", USERS));
        provider.set_up(&site, &[("flowcell", alg)], &[(alg, kid), ("RS256", "first")]);
        let mut visitor = Visitor::default();
        let done = site.sign_in(&mut visitor, "company");
        assert_eq!((done.status, site.me(&visitor).status), (200, 200), "{alg}: {done:?}");
    }
    // A new key is found without a reload.
    provider.set_up(&site, &CLIENT, &[("RS256", "sixth"), ("EdDSA", "fifth")]);
    let mut visitor = Visitor::default();
    let done = site.sign_in(&mut visitor, "company");
    assert_eq!((done.status, site.me(&visitor).status), (200, 200), "{done:?}");
    // The next one comes within the same minute.
    provider.set_up(&site, &CLIENT, &[("RS256", "seventh")]);
    let mut visitor = Visitor::default();
    let early = site.sign_in(&mut visitor, "company");
    refused(&site, &visitor, &early, 403, "sign_in_refused", "a key that the issuer does not list");
    site.end();
}

#[test]
fn a_callback_counts_once_and_only_for_its_own_sign_in() {
    let Some((provider, site)) = start() else { return };
    provider.set_up(&site, &[("flowcell", "RS256"), ("other", "RS256")], &KEY);
    let both = provider.issuer("company", "flowcell", USERS) + &provider.issuer("second", "other", USERS);
    site.write(&both);

    let (mut visitor, mut stranger) = (Visitor::default(), Visitor::default());
    let callback = site.to_callback(&mut visitor, "company");
    let without = stranger.open(&callback);
    refused(&site, &stranger, &without, 400, "sign_in_state", "begun no sign-in");
    site.to_callback(&mut stranger, "company");
    let swapped = stranger.open(&callback);
    refused(&site, &stranger, &swapped, 400, "sign_in_state", "belongs to another sign-in");
    let wrong = visitor.open(&with_query(&callback, "state", "made-up"));
    refused(&site, &visitor, &wrong, 400, "sign_in_state", "belongs to another sign-in");
    // None of these has used the sign-in up, or asked the issuer.
    assert_eq!((visitor.open(&callback).status, site.me(&visitor).status), (200, 200));

    // The same cookie and the same answer of the issuer, again.
    let mut visitor = Visitor::default();
    let callback = site.to_callback(&mut visitor, "company");
    let port = site.address.port();
    let cookies = visitor.cookies_for(port, "/console/sign-in/callback", true);
    assert_eq!(visitor.open(&callback).status, 200);
    let path = &callback[site.origin().len()..];
    let again = ask(site.address, "GET", path, &[("Cookie", &cookies)], "");
    refused(&site, &Visitor::default(), &again, 400, "sign_in_state", "was finished before");

    // A code that the issuer made for another client, and another address of the issuer.
    let (mut visitor, mut other) = (Visitor::default(), Visitor::default());
    let callback = site.to_callback(&mut visitor, "company");
    let code = query(&site.to_callback(&mut other, "second"), "code");
    let foreign = visitor.open(&with_query(&callback, "code", &code));
    refused(&site, &visitor, &foreign, 403, "sign_in_refused", "belongs to another client");
    let callback = site.to_callback(&mut visitor, "company");
    let mixed = visitor.open(&with_query(&callback, "iss", "https://evil.test"));
    refused(&site, &visitor, &mixed, 400, "sign_in_state", "does not come from the issuer");
    site.end();
}

#[test]
fn claims_decide_and_are_looked_at_again_in_each_sign_in() {
    let Some((provider, site)) = start() else { return };
    let admins = "{ when: { groups: admins }, tenant: beta, scopes: [run:read, admin] }";
    let rules = format!("{admins}, {USERS}");
    site.write(&provider.issuer("company", "flowcell", &rules));
    let tenant = |visitor: &Visitor| site.me(visitor).json()["tenant"].clone();
    let (mut ada, mut bob, mut eve) = (Visitor::default(), Visitor::default(), Visitor::default());
    site.sign_in(&mut ada, "company");
    provider.seat("bob");
    site.sign_in(&mut bob, "company");
    assert_eq!((tenant(&ada), tenant(&bob)), (json!("beta"), json!("acme")));
    provider.seat("eve");
    let answer = site.sign_in(&mut eve, "company");
    refused(&site, &eve, &answer, 403, "sign_in_refused", "no value of `groups` fits");
    assert!(!answer.body.contains("others") && !answer.body.contains("admins"), "{}", answer.body);
    provider.seat("nobody");
    let answer = site.sign_in(&mut Visitor::default(), "company");
    refused(&site, &eve, &answer, 403, "sign_in_refused", "access_denied");

    // Other rights end the earlier session, and so does a rule that is gone.
    site.write(&provider.issuer("company", "flowcell", USERS));
    assert_eq!(tenant(&ada), "beta", "a session keeps its rights until the next sign-in of its account");
    let mut later = Visitor::default();
    provider.seat("ada");
    site.sign_in(&mut later, "company");
    assert_eq!((tenant(&later), site.me(&ada).status), (json!("acme"), 401));
    site.write(&provider.issuer("company", "flowcell", &USERS.replace("groups: users", "groups: owners")));
    let answer = site.sign_in(&mut ada, "company");
    refused(&site, &later, &answer, 403, "sign_in_refused", "no value of `groups` fits");

    // A mail address counts once the issuer has verified it.
    let mail = USERS.replace("groups: users", "email: bob@acme.test");
    site.write(&provider.issuer("company", "flowcell", &mail));
    provider.seat("bob");
    let mut again = Visitor::default();
    let answer = site.sign_in(&mut again, "company");
    refused(&site, &again, &answer, 403, "sign_in_refused", "has not verified the mail address");
    site.end();
}

#[test]
fn accounts_and_tenants_end() {
    let Some((provider, site)) = start() else { return };
    let mut visitor = Visitor::default();
    let sign_in = |visitor: &mut Visitor| site.sign_in(visitor, "company");
    sign_in(&mut visitor);
    let id = site.run(&["account", "list", "--tenant", "acme"])[0]["id"].as_str().unwrap().to_owned();
    site.run(&["account", "disable", &id]);
    assert_eq!(site.me(&visitor).status, 401);
    let answer = sign_in(&mut visitor);
    refused(&site, &visitor, &answer, 403, "account_disabled", "oidc:company:ada");
    site.run(&["account", "enable", &id]);
    assert_eq!(site.me(&visitor).status, 401, "a session that has ended does not come back");
    assert_eq!((sign_in(&mut visitor).status, site.me(&visitor).status), (200, 200));
    site.run(&["account", "delete", &id]);
    assert_eq!((site.me(&visitor).status, site.run(&["account", "list"])), (401, json!([])));

    site.run(&["tenant", "disable", "acme"]);
    let answer = sign_in(&mut visitor);
    refused(&site, &visitor, &answer, 403, "sign_in_refused", "the tenant `acme` of this account is disabled");
    site.run(&["tenant", "enable", "acme"]);
    site.write(&provider.issuer("company", "flowcell", &USERS.replace("acme", "gone")));
    let answer = sign_in(&mut visitor);
    refused(&site, &visitor, &answer, 403, "sign_in_refused", "the tenant `gone` of this account does not exist");
    let log = site.run(&["audit", "list", "acme"]);
    let outcomes = |action: &str| -> Vec<Value> {
        let all = log.as_array().unwrap().iter().filter(|entry| entry["action"] == action);
        all.map(|entry| entry["outcome"].clone()).collect()
    };
    assert_eq!(outcomes("account.sign-in"), ["done", "refused", "done"], "{log}");
    assert_eq!([outcomes("account.disable").len(), outcomes("account.delete").len()], [1, 1], "{log}");
    site.end();
}

#[test]
fn the_oldest_session_of_an_account_gives_way() {
    let Some((_provider, site)) = start() else { return };
    let mut visitors: Vec<Visitor> = (0..21).map(|_| Visitor::default()).collect();
    for visitor in &mut visitors {
        assert_eq!(site.sign_in(visitor, "company").status, 200);
    }
    let valid: Vec<bool> = visitors.iter().map(|visitor| site.me(visitor).status == 200).collect();
    assert_eq!(valid, [vec![false], vec![true; 20]].concat());
    assert_eq!(site.run(&["account", "list"])[0]["sessions"], 20);
    site.end();
}

#[test]
fn an_issuer_that_is_away_is_reported() {
    let Some((mut provider, site)) = start() else { return };
    let mut visitor = Visitor::default();
    let callback = site.to_callback(&mut visitor, "company");
    provider.stop();
    let answer = visitor.open(&callback);
    refused(&site, &visitor, &answer, 503, "issuer_unavailable", "cannot connect to");
    // The earlier answers of the issuer are still known, and are not after a reload.
    assert_eq!(visitor.go(&site.url("/console/sign-in/company")).status, 303);
    site.write(&provider.issuer("company", "flowcell", USERS));
    let answer = visitor.go(&site.url("/console/sign-in/company"));
    refused(&site, &visitor, &answer, 503, "issuer_unavailable", "log in by a link or a token");
    assert_eq!(visitor.go(&site.url("/console/login")).status, 200);
    site.end();
}

#[test]
fn a_person_signs_in_with_a_browser_from_another_site() {
    if !has_program("chromium") || !has_program("chromedriver") {
        return;
    }
    let Some((_provider, site)) = start() else { return };
    let browser = Browser::start();
    // This name is another site than the address of the issuer.
    let home = format!("http://flowcell.localhost:{}/console", site.address.port());
    browser.open(&format!("{home}/login?next=/console/runs"));
    browser.wait_until("document.title === 'Log in · Flowcell'");
    browser.execute("document.querySelector('a.button').click()", &json!([]));
    browser.wait_until("document.title === 'Runs · Flowcell' && location.pathname === '/console/runs'");
    assert_eq!(browser.execute("return document.cookie", &json!([])), json!(""), "no script reads the session");
    browser.enter(".logout button");
    browser.wait_until("document.title === 'Log in · Flowcell'");
    browser.open(&format!("{home}/runs"));
    browser.wait_until("document.title === 'Log in · Flowcell'");
    drop(browser);
    site.end();
}
