//! A person sets a credential in the console and connects it, with the real `oidc-provider` as authorization server.

use serde_json::json;

use super::{browser::Browser, run};
use crate::{
    kit::has_program,
    server::{
        process::{serve, stop},
        sign_in::site::{Provider, SECRET},
    },
};

#[test]
fn a_person_sets_a_credential_and_connects_it_from_another_site() {
    if !has_program("chromium") || !has_program("chromedriver") {
        return;
    }
    let Some(provider) = Provider::start() else { return };
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    run(folder, &["tenant", "create", "acme"]);
    let (serving, address) = serve(folder, &["--allow-private", &provider.address.to_string()]);
    let link = run(folder, &["console", "--tenant", "acme"]);
    // This name is another site than the address of the authorization server.
    let home = link.split_once("/login").unwrap().0.to_owned();
    assert_eq!(home, format!("http://flowcell.localhost:{}/console", address.port()));
    let client = json!({
        "client_id": "flow:cell", "client_secret": SECRET, "redirect_uris": [format!("{home}/connect/callback")],
        "grant_types": ["authorization_code", "refresh_token"],
    });
    let key = json!({ "alg": "RS256", "kid": "first" });
    provider.tell("/test/setup", &json!({ "clients": [client], "keys": [key], "people": { "ada": {} } }));
    provider.seat("ada");

    let browser = Browser::start();
    browser.open(&link);
    browser.wait_until("document.title === 'Home · Flowcell'");
    browser.open(&format!("{home}/credentials?kind=oauth2"));
    let origin = provider.origin();
    for (field, text) in [
        ("name", "drive"),
        ("setting-tokenUrl", &*format!("{origin}/token")),
        ("setting-authorizeUrl", &*format!("{origin}/auth")),
        ("setting-clientId", "flow:cell"),
        ("setting-scope", "openid offline_access"),
        ("setting-params", "prompt=login consent"),
        ("secret-clientSecret", SECRET),
        ("for", &*origin),
    ] {
        browser.write(&format!("#{field}"), text);
    }
    browser.enter("#set form button");
    browser.wait_until("document.title === 'drive · Flowcell' && document.body.textContent.includes('not connected')");
    browser.enter("form[action$='/connect'] button");
    browser.wait_until(
        "document.title === 'drive · Flowcell' && location.pathname === '/console/credentials/drive' && \
         document.body.textContent.includes('connected, the token is renewed')",
    );
    assert_eq!(browser.execute("return location.search + document.cookie", &json!([])), json!(""));
    assert!(!browser.execute("return document.body.innerHTML", &json!([])).to_string().contains("secret/with"));
    // The authorization server has no icon.
    let icon = format!("{origin}/favicon.ico");
    let errors: Vec<_> = browser.errors().into_iter().filter(|error| !error.contains(&icon)).collect();
    assert_eq!(errors, Vec::<String>::new());
    let shown = run(folder, &["credential", "show", "drive", "--tenant", "acme"]);
    assert!(shown.contains(r#""exists": true"#) || shown.contains(r#""exists":true"#), "{shown}");

    // A person who does not consent connects nothing, and reads why. The earlier token stays.
    provider.seat("mallory");
    browser.enter("form[action$='/connect'] button");
    browser.wait_until("document.title === 'Not connected · Flowcell'");
    browser.wait_until("document.querySelector('[role=alert]').textContent.includes('access_denied')");
    let log = run(folder, &["audit", "list", "acme"]);
    assert_eq!(log.matches("credential.connect").count(), 2, "{log}");
    drop(browser);
    assert_eq!(stop(serving), Some(0));
}
