//! The egress guard: the one place where a connection to the outside is made.
//!
//! [`Egress::admit`] checks a URL against what was granted, without any I/O, and answers with a [`Destination`]. Only a
//! destination can be connected to. [`Egress::connect`] resolves its host once, refuses unless **every** address is
//! public or listed by the operator, and connects to what it has just validated; the name is not resolved again, and
//! stays the name in TLS and in the `Host` header. Redirects are nobody's business here: whoever follows one asks
//! `admit` again.
//!
//! | what | limit |
//! |---|---|
//! | URL | 8 KiB |
//! | schemes | `https`; `http` where a grant says so |
//! | ports | the scheme's own; others where a grant names them |
//! | addresses in URLs | where a grant names them |
//! | user names in URLs | never |
//! | addresses of a name | all are validated, the first 8 are tried |
//! | connecting, with its resolution and TLS | 10 s |
//!
//! Failures: `denied`, `invalid_input` (not a URL), `http_connect`, `http_timeout`, `http_tls`. After each of them it
//! is certain that nothing was sent.
//!
//! Not public is everything but global unicast: loopback, private, link-local and shared networks, multicast, reserved
//! and documentation addresses, clouds' own service addresses, and whatever of IPv6 maps to one of these. The operator
//! lists exceptions in [`EgressPolicy::allow_private`]. Who the operator is, the app decides: on the command line
//! nothing is listed unless the person at the terminal does so.

mod address;
mod connect;
mod grant;
mod origin;
mod policy;
mod resolve;

use std::{
    fmt,
    net::{IpAddr, SocketAddr},
    sync::Arc,
    time::Duration,
};

use flowcell_contract::{Failure, Tenant, code};
use tokio_rustls::TlsConnector;
pub use tokio_rustls::rustls::pki_types::CertificateDer;
use url::{Host, Url};

pub use self::{
    address::AddressRange,
    connect::{Connection, Wire},
    grant::{OriginGrant, OriginGrants, Reach},
    origin::{Origin, Scheme},
    resolve::{Resolve, SystemResolver},
};

/// The longest URL, in bytes.
pub const MAX_URL: usize = 8 * 1024;

/// How long connecting may take, with its resolution and TLS.
pub const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// This many addresses of one name are tried.
const TRIED_ADDRESSES: usize = 8;

/// What the operator decides.
#[derive(Clone, Debug, Default)]
pub struct EgressPolicy {
    /// Addresses that may be connected to although they are not public.
    pub allow_private: Vec<AddressRange>,
    /// Roots of trust beside the public ones, for servers whose certificates an organisation makes itself.
    pub extra_roots: Vec<CertificateDer<'static>>,
}

/// The guard. Clones share everything.
#[derive(Clone)]
pub struct Egress {
    allow_private: Arc<[AddressRange]>,
    resolver: Arc<dyn Resolve>,
    tls: TlsConnector,
}

/// A URL that was admitted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Destination {
    url: Url,
    origin: Origin,
}

impl Destination {
    /// The URL, normalised: exactly what was checked, and what is to be sent. Without a fragment.
    pub fn url(&self) -> &Url {
        &self.url
    }

    /// Where it leads.
    pub fn origin(&self) -> &Origin {
        &self.origin
    }
}

impl Egress {
    /// A guard under this policy, with the system's resolver. It fails with `http_tls` if an extra root is no
    /// certificate.
    pub fn new(policy: EgressPolicy) -> Result<Egress, Failure> {
        let tls = connect::tls(&policy.extra_roots)?;
        Ok(Egress { allow_private: policy.allow_private.into(), resolver: Arc::new(SystemResolver), tls })
    }

    /// The same guard with another resolver.
    pub fn resolved_by(self, resolver: Arc<dyn Resolve>) -> Egress {
        Egress { resolver, ..self }
    }

    /// The same guard, which lets these addresses be connected to as well.
    pub fn also_private(self, ranges: &[AddressRange]) -> Egress {
        Egress { allow_private: self.allow_private.iter().chain(ranges).copied().collect(), ..self }
    }

    /// Checks a URL against what was granted. No I/O: whether a name leads to a public address shows when it is
    /// connected.
    pub fn admit(&self, url: &str, grants: &OriginGrants) -> Result<Destination, Failure> {
        if url.len() > MAX_URL {
            return Err(Failure::new(code::INVALID_INPUT, format!("the URL is longer than {MAX_URL} bytes")));
        }
        let mut parsed = origin::parse(url).map_err(|why| unusable(&why))?;
        parsed.set_fragment(None);
        let origin = Origin::of(&parsed).map_err(|why| refused(unusable(&why).message))?;
        if !grants.cover(&origin, &parsed) {
            return Err(not_granted(&origin, grants));
        }
        if let Some(address) = literal(&origin.host) {
            self.validate(&origin, address)?;
        }
        Ok(Destination { url: parsed, origin })
    }

