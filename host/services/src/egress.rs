//! The egress guard: the only code of the host that opens connections to HTTP servers.
//!
//! [`Egress::admit`] checks a URL against the grants, without any I/O, and returns a [`Destination`]. Only a
//! destination can be connected to. [`Egress::connect`] resolves its host once, and refuses unless **every** address is
//! public or listed by the operator. It connects to the addresses that it has just validated and does not resolve the
//! name again. TLS and the `Host` header still use the name. The guard does not follow redirects: a caller that follows
//! one calls `admit` again.
//!
//! | subject | limit |
//! |---|---|
//! | URL | 8 KiB |
//! | schemes | `https`; `http` where a grant says so |
//! | ports | the scheme's own; others where a grant names them |
//! | addresses in URLs | where a grant names them |
//! | user names in URLs | never |
//! | addresses of a name | all are validated, the first 8 are tried |
//! | connecting, including resolution and TLS | 10 s |
//!
//! Failures: `denied`, `invalid_input` (not a URL), `http_connect`, `http_timeout`, `http_tls`. After each of them it
//! is certain that nothing was sent.
//!
//! Only global unicast addresses are public. All others are private: loopback, private, link-local and shared networks,
//! multicast, reserved and documentation addresses, and service addresses of clouds. An IPv6 address that contains an
//! IPv4 address is judged by the IPv4 address. The operator lists exceptions in [`EgressPolicy::allow_private`]. The
//! application decides who the operator is: on the command line, only the person at the terminal can list exceptions.

mod address;
mod connect;
mod grant;
mod origin;
mod outbound;
mod policy;
mod resolve;

use std::{
    fmt,
    net::{IpAddr, SocketAddr},
    sync::Arc,
    time::Duration,
};

use flowcell_contract::{Failure, RunId, Tenant, code, shell::shell_word};
use tokio_rustls::TlsConnector;
pub use tokio_rustls::rustls::pki_types::CertificateDer;
use url::{Host, Url};

pub(crate) use self::outbound::{Outcome, Permit};
pub use self::{
    address::AddressRange,
    connect::{Connection, Wire},
    grant::{OriginGrant, OriginGrants, Reach},
    origin::{Origin, Scheme},
    outbound::{BreakerState, OnRefusal, OpenBreaker, Outbound, OutboundClock, OutboundLimits},
    resolve::{Resolve, SystemResolver},
};

/// The longest URL, in bytes.
pub const MAX_URL: usize = 8 * 1024;

/// Time limit of connecting, including resolution and TLS.
pub const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// Maximum number of addresses of one name that a connection tries.
const MAX_TRIED_ADDRESSES: usize = 8;

/// The operator's settings of the egress guard.
#[derive(Clone, Debug, Default)]
pub struct EgressPolicy {
    /// Private addresses that connections may reach.
    pub allow_private: Vec<AddressRange>,
    /// Additional trust roots, for servers whose certificates an organisation issues itself.
    pub extra_roots: Vec<CertificateDer<'static>>,
}

/// The egress guard. Clones share its settings and its resolver.
#[derive(Clone)]
pub struct Egress {
    allow_private: Arc<[AddressRange]>,
    resolver: Arc<dyn Resolve>,
    tls: TlsConnector,
    outbound: Option<Outbound>,
}

/// An admitted URL.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Destination {
    url: Url,
    origin: Origin,
}

impl Destination {
    /// Returns the checked, normalised URL to send. It has no fragment.
    pub fn url(&self) -> &Url {
        &self.url
    }

    /// Returns the origin of the URL.
    pub fn origin(&self) -> &Origin {
        &self.origin
    }

    /// Returns the same destination with one more parameter in the query. Fails if the URL is then too long. Origin and path
    /// stay, so the grants still cover it.
    pub(crate) fn with_parameter(&self, name: &str, value: &str) -> Result<Destination, Failure> {
        let mut url = self.url.clone();
        url.query_pairs_mut().append_pair(name, value);
        match url.as_str().len() > MAX_URL {
            true => Err(Failure::new(code::INVALID_INPUT, format!("the URL is longer than {MAX_URL} bytes"))),
            false => Ok(Destination { url, origin: self.origin.clone() }),
        }
    }
}

impl Egress {
    /// Creates a guard under this policy, with the system's resolver. Fails with `http_tls` if an extra root is not a
    /// valid certificate.
    pub fn new(policy: EgressPolicy) -> Result<Egress, Failure> {
        let tls = connect::tls_connector(&policy.extra_roots)?;
        let (allow_private, resolver) = (policy.allow_private.into(), Arc::new(SystemResolver));
        Ok(Egress { allow_private, resolver, tls, outbound: None })
    }

