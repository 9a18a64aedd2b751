//! Certificates for tests, and a client that speaks TLS.

use std::{
    fs,
    io::{self, BufReader, Write},
    net::{SocketAddr, TcpStream},
    os::unix::fs::PermissionsExt,
    path::Path,
    sync::Arc,
    time::{Duration, SystemTime},
};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use flowcell_server::tls::TlsFiles;
use rcgen::{CertificateParams, KeyPair};
use tokio_rustls::rustls::{
    ClientConfig, ClientConnection, DEFAULT_VERSIONS, RootCertStore, StreamOwned, SupportedProtocolVersion,
    crypto::ring,
    pki_types::{CertificateDer, ServerName},
};

use crate::client::{Answer, connect, read, request};

/// A day.
pub(crate) const DAY: Duration = Duration::from_secs(24 * 3_600);

/// A certificate for `127.0.0.1` and `flows.test`, which its own key has signed.
pub(crate) struct Made {
    pub(crate) certificate: CertificateDer<'static>,
    pub(crate) key: Vec<u8>,
}

impl Made {
    /// Makes a certificate that is valid for a year.
    pub(crate) fn new() -> Made {
        let now = SystemTime::now();
        Made::valid(now - DAY, now + 365 * DAY)
    }

    /// Makes a certificate that is valid between two times.
    pub(crate) fn valid(from: SystemTime, until: SystemTime) -> Made {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(vec!["127.0.0.1".to_owned(), "flows.test".to_owned()]).unwrap();
        (params.not_before, params.not_after) = (from.into(), until.into());
        let certificate = params.self_signed(&key).unwrap().der().clone();
        Made { certificate, key: key.serialize_der() }
    }

    /// Writes the certificate into `cert.pem` in a folder.
    pub(crate) fn write_certificate(&self, folder: &Path) {
        put(&folder.join("cert.pem"), &pem("CERTIFICATE", &self.certificate), 0o644);
    }

    /// Writes the key into `key.pem` in a folder, for its owner alone.
    pub(crate) fn write_key(&self, folder: &Path) {
        put(&folder.join("key.pem"), &pem("PRIVATE KEY", &self.key), 0o600);
    }

    /// Writes both files.
    pub(crate) fn write(&self, folder: &Path) -> TlsFiles {
        self.write_certificate(folder);
        self.write_key(folder);
        TlsFiles { certificate: folder.join("cert.pem"), key: folder.join("key.pem") }
    }
}

/// Returns a block of a PEM file.
pub(crate) fn pem(label: &str, der: &[u8]) -> String {
    let text = STANDARD.encode(der);
    let lines: Vec<_> = text.as_bytes().chunks(64).map(|line| std::str::from_utf8(line).unwrap()).collect();
    format!("-----BEGIN {label}-----\n{}\n-----END {label}-----\n", lines.join("\n"))
}

/// Writes a file that appears whole.
pub(crate) fn put(path: &Path, text: &str, mode: u32) {
    let new = path.with_extension("new");
    fs::write(&new, text).unwrap();
    fs::set_permissions(&new, fs::Permissions::from_mode(mode)).unwrap();
    fs::rename(new, path).unwrap();
}

/// A connection with TLS.
pub(crate) type Encrypted = BufReader<StreamOwned<ClientConnection, TcpStream>>;

/// Performs the handshake of a connection that trusts only this certificate. Returns an error if the server refuses the
/// handshake, or has another certificate.
pub(crate) fn shake_hands(address: SocketAddr, trusted: &Made) -> io::Result<Encrypted> {
    shake_hands_with(address, trusted, DEFAULT_VERSIONS, &[])
}

/// The same, with these versions and protocols alone.
pub(crate) fn shake_hands_with(
    address: SocketAddr,
    trusted: &Made,
    versions: &[&'static SupportedProtocolVersion],
    protocols: &[&str],
) -> io::Result<Encrypted> {
    shake_hands_on(connect(address), trusted, versions, protocols)
}

/// The same, on a connection that is open.
pub(crate) fn shake_hands_on(
    mut stream: TcpStream,
    trusted: &Made,
    versions: &[&'static SupportedProtocolVersion],
    protocols: &[&str],
) -> io::Result<Encrypted> {
    let mut roots = RootCertStore::empty();
    roots.add(trusted.certificate.clone()).unwrap();
    let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()));
    let builder = builder.with_protocol_versions(versions).unwrap();
    let mut config = builder.with_root_certificates(roots).with_no_client_auth();
    config.alpn_protocols = protocols.iter().map(|protocol| protocol.as_bytes().to_vec()).collect();
    let name = ServerName::try_from("127.0.0.1").unwrap();
    let mut session = ClientConnection::new(Arc::new(config), name).unwrap();
    while session.is_handshaking() {
        session.complete_io(&mut stream)?;
    }
    Ok(BufReader::new(StreamOwned::new(session, stream)))
}

/// Sends a request on a connection, and reads the answer.
pub(crate) fn ask_on(
    stream: &mut Encrypted,
    address: SocketAddr,
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
    body: &str,
) -> Answer {
    stream.get_mut().write_all(request(address, method, path, headers, body).as_bytes()).unwrap();
    read(stream)
}

/// Sends a request without a body on a new connection, and reads the answer.
pub(crate) fn get(address: SocketAddr, trusted: &Made, path: &str) -> Answer {
    ask_on(&mut shake_hands(address, trusted).unwrap(), address, "GET", path, &[], "")
}
