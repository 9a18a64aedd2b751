//! Requests to token endpoints of OAuth 2.

use std::time::Duration;

use base64::{Engine as _, engine::general_purpose::STANDARD};
use flowcell_contract::{Failure, Json, Tenant, code as codes, shell::shell_word, text::revealed};
use hyper::{
    HeaderMap, Method, StatusCode,
    header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HeaderValue, USER_AGENT},
};
use tokio::time::{Instant, timeout_at};
use url::form_urlencoded::Serializer;
use zeroize::Zeroizing;

use super::{
    Edition,
    settings::{ClientAuth, Grant, MIN_SECRET_BYTES, OAuth2Settings, SecretMembers, parse_url},
};
use crate::{
    client::{Answer, Client, Message, Progress},
    code,
    egress::{Destination, OriginGrants},
    preview::cut,
    redaction::{Redaction, SearchBudget, WITHHELD},
    secret::{Key, check_header},
};

/// Time limit of a request for a token. It is less than the lease of the renewal.
pub(super) const TIME_LIMIT: Duration = Duration::from_secs(10);
/// Maximum bytes of an answer of a token endpoint.
const MAX_ANSWER: usize = 64 * 1024;
/// Maximum characters of the reason that a token endpoint gives.
const MAX_REASON: usize = 200;
/// Maximum bytes of a code.
const MAX_CODE: usize = 4_096;
/// Maximum characters of the error of an authorization server.
const MAX_ERROR: usize = 64;
/// The member of a failure's details with the status of the answer. Failures without an answer have none.
pub(super) const STATUS: &str = "status";
/// The members with the seconds after which a refresh token ends, as GitHub and LinkedIn, Keycloak, and Intuit name them.
const REFRESH_LASTS: [&str; 3] = ["refresh_token_expires_in", "refresh_expires_in", "x_refresh_token_expires_in"];

/// A request for a token.
pub(super) struct Asking<'a> {
    pub(super) client: &'a Client,
    pub(super) tenant: &'a Tenant,
    pub(super) name: &'a str,
    pub(super) settings: &'a OAuth2Settings,
    pub(super) secrets: &'a SecretMembers,
    pub(super) now: u64,
}

/// The right to a token.
pub(super) enum Proof<'a> {
    /// The client itself.
    Client,
    /// A refresh token.
    Refresh(Zeroizing<String>),
    /// A code, by which a person has authorized the client.
    Code(&'a Authorization),
    /// None: no person has authorized the client.
    Missing,
}

/// An access token.
#[derive(Clone, PartialEq)]
pub struct Token {
    /// The token itself.
    pub access: Zeroizing<String>,
    /// The token that gets the next one.
    pub refresh: Option<Zeroizing<String>>,
    /// The time in milliseconds since 1970 at which the host got it. `None`: an earlier version got it.
    pub issued: Option<u64>,
    /// The time in milliseconds since 1970 at which the host renews it. `None`: when a server refuses it.
    pub renew_at: Option<u64>,
    /// The time in which the host can renew it without a person. `None`: it has no end, or the server has named none.
    pub lifetime: Option<Lifetime>,
}

/// A time that a server has named, in milliseconds since 1970.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lifetime {
    /// Its begin.
    pub since: u64,
    /// Its end.
    pub ends: u64,
}

/// The answer of an authorization server to a person's consent.
pub struct Authorization {
    /// The code.
    pub code: Zeroizing<String>,
    /// The verifier of PKCE.
    pub verifier: Zeroizing<String>,
    /// The address to which the server sent the code.
    pub redirect_uri: String,
    /// The edition of the credential that was authorized. `None`: the present one.
    pub edition: Option<Edition>,
}

impl OAuth2Settings {
    /// Returns the URL at which a person authorizes the client. The server sends `state` back with the code, and takes the code
    /// only with the verifier of the challenge (RFC 7636, S256). Keeps the query of `authorizeUrl`. Fails if that query has a
    /// parameter that the host adds, or if the credential has another grant.
    pub fn authorize_at(&self, redirect_uri: &str, state: &str, challenge: &str) -> Result<String, String> {
        let url = self.authorize_url.as_deref().filter(|_| self.grant == Grant::AuthorizationCode);
        let url = url.ok_or("only a credential with the grant `authorization_code` is connected by a person")?;
        // An older version stored credentials without this check.
        self.check_authorize_query()?;
        let mut url = parse_url(url)?;
        let own = [
            ("response_type", "code"),
            ("client_id", &*self.client_id),
            ("redirect_uri", redirect_uri),
            ("state", state),
            ("code_challenge", challenge),
            ("code_challenge_method", "S256"),
        ];
        let scope = Some(("scope", &*self.scope)).filter(|(_, scope)| !scope.is_empty());
        let params = self.params.iter().map(|(name, value)| (name.as_str(), value.as_str()));
        url.query_pairs_mut().extend_pairs(own.into_iter().chain(scope).chain(params));
        Ok(url.into())
    }