    /// Returns the same guard with another resolver.
    pub fn with_resolver(self, resolver: Arc<dyn Resolve>) -> Egress {
        Egress { resolver, ..self }
    }

    /// Returns the same guard with circuit breakers and limits of the rate. By default a guard has none.
    pub fn with_outbound(self, outbound: Outbound) -> Egress {
        Egress { outbound: Some(outbound), ..self }
    }

    /// Returns the same guard without circuit breakers and limits of the rate, for requests that belong to no tenant.
    pub fn without_outbound(self) -> Egress {
        Egress { outbound: None, ..self }
    }

    /// Sets the limits of a tenant's requests to each origin, if the guard has limits of the rate.
    pub fn set_limits(&self, tenant: &Tenant, limits: Option<OutboundLimits>) {
        if let Some(outbound) = &self.outbound {
            outbound.set_limits(tenant, limits);
        }
    }

    /// Sets the limits of the tenants that have none of their own, if the guard has limits of the rate.
    pub fn set_default_limits(&self, limits: OutboundLimits) {
        if let Some(outbound) = &self.outbound {
            outbound.set_default_limits(limits);
        }
    }

    /// Returns the circuit breakers that are not closed, of one tenant or of all.
    pub fn breakers(&self, only: Option<&Tenant>) -> Vec<OpenBreaker> {
        self.outbound.as_ref().map(|outbound| outbound.breakers(only)).unwrap_or_default()
    }

    /// Asks the circuit breaker and the limits of an origin to send a request. Waits for the request's turn. The failures
    /// are `circuit_open` and `rate_limited`, and after them nothing was sent. Returns `None` if the guard has neither.
    pub(crate) async fn begin(
        &self,
        tenant: &Tenant,
        to: &Destination,
        run: Option<&RunId>,
    ) -> Result<Option<Permit>, Failure> {
        match &self.outbound {
            Some(outbound) => outbound.begin(tenant, &to.origin, run).await.map(Some),
            None => Ok(None),
        }
    }

    /// Returns the same guard, which also permits connections to the private addresses in these ranges.
    pub fn with_private(self, ranges: &[AddressRange]) -> Egress {
        Egress { allow_private: self.allow_private.iter().chain(ranges).copied().collect(), ..self }
    }

    /// Returns the same guard with these certificates in PEM as additional trust roots. The error is part of a sentence.
    pub fn with_roots(self, pem: &[u8]) -> Result<Egress, String> {
        Ok(Egress { tls: connect::tls_connector_with(pem)?, ..self })
    }

    /// Checks a URL against the grants, without I/O. [`Egress::connect`] later checks the addresses of its host.
    pub fn admit(&self, url: &str, grants: &OriginGrants) -> Result<Destination, Failure> {
        if url.len() > MAX_URL {
            return Err(Failure::new(code::INVALID_INPUT, format!("the URL is longer than {MAX_URL} bytes")));
        }
        let mut parsed = origin::parse(url).map_err(|why| invalid_url(&why))?;
        parsed.set_fragment(None);
        let origin = Origin::from_url(&parsed).map_err(|why| refusal(invalid_url(&why).message))?;
        if !grants.covers_url(&origin, &parsed) {
            return Err(not_granted(&origin, grants));
        }
        if let Some(address) = literal_address(&origin.host) {
            self.check_address(&origin, address)?;
        }
        Ok(Destination { url: parsed, origin })
    }

    /// Returns true if secrets may be sent to a destination: over TLS, or without TLS if the host in the URL is a
    /// private address. [`Egress::connect`] refuses such an address unless the operator has listed it.
    pub(crate) fn may_receive_secrets(&self, to: &Destination) -> bool {
        to.origin.scheme == Scheme::Https
            || literal_address(&to.origin.host).is_some_and(|address| address::private_kind(address).is_some())
    }