    /// Whether nobody else can listen on the way: TLS, or a private address that the operator has listed.
    pub(crate) fn keeps_secrets(&self, to: &Destination) -> bool {
        to.origin.scheme == Scheme::Https
            || literal(&to.origin.host).is_some_and(|address| address::not_public(address).is_some())
    }

    /// Connects to a destination for a tenant, if all its addresses are public or listed. It ends within [`CONNECT_TIMEOUT`].
    pub async fn connect(&self, tenant: &Tenant, to: &Destination) -> Result<Connection, Failure> {
        let origin = &to.origin;
        let connecting = async {
            let addresses = self.addresses(tenant, origin).await?;
            let stream = connect::first_to_answer(addresses, origin).await?;
            match origin.scheme {
                Scheme::Http => Ok(Box::new(stream) as Connection),
                Scheme::Https => connect::secured(stream, origin, &self.tls).await,
            }
        };
        tokio::time::timeout(CONNECT_TIMEOUT, connecting).await.unwrap_or_else(|_| Err(too_slow(origin)))
    }

    /// Every address of a host, each of them validated.
    async fn addresses(&self, tenant: &Tenant, origin: &Origin) -> Result<Vec<SocketAddr>, Failure> {
        let addresses = match (&origin.host, literal(&origin.host)) {
            (Host::Domain(name), _) => self.resolve(tenant, origin, name).await?,
            (_, literal) => literal.into_iter().collect(),
        };
        for address in &addresses {
            self.validate(origin, *address)?;
        }
        // A mapped address is connected to as the IPv4 address that it was judged as.
        let canonical = addresses.into_iter().map(|address| SocketAddr::new(address.to_canonical(), origin.port));
        Ok(canonical.take(TRIED_ADDRESSES).collect())
    }

    async fn resolve(&self, tenant: &Tenant, origin: &Origin, name: &str) -> Result<Vec<IpAddr>, Failure> {
        let answer = self.resolver.resolve(tenant, name).await;
        let addresses = answer.map_err(|error| connect::no_connection(origin, &error))?;
        match addresses.is_empty() {
            true => Err(Failure::retryable(crate::code::CONNECT, format!("{name} has no address"))),
            false => Ok(addresses),
        }
    }

    fn validate(&self, origin: &Origin, address: IpAddr) -> Result<(), Failure> {
        let listed = self.allow_private.iter().any(|range| range.covers(address, origin.port));
        match address::not_public(address) {
            Some(kind) if !listed => Err(not_public(origin, address, kind)),
            _ => Ok(()),
        }
    }
}

impl fmt::Debug for Egress {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Egress").field("allow_private", &self.allow_private).finish_non_exhaustive()
    }
}

fn literal(host: &Host) -> Option<IpAddr> {
    match host {
        Host::Domain(_) => None,
        Host::Ipv4(address) => Some((*address).into()),
        Host::Ipv6(address) => Some((*address).into()),
    }
}

fn refused(message: String) -> Failure {
    Failure::new(code::DENIED, message)
}

/// A URL that is refused for how it is written. It is not repeated: it may hold a password.
fn unusable(why: &str) -> Failure {
    Failure::new(code::INVALID_INPUT, format!("this URL is refused: {why}"))
}

/// Names no path: the URL is not repeated.
fn not_granted(origin: &Origin, grants: &OriginGrants) -> Failure {
    let parts = grants.parts_of(origin);
    if !parts.is_empty() {
        let parts = parts.join("`, `");
        let help = "to allow another path, add it to `grants.http`";
        return refused(format!("of {origin} only `{parts}` and what is below is granted to this node; {help}"));
    }
    refused(format!("{origin} is not granted to this node; to allow it, add `grants: {{ http: [\"{origin}\"] }}`"))
}

/// Names the address only where that says nothing about the operator's network: the node reads this.
fn not_public(origin: &Origin, address: IpAddr, kind: &str) -> Failure {
    tracing::warn!(%origin, %address, kind, "refused to connect to an address that is not public");
    let host = &origin.host;
    let line = SocketAddr::new(address.to_canonical(), origin.port);
    refused(match (literal(host), kind == address::LOOPBACK) {
        (Some(_), _) => {
            format!("{host} is not a public address ({kind}); the operator can allow it (`--allow-private {line}`)")
        }
        (None, true) => {
            format!("{host} leads to this machine (loopback); the operator can allow it (`--allow-private {line}`)")
        }
        (None, false) => {
            format!("{host} has an address that is not public ({kind}), and the operator does not list it")
        }
    })
}

fn too_slow(origin: &Origin) -> Failure {
    let seconds = CONNECT_TIMEOUT.as_secs();
    Failure::retryable(crate::code::TIMEOUT, format!("no connection to {origin} within {seconds} s"))
}