    /// Checks, before a person consents, that the host may send the code to the token endpoint, and that the person reads
    /// the question over TLS. The error is a part of a sentence.
    pub fn check_endpoints(&self, client: &Client) -> Result<(), String> {
        token_endpoint(client, self)
            .map(drop)
            .map_err(|failure| format!("the host does not send the code to `tokenUrl`: {}", failure.message))?;
        let Some(url) = &self.authorize_url else { return Ok(()) };
        match parse_url(url)?.scheme() {
            // The browser opens it, so it may have an address that the host itself may not reach.
            "https" => Ok(()),
            _ => admitted(client, url).map(drop).map_err(|failure| format!("`authorizeUrl`: {}", failure.message)),
        }
    }
}

/// Returns the text of an error that an authorization server sends a browser back with: its code, and its description.
pub fn refusal_text(error: &str, description: Option<&str>) -> String {
    let error: String = error.chars().filter(char::is_ascii_graphic).take(MAX_ERROR).collect();
    let plain: String = description.unwrap_or_default().chars().filter(|letter| !letter.is_control()).collect();
    match cut(plain.trim(), MAX_REASON) {
        reason if reason.is_empty() => error,
        reason => format!("{error}: {}", revealed(&reason)),
    }
}

/// Reads the target of the request by which a browser returns from an authorization server. Returns the code, or the
/// error of the server. `None`: the request is not the answer to the authorization with this state.
pub fn read_redirect(target: &str, path: &str, state: &str) -> Option<Result<String, String>> {
    let (at, query) = target.split_once('?')?;
    let parameter = |wanted: &str| {
        let mut pairs = url::form_urlencoded::parse(query.as_bytes()).filter(|(name, _)| name == wanted);
        // A repeated parameter has no clear meaning.
        let first = pairs.next()?.1.into_owned();
        pairs.next().is_none().then_some(first)
    };
    if at != path || parameter("state").as_deref() != Some(state) {
        return None;
    }
    if let Some(error) = parameter("error") {
        return Some(Err(refusal_text(&error, parameter("error_description").as_deref())));
    }
    parameter("code").filter(|code| (1..=MAX_CODE).contains(&code.len())).map(Ok)
}

