//! The login of a command: the page on which a person lets `flowcell login` act for them.
//!
//! The command listens on a port of the person's machine, and the page sends the browser there with a one-time code. The request
//! names only the port, so no address of another machine can be asked for. The code is bound to the challenge of the command
//! (PKCE), and is made only after the person has agreed.

use axum::{
    http::StatusCode,
    response::{Html, IntoResponse, Response},
};
use flowcell_server::api::Refusal;
use maud::{Markup, html};
use serde_json::{Value, json};

use crate::{
    frame::{Failure, Page},
    parts::{text, time},
    sent::Form,
    sign_in::onward,
    visit::{KNOWN, Visit, escaped, is_only_operator},
};

/// The page.
const HERE: &str = "/console/login/command";
/// Length of a state and of a challenge: 256 bits in Base64 for URLs.
const RANDOM_CHARS: usize = 43;
/// Maximum length of the list of scopes.
const MAX_SCOPES_BYTES: usize = 256;

/// The request of a command.
#[derive(Debug, PartialEq)]
struct Asked {
    /// The port of the person's machine on which the command listens.
    port: u16,
    /// The text that the command gets back, so that it knows its own answer.
    state: String,
    challenge: String,
    /// The scopes, separated by commas. Empty: all of the person.
    scopes: String,
}

impl Asked {
    /// Reads the request from the members of a query or a form.
    fn read(member: impl Fn(&str) -> Option<String>) -> Result<Asked, Refusal> {
        let given = |name: &str| member(name).unwrap_or_default();
        let port = given("port").parse().ok().filter(|port: &u16| *port > 0);
        let (state, challenge, scopes) = (given("state"), given("challenge"), given("scopes"));
        let is_random = |text: &str| text.len() == RANDOM_CHARS && text.bytes().all(is_url_safe);
        let is_list = |text: &str| text.bytes().all(|byte| byte.is_ascii_lowercase() || b":,".contains(&byte));
        let fits = is_random(&state) && is_random(&challenge) && scopes.len() <= MAX_SCOPES_BYTES && is_list(&scopes);
        match port.filter(|_| fits) {
            Some(port) => Ok(Asked { port, state, challenge, scopes }),
            None => {
                let why =
                    "this is not the link of a login: begin it with `flowcell login`, and open its link as a whole";
                Err(Refusal::new(StatusCode::BAD_REQUEST, "bad_request", why))
            }
        }
    }

    /// Returns the address of the command on the person's machine, with its answer.
    fn address(&self, name: &str, value: &str) -> String {
        format!("http://127.0.0.1:{}/callback?state={}&{name}={}", self.port, self.state, escaped(value))
    }

    fn scopes(&self) -> Vec<&str> {
        self.scopes.split(',').filter(|scope| !scope.is_empty()).collect()
    }
}

fn is_url_safe(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"-_".contains(&byte)
}

/// Asks the person.
pub(crate) async fn show(visit: Visit) -> Result<Page, Failure> {
    let me = visit.get(KNOWN).await.map_err(|refusal| Failure::of(&visit, refusal))?;
    let asked = Asked::read(|name| visit.query(name))?;
    Ok(page(&me, &asked))
}

/// Makes the code if the person agrees, and sends the browser to the command.
pub(crate) async fn decide(visit: Visit, form: Form) -> Result<Response, Failure> {
    let failed = |refusal| Failure::of(&visit, refusal);
    visit.get(KNOWN).await.map_err(failed)?;
    let asked = Asked::read(|name| form.text(name).map(str::to_owned))?;
    if form.text("decision") != Some("allow") {
        let to = asked.address("error", "access_denied");
        return Ok(Html(onward(&to, "Refused", "The command was not logged in.").into_string()).into_response());
    }
    let body = json!({ "challenge": asked.challenge, "scopes": asked.scopes() });
    let made = visit.post("/v1/login-codes", &body).await.map_err(failed)?;
    let to = asked.address("code", text(&made.body, "code"));
    Ok(Html(onward(&to, "Allowed", "The command is being logged in.").into_string()).into_response())
}

fn page(me: &Value, asked: &Asked) -> Page {
    let main = match () {
        () if me["local"] == true => html! {
            p { "This server requires no tokens, so commands need no login. Name the server: " }
            pre { "flowcell api --server URL GET /v1/me" }
        },
        () if is_only_operator(me) => html! {
            p { "A token of the operators is logged in here, and belongs to no tenant. Give the command the token itself:" }
            pre { "flowcell login URL --token-file FILE" }
        },
        () => question(me, asked),
    };
    Page::bare(StatusCode::OK, "Log a command in", main)
}

fn question(me: &Value, asked: &Asked) -> Markup {
    let own: Vec<&str> = me["scopes"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    let scopes = if asked.scopes().is_empty() { own } else { asked.scopes() };
    html! {
        p { "A command on your machine, " code { "flowcell login" } ", asks to act for you on this server. Allow it only if you have just begun it." }
        dl .facts {
            dt { "Tenant" } dd { (text(me, "tenant")) }
            @if let Some(name) = me["token"]["name"].as_str() { dt { "Account" } dd { (name) } }
            dt { "Scopes" } dd { @for scope in scopes { code { (scope) } " " } }
            @if me["token"]["expires"].is_u64() { dt { "Until" } dd { (time(&me["token"]["expires"])) } }
            dt { "Command" } dd { "port " (asked.port) " of this machine" }
        }
        form method="post" action=(HERE) {
            input type="hidden" name="port" value=(asked.port);
            input type="hidden" name="state" value=(asked.state);
            input type="hidden" name="challenge" value=(asked.challenge);
            input type="hidden" name="scopes" value=(asked.scopes);
            button .primary name="decision" value="allow" { "Allow" }
            " "
            button name="decision" value="deny" { "Refuse" }
        }
        p .hint { "The command gets a token of its own with these rights. " code { "flowcell logout" } " revokes it." }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RANDOM: &str = "E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM";

    fn read(port: &str, state: &str, challenge: &str, scopes: &str) -> Option<Asked> {
        let member = |name: &str| {
            let found = [("port", port), ("state", state), ("challenge", challenge), ("scopes", scopes)];
            found.iter().find(|(own, _)| *own == name).map(|(_, value)| (*value).to_owned())
        };
        Asked::read(member).ok()
    }

    #[test]
    fn the_browser_is_sent_only_to_a_port_of_its_own_machine() {
        let asked = read("40123", RANDOM, RANDOM, "run:read,flow:read");
        let to = asked.map(|asked| asked.address("code", "fcc_a_b&x=y"));
        let expected = format!("http://127.0.0.1:40123/callback?state={RANDOM}&code=fcc_a_b%26x%3Dy");
        assert_eq!(to, Some(expected));
        for port in ["", "0", "65536", "-1", "80@evil.test", "80/../", "evil.test:80", " 80", "8 0", "80#"] {
            assert_eq!(read(port, RANDOM, RANDOM, ""), None, "{port}");
        }
        for odd in ["", "x", "\"><script>", &RANDOM.replace('-', "&"), &format!("{RANDOM}A"), &"\u{e9}".repeat(21)] {
            assert_eq!(read("80", odd, RANDOM, ""), None, "{odd}");
            assert_eq!(read("80", RANDOM, odd, ""), None, "{odd}");
        }
        for odd in ["run read", "<b>", "&code=x", &"a".repeat(257)] {
            assert_eq!(read("80", RANDOM, RANDOM, odd), None, "{odd}");
        }
    }
}
