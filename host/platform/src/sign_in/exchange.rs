//! Requests to issuers: bounded, timed, and without redirects.

use std::time::Duration;

use bytes::Bytes;
use flowcell_contract::Tenant;
use flowcell_services::{
    client::{Answer, Client, Message, Progress},
    egress::{OriginGrant, OriginGrants},
};
use http::{
    HeaderMap, Method, StatusCode,
    header::{ACCEPT, CONTENT_TYPE, HeaderValue, USER_AGENT},
};
use serde::de::DeserializeOwned;
use url::Url;

/// Maximum size of an answer of an issuer.
pub(super) const MAX_ANSWER_BYTES: usize = 1 << 20;
/// The time limit of an exchange with an issuer.
pub(super) const EXCHANGE_TIMEOUT: Duration = Duration::from_secs(10);

/// The answer of an issuer.
pub(super) struct Reply {
    pub(super) status: StatusCode,
    body: Vec<u8>,
}

impl Reply {
    /// Parses the body. The error does not repeat it.
    pub(super) fn json<T: DeserializeOwned>(&self) -> Result<T, String> {
        serde_json::from_slice(&self.body).map_err(|error| {
            let place = format!("line {}, column {}", error.line(), error.column());
            format!("its answer is not the expected JSON ({place})")
        })
    }
}

/// Reads a URL.
pub(super) async fn get(client: &Client, url: &Url) -> Result<Reply, String> {
    ask(client, Method::GET, url, HeaderMap::new(), Bytes::new()).await
}

/// Posts a form.
pub(super) async fn post_form(
    client: &Client,
    url: &Url,
    mut headers: HeaderMap,
    form: String,
) -> Result<Reply, String> {
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/x-www-form-urlencoded"));
    ask(client, Method::POST, url, headers, Bytes::from(form)).await
}

async fn ask(client: &Client, method: Method, url: &Url, mut headers: HeaderMap, body: Bytes) -> Result<Reply, String> {
    let grant: OriginGrant = url.origin().ascii_serialization().parse()?;
    let grants: OriginGrants = [grant].into_iter().collect();
    let to = client.egress().admit(url.as_str(), &grants).map_err(|failure| failure.message.to_string())?;
    headers.insert(ACCEPT, HeaderValue::from_static("application/json"));
    headers.insert(USER_AGENT, HeaderValue::from_static(concat!("flowcell/", env!("CARGO_PKG_VERSION"))));
    let message = Message { method, headers, body, reuse: false, run: None, until: None };
    let mut progress = Progress::Unsent;
    let exchange = async {
        let sent = client.send(&Tenant::local(), &to, message, &mut progress).await;
        read(sent.map_err(|failure| failure.message.to_string())?).await
    };
    let timed = tokio::time::timeout(EXCHANGE_TIMEOUT, exchange).await;
    timed.unwrap_or_else(|_| Err(format!("{} did not answer within {} s", to.origin(), EXCHANGE_TIMEOUT.as_secs())))
}

async fn read(mut answer: Answer) -> Result<Reply, String> {
    if answer.status.is_redirection() {
        return Err(format!("it answered {}, and redirects are not followed", answer.status.as_u16()));
    }
    let mut body = Vec::new();
    while let Some(piece) = answer.body.next().await.map_err(|failure| failure.message.to_string())? {
        if body.len() + piece.len() > MAX_ANSWER_BYTES {
            return Err(format!("its answer is larger than {} KiB", MAX_ANSWER_BYTES >> 10));
        }
        body.extend_from_slice(&piece);
    }
    Ok(Reply { status: answer.status, body })
}