impl<'a> Proof<'a> {
    /// Returns the proof for the renewal of a token.
    pub(super) fn of(settings: &OAuth2Settings, secrets: &SecretMembers, earlier: Option<&'a String>) -> Proof<'a> {
        let refresh = earlier.map(String::as_str).or_else(|| secrets.get("refreshToken"));
        match (settings.grant, refresh) {
            (Grant::ClientCredentials, _) => Proof::Client,
            (_, Some(refresh)) => Proof::Refresh(Zeroizing::new(refresh.to_owned())),
            (_, None) => Proof::Missing,
        }
    }
}

/// Asks the token endpoint for a token.
pub(super) async fn request(asking: &Asking<'_>, proof: Proof<'_>) -> Result<Token, Failure> {
    let Asking { client, tenant, name, settings, secrets, now } = asking;
    let to = token_endpoint(client, settings).map_err(|cause| caused(name, &cause))?;
    let (message, sent) = message(settings, secrets, &proof).ok_or_else(|| not_connected(name))?;
    let until = Instant::now() + TIME_LIMIT;
    let message = Message { until: Some(until), ..message };
    let keys = secrets.values().cloned().chain(sent).map(Key::unchecked);
    let redaction = Redaction::new(keys, SearchBudget::for_call(tenant));
    let mut progress = Progress::Unsent;
    let exchange = async {
        let answer = client.send(tenant, &to, message, &mut progress).await?;
        let status = answer.status;
        Ok((status, read(answer).await?))
    };
    let late = || Failure::retryable(code::TIMEOUT, format!("{} did not answer in time", to.origin()));
    let answered = timeout_at(until, exchange).await.unwrap_or_else(|_| Err(late()));
    let (status, body) = match answered {
        Ok(answered) => answered,
        Err(cause) => {
            let shown = Failure { message: WITHHELD.to_owned(), details: None, ..Failure::clone(&cause) };
            return Err(caused(name, &timeout_at(until, redaction.failure(cause)).await.unwrap_or(shown)));
        }
    };
    match token(&body, *now) {
        Some(Ok(token)) if status.is_success() => Ok(token),
        Some(Err(why)) if status.is_success() => {
            let details = vec![(STATUS, Json::from(u64::from(status.as_u16())))];
            Err(failure(name, &format!("{} gave {why}", to.origin()), Some(details)))
        }
        _ => {
            let said =
                timeout_at(until, Refusal::read(&body, &redaction)).await.unwrap_or_else(|_| Refusal::withheld());
            Err(refused(name, &to.origin().to_string(), status, &said, &proof))
        }
    }
}

/// Returns the token endpoint, if the host may send secrets to it.
fn token_endpoint(client: &Client, settings: &OAuth2Settings) -> Result<Destination, Failure> {
    admitted(client, &settings.token_url)
}

/// Returns the destination of a URL, if the host may send secrets to it.
fn admitted(client: &Client, url: &str) -> Result<Destination, Failure> {
    let wrong = |why: String| Failure::new(codes::INVALID_INPUT, why);
    let url = parse_url(url).map_err(wrong)?;
    let origin = Json::from(url.origin().ascii_serialization());
    let grants = OriginGrants::parse(&origin).map_err(wrong)?;
    let to = client.egress().admit(url.as_str(), &grants)?;
    match client.egress().may_receive_secrets(&to) {
        true => Ok(to),
        false => {
            Err(wrong(format!("{} has neither `https` nor a private address that the operator allows", to.origin())))
        }
    }
}

/// Returns a message to the token endpoint, and the secrets in it. `None`: there is no right to a token.
fn message(
    settings: &OAuth2Settings,
    secrets: &SecretMembers,
    proof: &Proof<'_>,
) -> Option<(Message, Vec<Zeroizing<String>>)> {
    let mut form = Serializer::new(String::new());
    let mut sent = Vec::new();
    match proof {
        Proof::Client => {
            form.append_pair("grant_type", "client_credentials");
        }
        Proof::Refresh(refresh) => {
            form.append_pair("grant_type", "refresh_token").append_pair("refresh_token", refresh);
            sent.push(refresh.clone());
        }
        Proof::Code(Authorization { code, verifier, redirect_uri, .. }) => {
            form.append_pair("grant_type", "authorization_code").append_pair("code", code);
            form.append_pair("code_verifier", verifier).append_pair("redirect_uri", redirect_uri);
            sent.extend([code.clone(), verifier.clone()]);
        }
        Proof::Missing => return None,
    }
    // The scope of a code is that of its authorization.
    if !settings.scope.is_empty() && !matches!(proof, Proof::Code(_)) {
        form.append_pair("scope", &settings.scope);
    }
    form.extend_pairs(&settings.params);
    let mut headers = HeaderMap::new();
    let secret = secrets.get("clientSecret").unwrap_or_default();
    match settings.client_auth {
        ClientAuth::Basic => {
            let encoded = |text: &str| url::form_urlencoded::byte_serialize(text.as_bytes()).collect::<String>();
            let login = Zeroizing::new(format!("{}:{}", encoded(&settings.client_id), encoded(secret)));
            let mut value = HeaderValue::from_str(&format!("Basic {}", STANDARD.encode(&*login))).ok()?;
            value.set_sensitive(true);
            headers.insert(AUTHORIZATION, value);
        }
        ClientAuth::Post => {
            form.append_pair("client_id", &settings.client_id).append_pair("client_secret", secret);
        }
        ClientAuth::None => {
            form.append_pair("client_id", &settings.client_id);
        }
    }
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/x-www-form-urlencoded"));
    headers.insert(ACCEPT, HeaderValue::from_static("application/json"));
    headers.insert(USER_AGENT, HeaderValue::from_static(concat!("flowcell/", env!("CARGO_PKG_VERSION"))));
    let body = form.finish().into_bytes().into();
    Some((Message { method: Method::POST, headers, body, reuse: false, run: None, until: None }, sent))
}

async fn read(answer: Answer) -> Result<Vec<u8>, Failure> {
    let (mut body, mut bytes) = (answer.body, Vec::new());
    while let Some(piece) = body.next().await? {
        bytes.extend_from_slice(&piece);
        if bytes.len() > MAX_ANSWER {
            return Err(Failure::new(code::PROTOCOL, format!("the answer has more than {MAX_ANSWER} bytes")));
        }
    }
    Ok(bytes)
}

/// Reads the token in an answer at the time `now`. `None`: the answer has an error, or no token. The error is a part of a
/// sentence.
pub(super) fn token(body: &[u8], now: u64) -> Option<Result<Token, String>> {
    let answer: serde_json::Value = match serde_json::from_slice(body) {
        Ok(answer) => answer,
        Err(_) => return Some(Err("an answer that is not JSON".into())),
    };
    let access = match answer.get("access_token").and_then(|access| access.as_str()) {
        Some(access) => access,
        None if answer.get("error").is_some() => return None,
        None => return Some(Err("an answer without `access_token`".into())),
    };
    if access.is_empty() || check_header(access).is_err() {
        return Some(Err("a token that does not fit into a header".into()));
    }
    if access.len() < MIN_SECRET_BYTES {
        return Some(Err(format!(
            "a token of fewer than {MIN_SECRET_BYTES} bytes, which the host could not redact in answers"
        )));
    }
    let kind = answer.get("token_type").and_then(|kind| kind.as_str()).unwrap_or("bearer");
    if ["mac", "dpop", "pop"].iter().any(|other| kind.eq_ignore_ascii_case(other)) {
        return Some(Err("a token of a type that the host cannot send".into()));
    }
    let refresh =
        answer.get("refresh_token").and_then(|refresh| refresh.as_str()).filter(|refresh| !refresh.is_empty());
    let seconds = |member: &str| {
        let lasts = answer.get(member)?;
        lasts.as_u64().or_else(|| lasts.as_str()?.parse().ok())
    };
    // The end of a refresh token has no standard name. 0 means that it has no end.
    let refresh_lasts = REFRESH_LASTS.iter().find_map(|member| seconds(member)).filter(|lasts| *lasts > 0);
    let refresh = refresh.map(|refresh| (refresh.to_owned(), refresh_lasts));
    Some(Ok(Token::new(access.to_owned(), refresh, seconds("expires_in"), now)))
}

/// The texts of a token endpoint that refuses, with secrets redacted.
struct Refusal {
    error: Option<String>,
    reason: Option<String>,
}

impl Refusal {
    async fn read(body: &[u8], redaction: &Redaction) -> Refusal {
        let answer: serde_json::Value = serde_json::from_slice(body).unwrap_or_default();
        let (error, reason) = (answer.get("error"), answer.get("error_description"));
        Refusal { error: Refusal::text(error, redaction).await, reason: Refusal::text(reason, redaction).await }
    }