    /// Connects to a destination for a tenant. Fails with `denied` unless all addresses of its host are public or
    /// listed by the operator, and with `http_timeout` after [`CONNECT_TIMEOUT`].
    pub async fn connect(&self, tenant: &Tenant, to: &Destination) -> Result<Connection, Failure> {
        let origin = &to.origin;
        let connecting = async {
            let addresses = self.addresses(tenant, origin).await?;
            let stream = connect::first_to_answer(addresses, origin).await?;
            match origin.scheme {
                Scheme::Http => Ok(Box::new(stream) as Connection),
                Scheme::Https => connect::start_tls(stream, origin, &self.tls).await,
            }
        };
        tokio::time::timeout(CONNECT_TIMEOUT, connecting).await.unwrap_or_else(|_| Err(timeout_failure(origin)))
    }

    /// Validates every address of a host, and returns the first [`MAX_TRIED_ADDRESSES`] of them.
    async fn addresses(&self, tenant: &Tenant, origin: &Origin) -> Result<Vec<SocketAddr>, Failure> {
        let addresses = match (&origin.host, literal_address(&origin.host)) {
            (Host::Domain(name), _) => self.resolve(tenant, origin, name).await?,
            (_, literal) => literal.into_iter().collect(),
        };
        for address in &addresses {
            self.check_address(origin, *address)?;
        }
        // A mapped IPv6 address is connected to as the IPv4 address that was validated.
        let canonical = addresses.into_iter().map(|address| SocketAddr::new(address.to_canonical(), origin.port));
        Ok(canonical.take(MAX_TRIED_ADDRESSES).collect())
    }

    async fn resolve(&self, tenant: &Tenant, origin: &Origin, name: &str) -> Result<Vec<IpAddr>, Failure> {
        let answer = self.resolver.resolve(tenant, name).await;
        let addresses = answer.map_err(|error| connect::no_connection(origin, &error))?;
        match addresses.is_empty() {
            true => Err(Failure::retryable(crate::code::CONNECT, format!("{name} has no address"))),
            false => Ok(addresses),
        }
    }

    fn check_address(&self, origin: &Origin, address: IpAddr) -> Result<(), Failure> {
        let listed = self.allow_private.iter().any(|range| range.covers(address, origin.port));
        match address::private_kind(address) {
            Some(kind) if !listed => Err(private_address(origin, address, kind)),
            _ => Ok(()),
        }
    }
}

impl fmt::Debug for Egress {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Egress").field("allow_private", &self.allow_private).finish_non_exhaustive()
    }
}

fn literal_address(host: &Host) -> Option<IpAddr> {
    match host {
        Host::Domain(_) => None,
        Host::Ipv4(address) => Some((*address).into()),
        Host::Ipv6(address) => Some((*address).into()),
    }
}

fn refusal(message: String) -> Failure {
    Failure::new(code::DENIED, message)
}

/// Returns the failure for a malformed URL. The message omits the URL, because the URL may contain a password.
fn invalid_url(why: &str) -> Failure {
    Failure::new(code::INVALID_INPUT, format!("this URL is refused: {why}"))
}

/// Returns the failure for a URL without a grant. The message omits the path of the URL.
fn not_granted(origin: &Origin, grants: &OriginGrants) -> Failure {
    let parts = grants.grants_for(origin);
    if !parts.is_empty() {
        let parts = parts.join("`, `");
        let help = "to allow another path, add it to `grants.http`";
        return refusal(format!("on {origin}, this node has grants only for `{parts}` and below; {help}"));
    }
    refusal(format!("this node has no grant for {origin}; to allow it, add `grants: {{ http: [\"{origin}\"] }}`"))
}

/// Returns the failure for a private address. A node can read the message. Therefore the message names the address only
/// if that reveals nothing about the operator's network.
fn private_address(origin: &Origin, address: IpAddr, kind: &str) -> Failure {
    tracing::warn!(%origin, %address, kind, "refused to connect to a private address");
    let host = &origin.host;
    // The brackets of an IPv6 address are a pattern in a shell.
    let line = shell_word(&SocketAddr::new(address.to_canonical(), origin.port).to_string());
    refusal(match (literal_address(host), kind == address::LOOPBACK) {
        (Some(_), _) => {
            format!("{host} is not a public address ({kind}); the operator can allow it (`--allow-private {line}`)")
        }
        (None, true) => {
            format!("{host} resolves to this machine (loopback); the operator can allow it (`--allow-private {line}`)")
        }
        (None, false) => {
            format!("{host} resolves to an address that is not public ({kind}), and the operator does not allow it")
        }
    })
}

fn timeout_failure(origin: &Origin) -> Failure {
    let seconds = CONNECT_TIMEOUT.as_secs();
    Failure::retryable(crate::code::TIMEOUT, format!("no connection to {origin} within {seconds} s"))
}
