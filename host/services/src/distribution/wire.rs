//! Requests to a host that the user names, and to the hosts that its answers name: redirects, token servers, upload
//! locations.

use std::net::IpAddr;

use bytes::Bytes;
use flowcell_contract::{Failure, Tenant, code as codes};
use hyper::{
    HeaderMap, Method, StatusCode,
    header::{ACCEPT_ENCODING, AUTHORIZATION, HeaderValue, LOCATION, USER_AGENT},
};
use url::{Host, Url};

use super::{EXCHANGE_TIMEOUT, MAX_REDIRECTS};
use crate::{
    client::{Answer, Body, Client, Message, Progress, encodings},
    code,
    egress::{AddressRange, Egress, OriginGrant, OriginGrants},
};

/// Access to the host that the user named, and to the public hosts that its answers name.
pub(super) struct Wire {
    /// The URL that the user named.
    home: Url,
    /// The client for the host of `home`. It may connect to private addresses.
    inside: Client,
    /// The client for all other hosts. It connects only to public addresses, and to those that the operator listed.
    outside: Client,
}

/// A request, and the maximum size of its answer.
#[derive(Clone)]
pub(super) struct Ask {
    pub(super) method: Method,
    pub(super) url: String,
    pub(super) headers: HeaderMap,
    pub(super) body: Bytes,
    /// Maximum bytes of the answer.
    pub(super) most: usize,
}

/// A complete answer.
pub(super) struct Reply {
    pub(super) status: StatusCode,
    pub(super) headers: HeaderMap,
    pub(super) body: Vec<u8>,
}

impl Ask {
    pub(super) fn new(method: Method, url: &str, most: usize) -> Ask {
        Ask { method, url: url.to_owned(), headers: HeaderMap::new(), body: Bytes::new(), most }
    }

    pub(super) fn get(url: &str, most: usize) -> Ask {
        Ask::new(Method::GET, url, most)
    }
}

impl Wire {
    /// Creates access to the host of this URL.
    pub(super) fn new(egress: &Egress, url: &str) -> Result<Wire, Failure> {
        let home = parse(url)?;
        let anywhere: Vec<AddressRange> = ["0.0.0.0/0", "::/0"].iter().filter_map(|range| range.parse().ok()).collect();
        let inside = Client::new(egress.clone().with_private(&anywhere));
        Ok(Wire { home, inside, outside: Client::new(egress.clone()) })
    }

    /// Returns true if a URL has the origin of the URL that the user named. The host may send the credentials to that
    /// origin. It sends them to another server only if that is a known or configured token server.
    pub(super) fn is_home(&self, url: &str) -> bool {
        Url::parse(url).is_ok_and(|url| url.origin() == self.home.origin())
    }

    /// Sends a request. Follows redirects of `GET` and `HEAD`. Fails with `http_timeout` after [`EXCHANGE_TIMEOUT`].
    pub(super) async fn ask(&self, ask: Ask) -> Result<Reply, Failure> {
        let exchange = self.follow(ask);
        tokio::time::timeout(EXCHANGE_TIMEOUT, exchange).await.unwrap_or_else(|_| {
            let seconds = EXCHANGE_TIMEOUT.as_secs();
            Err(Failure::retryable(
                code::TIMEOUT,
                format!("{} did not answer within {seconds} s", without_secrets(self.home.as_str())),
            ))
        })
    }

    async fn follow(&self, mut ask: Ask) -> Result<Reply, Failure> {
        for _ in 0..=MAX_REDIRECTS {
            let answer = self.exchange(&ask).await?;
            let reads = matches!(ask.method, Method::GET | Method::HEAD);
            let to = answer.headers.get(LOCATION).and_then(|to| to.to_str().ok());
            match to.filter(|_| reads && answer.status.is_redirection()) {
                Some(to) => {
                    let to = parse(&ask.url)?
                        .join(to)
                        .map_err(|why| refusal(&ask.url, &format!("redirects to an invalid URL: {why}")))?;
                    if !self.is_home(to.as_str()) {
                        ask.headers.remove(AUTHORIZATION);
                    }
                    ask.url = to.into();
                }
                None => {
                    let (status, headers) = (answer.status, answer.headers);
                    let body = read_whole(answer.body, ask.most, &ask.url).await?;
                    if status == StatusCode::OK && !body.is_empty() && !encodings(&headers).is_empty() {
                        return Err(refusal(&ask.url, "encodes its answer, which the host did not request"));
                    }
                    return Ok(Reply { status, headers, body });
                }
            }
        }
        Err(refusal(self.home.as_str(), &format!("redirects more than {MAX_REDIRECTS} times")))
    }

    async fn exchange(&self, ask: &Ask) -> Result<Answer, Failure> {
        let url = parse(&ask.url)?;
        let client = if url.host() == self.home.host() { &self.inside } else { &self.outside };
        let wrong = |why: String| Failure::new(codes::INVALID_INPUT, why);
        let grant: OriginGrant = url.origin().ascii_serialization().parse().map_err(wrong)?;
        let to = client.egress().admit(&ask.url, &OriginGrants::from_iter([grant]))?;
        let mut headers = ask.headers.clone();
        headers.insert(ACCEPT_ENCODING, HeaderValue::from_static("identity"));
        headers.insert(USER_AGENT, HeaderValue::from_static(concat!("flowcell/", env!("CARGO_PKG_VERSION"))));
        let reuse = matches!(ask.method, Method::GET | Method::HEAD);
        let (method, body) = (ask.method.clone(), ask.body.clone());
        let message = Message { method, headers, body, reuse, run: None, until: None };
        client.send(&Tenant::local(), &to, message, &mut Progress::Unsent).await
    }
}

/// Parses a URL, which must be `https://`, or `http://` for this machine.
fn parse(url: &str) -> Result<Url, Failure> {
    let wrong = |why: String| Failure::new(codes::INVALID_INPUT, format!("{}: {why}", without_secrets(url)));
    let parsed = Url::parse(url).map_err(|error| wrong(format!("this is not a URL: {error}")))?;
    match parsed.scheme() {
        "https" => Ok(parsed),
        "http" if parsed.host().is_some_and(|host| is_this_machine(&host)) => Ok(parsed),
        "http" => Err(wrong("only this machine may be reached without TLS; use `https://`".into())),
        _ => Err(wrong("it must begin with `https://`".into())),
    }
}

/// Returns true if a host is this machine, judged without name resolution.
pub(super) fn is_this_machine(host: &Host<&str>) -> bool {
    match host {
        Host::Domain(name) => *name == "localhost",
        Host::Ipv4(address) => IpAddr::from(*address).is_loopback(),
        Host::Ipv6(address) => address.is_loopback(),
    }
}

async fn read_whole(mut body: Body, most: usize, url: &str) -> Result<Vec<u8>, Failure> {
    let mut bytes = Vec::new();
    while let Some(piece) = body.next().await? {
        if bytes.len() + piece.len() > most {
            let why = format!("{} sends more than {most} bytes", without_secrets(url));
            return Err(Failure::new(code::BODY_TOO_LARGE, why));
        }
        bytes.extend_from_slice(&piece);
    }
    Ok(bytes)
}

pub(super) fn refusal(url: &str, why: &str) -> Failure {
    Failure::new(code::REGISTRY_REFUSED, format!("{} {why}", without_secrets(url)))
}

/// Returns a URL without the parts that may be secret.
pub(super) fn without_secrets(url: &str) -> &str {
    url.split(['?', '#']).next().unwrap_or(url)
}