    async fn text(text: Option<&serde_json::Value>, redaction: &Redaction) -> Option<String> {
        let hidden = redaction.text(text?.as_str()?).await;
        let plain: String = hidden.chars().filter(|letter| !letter.is_control()).collect();
        Some(cut(&plain, MAX_REASON).into_owned()).filter(|text| !text.is_empty())
    }

    /// Returns the texts of an endpoint whose answer could not be searched in time.
    fn withheld() -> Refusal {
        Refusal { error: Some(WITHHELD.to_owned()), reason: None }
    }
}

/// Returns the failure for a refusal of a token endpoint.
fn refused(name: &str, origin: &str, status: StatusCode, said: &Refusal, proof: &Proof<'_>) -> Failure {
    let Refusal { error, reason } = said;
    let why = match (error, reason) {
        (Some(error), Some(reason)) => format!(" ({error}: {reason})"),
        (Some(error), None) => format!(" ({error})"),
        _ => String::new(),
    };
    let help = match (proof, error.as_deref()) {
        (Proof::Refresh(_), Some("invalid_grant")) => {
            let word = shell_word(name);
            format!("; the refresh token is no longer valid: `flowcell credential connect {word}`, or set it again")
        }
        _ => String::new(),
    };
    let is_down = status.is_server_error() || status == StatusCode::TOO_MANY_REQUESTS;
    let message = format!("{origin} answered {}{why}{help}", status.as_u16());
    let mut details = vec![(STATUS, Json::from(u64::from(status.as_u16())))];
    details.extend(error.as_deref().map(|error| ("error", Json::from(error))));
    Failure { retryable: is_down, ..failure(name, &message, Some(details)) }
}

/// Returns the failure for a request that got no answer.
pub(super) fn caused(name: &str, cause: &Failure) -> Failure {
    let details = vec![("code", Json::from(cause.code.as_str()))];
    Failure { retryable: cause.retryable, ..failure(name, &cause.message, Some(details)) }
}

fn failure(name: &str, why: &str, more: Option<Vec<(&'static str, Json)>>) -> Failure {
    let details = [("credential", Json::from(name))].into_iter().chain(more.into_iter().flatten());
    let message = format!("the credential `{name}` has no valid token: {why}");
    Failure { details: Some(Json::object(details)), ..Failure::new(code::CREDENTIAL_REFRESH_FAILED, message) }
}

fn not_connected(name: &str) -> Failure {
    let word = shell_word(name);
    let why = format!("the credential `{name}` is not connected; connect it with `flowcell credential connect {word}`");
    Failure::new(codes::DENIED, why)
}
