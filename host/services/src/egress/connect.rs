//! Opens TCP and TLS connections to validated addresses.

use std::{io, net::SocketAddr, sync::Arc, time::Duration};

use flowcell_contract::Failure;
use futures_util::{StreamExt, stream::FuturesUnordered};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpStream,
};
use tokio_rustls::{
    TlsConnector,
    rustls::{
        self, ClientConfig, RootCertStore,
        pki_types::{CertificateDer, ServerName, pem::PemObject as _},
    },
};
use url::Host;

use super::origin::Origin;
use crate::code;

/// The time after which the host also tries the next address, while it still waits for the earlier ones. So an
/// unreachable IPv6 address costs little time.
const NEXT_ADDRESS_DELAY: Duration = Duration::from_millis(250);

/// A stream of bytes in both directions.
pub trait Wire: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Wire for T {}

/// A connection to a validated address, with TLS if the origin requires it.
pub type Connection = Box<dyn Wire>;

/// Returns a connector for TLS 1.2 and 1.3, with the public trust roots and the operator's own.
pub(super) fn tls_connector(extra_roots: &[CertificateDer<'static>]) -> Result<TlsConnector, Failure> {
    let unusable = |error: rustls::Error| Failure::new(code::TLS, format!("the TLS settings are unusable: {error}"));
    let mut roots = RootCertStore { roots: webpki_roots::TLS_SERVER_ROOTS.to_vec() };
    for root in extra_roots {
        roots.add(root.clone()).map_err(unusable)?;
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder =
        ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().map_err(unusable)?;
    let mut config = builder.with_root_certificates(roots).with_no_client_auth();
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(TlsConnector::from(Arc::new(config)))
}

/// Returns a connector with additional trust roots in PEM, at least one. The error is part of a sentence.
pub(super) fn tls_connector_with(pem: &[u8]) -> Result<TlsConnector, String> {
    let roots: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
    let roots = roots.map_err(|error| format!("`caFile` has a certificate that is not PEM: {error}"))?;
    if roots.is_empty() {
        return Err("`caFile` has no certificate in PEM".to_owned());
    }
    tls_connector(&roots).map_err(|failure| format!("`caFile`: {}", failure.message))
}

/// Connects to the addresses, and returns the first connection that is ready. It begins with the first address. It also
/// tries the next one after each [`NEXT_ADDRESS_DELAY`], and as soon as an address fails. Meanwhile it still waits for
/// the earlier addresses.
pub(super) async fn first_to_answer(addresses: Vec<SocketAddr>, origin: &Origin) -> Result<TcpStream, Failure> {
    let mut waiting = addresses.into_iter();
    let mut attempts: FuturesUnordered<_> = waiting.next().map(TcpStream::connect).into_iter().collect();
    loop {
        tokio::select! {
            Some(answer) = attempts.next() => match answer {
                Ok(stream) => return configure(stream).map_err(|error| no_connection(origin, &error)),
                Err(error) => match waiting.next() {
                    Some(address) => attempts.push(TcpStream::connect(address)),
                    None if attempts.is_empty() => return Err(no_connection(origin, &error)),
                    None => {}
                },
            },
            () = tokio::time::sleep(NEXT_ADDRESS_DELAY), if waiting.len() > 0 => {
                attempts.extend(waiting.next().map(TcpStream::connect));
            }
        }
    }
}

fn configure(stream: TcpStream) -> io::Result<TcpStream> {
    stream.set_nodelay(true)?;
    Ok(stream)
}

/// Sets up TLS and verifies that the peer's certificate matches the URL's host.
pub(super) async fn start_tls(stream: TcpStream, origin: &Origin, tls: &TlsConnector) -> Result<Connection, Failure> {
    let name = match &origin.host {
        Host::Domain(name) => ServerName::try_from(name.clone())
            .map_err(|_| Failure::new(code::TLS, format!("{name} cannot be the name in a certificate")))?,
        Host::Ipv4(address) => ServerName::IpAddress((*address).into()),
        Host::Ipv6(address) => ServerName::IpAddress((*address).into()),
    };
    match tls.connect(name, stream).await {
        Ok(stream) => Ok(Box::new(stream)),
        Err(error) => Err(tls_failure(origin, &error)),
    }
}

fn tls_failure(origin: &Origin, error: &io::Error) -> Failure {
    let inner = error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>());
    match inner {
        Some(inner) => Failure::new(code::TLS, format!("the certificate of {origin} is not trusted: {inner}")),
        None => no_connection(origin, error),
    }
}

/// Returns the failure of a connection that the network refused.
pub(super) fn no_connection(origin: &Origin, error: &io::Error) -> Failure {
    Failure::retryable(code::CONNECT, format!("cannot connect to {origin}: {error}"))
}
