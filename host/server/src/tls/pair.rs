//! The files of a certificate and its private key, and their checks.

use std::{
    fs::{self, File},
    io::Read,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use flowcell_contract::shell::shell_word;
use flowcell_platform::{shape, vault::open_to_others};
use sha2::{Digest, Sha256};
use tokio_rustls::rustls::{
    CertificateError, Error, InconsistentKeys, RootCertStore,
    client::{verify_server_cert_signed_by_trust_anchor, verify_server_name},
    crypto::ring,
    pki_types::{
        CertificateDer, PrivateKeyDer, ServerName, UnixTime,
        pem::{self, PemObject},
    },
    server::ParsedCertificate,
    sign::CertifiedKey,
};

/// Maximum size of each of the two files.
const MAX_FILE_BYTES: u64 = 1 << 20;
/// The time before the end of a certificate in which the server warns.
pub(super) const WARNING_TIME: Duration = Duration::from_secs(14 * 24 * 3_600);
/// The beginning of each block of a PEM file.
const PEM_BEGIN: &[u8] = b"-----BEGIN ";
/// The texts by which a PEM file says that its key is encrypted.
const ENCRYPTED_MARKS: [&[u8]; 2] = [b"-----BEGIN ENCRYPTED PRIVATE KEY-----", b"Proc-Type: 4,ENCRYPTED"];

/// The files of a server's certificate, in PEM.
#[derive(Clone, Debug)]
pub struct TlsFiles {
    /// The server's own certificate, and then those of its issuers.
    pub certificate: PathBuf,
    /// The private key of the server's certificate. No user but its owner may read it.
    pub key: PathBuf,
}

/// The reason why a certificate or its key cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("{why}")]
pub struct TlsError {
    why: String,
    help: String,
}

impl TlsError {
    pub(super) fn new(why: impl Into<String>, help: impl Into<String>) -> TlsError {
        TlsError { why: why.into(), help: help.into() }
    }

    /// Returns what the operator can do.
    pub fn help(&self) -> &str {
        &self.help
    }
}

/// A certificate with its private key.
#[derive(Debug)]
pub struct TlsPair {
    pub(super) certified: Arc<CertifiedKey>,
    file: PathBuf,
    /// The digest of both files.
    digest: [u8; 32],
    /// The first and the last moment of the certificate's validity, in seconds since 1970.
    valid_from: u64,
    valid_until: u64,
}

/// Whether clients accept a certificate at a moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Standing {
    Good,
    NotYetValid,
    EndsSoon,
    Expired,
}

/// One of the two kinds of files.
#[derive(Clone, Copy)]
enum Kind {
    Certificate,
    Key,
}

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Kind::Certificate => "certificate",
            Kind::Key => "private key",
        }
    }

    /// Returns the command that turns a file of this kind into PEM.
    fn conversion(self) -> &'static str {
        match self {
            Kind::Certificate => "openssl x509 -inform der -in FILE -out NEW",
            Kind::Key => "openssl pkey -inform der -in FILE -out NEW",
        }
    }

    fn error(self, path: &Path, why: impl std::fmt::Display, help: impl Into<String>) -> TlsError {
        TlsError::new(format!("the {} in `{}` cannot be used: {why}", self.name(), path.display()), help)
    }

    /// Reads a file of this kind, and checks that it is PEM.
    fn read(self, path: &Path) -> Result<Vec<u8>, TlsError> {
        let cannot = |error: std::io::Error| {
            self.error(path, error, "name PEM files that the server can read with `--tls-cert` and `--tls-key`")
        };
        // A pipe would be waited for.
        if !fs::metadata(path).map_err(cannot)?.is_file() {
            return Err(self.error(path, "it is not a regular file", "name another file"));
        }
        let file = File::open(path).map_err(cannot)?;
        if let (Kind::Key, Some(mode)) = (self, open_to_others(&file.metadata().map_err(cannot)?)) {
            let why = format!("other users may read it (mode {mode:o})");
            return Err(self.error(path, why, format!("run `chmod 600 {}`", shell_word(&path.display().to_string()))));
        }
        let mut bytes = Vec::new();
        file.take(MAX_FILE_BYTES + 1).read_to_end(&mut bytes).map_err(cannot)?;
        if bytes.len() as u64 > MAX_FILE_BYTES {
            return Err(self.error(
                path,
                format!("the file has more than {MAX_FILE_BYTES} bytes"),
                "name another file",
            ));
        }
        match bytes.first() {
            None => Err(self.error(path, "the file is empty", "write the file again")),
            Some(_) if !contains(&bytes, PEM_BEGIN) => {
                Err(self.error(path, "the file is not PEM", format!("convert a DER file with `{}`", self.conversion())))
            }
            Some(_) => Ok(bytes),
        }
    }

    /// Returns the error for a broken block of a PEM file. It has no part of the file, which may be a key.
    fn broken(self, path: &Path) -> TlsError {
        self.error(path, "a block of the file is damaged or incomplete", "write the file again")
    }
}

fn contains(bytes: &[u8], part: &[u8]) -> bool {
    bytes.windows(part.len()).any(|window| window == part)
}

impl TlsFiles {
    /// Reads both files, and checks that they belong together.
    pub fn read(&self) -> Result<TlsPair, TlsError> {
        let (chain_text, key_text) = (Kind::Certificate.read(&self.certificate)?, Kind::Key.read(&self.key)?);
        let chain = self.read_chain(&chain_text)?;
        let key = self.read_key(&key_text)?;
        let unusable = |why: &Error| Kind::Certificate.error(&self.certificate, why, "use a certificate of version 3");
        let provider = ring::default_provider();
        let signing = provider.key_provider.load_private_key(key).map_err(|_| {
            let why = "it is neither RSA nor ECDSA nor Ed25519, or has a wrong length";
            Kind::Key.error(&self.key, why, "make a key such as `openssl genpkey -algorithm ED25519 -out NEW`")
        })?;
        let (valid_from, valid_until) = validity(&chain[0]).map_err(|error| unusable(&error))?;
        let certified = CertifiedKey::new(chain, signing);
        match certified.keys_match() {
            Ok(()) | Err(Error::InconsistentKeys(InconsistentKeys::Unknown)) => {}
            Err(Error::InconsistentKeys(_)) => {
                let (certificate, key) = (self.certificate.display(), self.key.display());
                return Err(TlsError::new(
                    format!("the private key in `{key}` does not belong to the first certificate in `{certificate}`"),
                    "name the key that the certificate was made with, and put the server's own certificate first",
                ));
            }
            Err(error) => return Err(unusable(&error)),
        }
        let digest = [&chain_text, &key_text].map(Sha256::digest).concat();
        let digest = Sha256::digest(digest).into();
        Ok(TlsPair { certified: Arc::new(certified), file: self.certificate.clone(), digest, valid_from, valid_until })
    }

    fn read_chain(&self, text: &[u8]) -> Result<Vec<CertificateDer<'static>>, TlsError> {
        let chain: Result<Vec<_>, pem::Error> = CertificateDer::pem_slice_iter(text).collect();
        match chain {
            Ok(chain) if chain.is_empty() => Err(Kind::Certificate.error(
                &self.certificate,
                "the file has no certificate",
                "name the file of the certificate with `--tls-cert`, and that of the key with `--tls-key`",
            )),
            Ok(chain) => Ok(chain),
            Err(_) => Err(Kind::Certificate.broken(&self.certificate)),
        }
    }

    fn read_key(&self, text: &[u8]) -> Result<PrivateKeyDer<'static>, TlsError> {
        if ENCRYPTED_MARKS.iter().any(|mark| contains(text, mark)) {
            return Err(Kind::Key.error(
                &self.key,
                "it is encrypted with a passphrase",
                "decrypt it with `openssl pkey -in FILE -out NEW`, in a file that only the server's user may read",
            ));
        }
        match PrivateKeyDer::from_pem_slice(text) {
            Ok(key) => Ok(key),
            Err(pem::Error::NoItemsFound) => Err(Kind::Key.error(
                &self.key,
                "the file has no private key",
                "name the file of the key with `--tls-key`",
            )),
            Err(_) => Err(Kind::Key.broken(&self.key)),
        }
    }
}

/// Returns the first and the last moment of a certificate's validity, in seconds since 1970.
fn validity(certificate: &CertificateDer<'_>) -> Result<(u64, u64), Error> {
    let parsed = ParsedCertificate::try_from(certificate)?;
    // The check of the validity comes first, and its error names the limit. No issuer is trusted, so no check succeeds.
    let checked = |seconds: u64| {
        let time = UnixTime::since_unix_epoch(Duration::from_secs(seconds));
        verify_server_cert_signed_by_trust_anchor(&parsed, &RootCertStore::empty(), &[], time, &[])
    };
    let from = match checked(0) {
        Err(Error::InvalidCertificate(CertificateError::NotValidYetContext { not_before, .. })) => not_before.as_secs(),
        Err(error @ Error::InvalidCertificate(CertificateError::Expired)) => return Err(error),
        // It begins in 1970.
        _ => 0,
    };
    match checked(u64::MAX) {
        Err(Error::InvalidCertificate(CertificateError::ExpiredContext { not_after, .. })) => {
            Ok((from, not_after.as_secs()))
        }
        Err(error) => Err(error),
        Ok(()) => Ok((from, u64::MAX)),
    }
}

impl TlsPair {
    /// Returns the end of the certificate's validity, in milliseconds since 1970.
    pub fn valid_until_ms(&self) -> u64 {
        self.valid_until.saturating_mul(1_000)
    }

    /// Returns the end of the certificate's validity as a text.
    pub fn shown_end(&self) -> String {
        shown(self.valid_until)
    }

    /// Returns whether clients that use this name or address of the server accept the certificate's names.
    pub fn is_for(&self, name: &str) -> bool {
        let (Ok(name), Ok(certificate)) = (ServerName::try_from(name), self.certified.end_entity_cert()) else {
            return false;
        };
        ParsedCertificate::try_from(certificate).is_ok_and(|parsed| verify_server_name(&parsed, &name).is_ok())
    }

    /// Returns a warning if clients refuse the certificate at this time, in milliseconds since 1970, or soon will.
    pub fn warning(&self, now: u64) -> Option<String> {
        let file = self.file.display();
        match self.standing(now) {
            Standing::Good => None,
            Standing::NotYetValid => Some(format!(
                "the certificate in `{file}` is not valid before {}; until then clients refuse it",
                shown(self.valid_from)
            )),
            Standing::EndsSoon => {
                let days = (self.valid_until - now / 1_000) / (24 * 3_600);
                Some(format!("the certificate in `{file}` expires at {}, in {days} days; renew it", self.shown_end()))
            }
            Standing::Expired => Some(format!(
                "the certificate in `{file}` has expired at {}, and clients refuse it; renew it",
                self.shown_end()
            )),
        }
    }

    pub(super) fn standing(&self, now: u64) -> Standing {
        let now = now / 1_000;
        match now {
            now if now < self.valid_from => Standing::NotYetValid,
            now if now > self.valid_until => Standing::Expired,
            now if self.valid_until - now <= WARNING_TIME.as_secs() => Standing::EndsSoon,
            _ => Standing::Good,
        }
    }

    /// Returns whether two pairs were read from files with the same bytes.
    pub(super) fn is_same(&self, other: &TlsPair) -> bool {
        self.digest == other.digest
    }
}

fn shown(seconds: u64) -> String {
    match shape::time(seconds.saturating_mul(1_000)) {
        text if text.is_empty() => "the year 9999".to_owned(),
        text => text,
    }
}

/// Makes certificates for tests.
#[cfg(test)]
pub(crate) mod testing {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

    use std::{
        fs,
        os::unix::fs::PermissionsExt,
        path::Path,
        time::{Duration, SystemTime},
    };

    use base64::{Engine as _, engine::general_purpose::STANDARD};
    use rcgen::{CertificateParams, KeyPair};

    use super::{TlsFiles, TlsPair};

    /// Returns a block of a PEM file.
    pub(crate) fn pem(label: &str, der: &[u8]) -> String {
        let text = STANDARD.encode(der);
        let lines: Vec<_> = text.as_bytes().chunks(64).map(|line| std::str::from_utf8(line).unwrap()).collect();
        format!("-----BEGIN {label}-----\n{}\n-----END {label}-----\n", lines.join("\n"))
    }

    /// Makes a certificate for `flows.test` that is valid between two times, in seconds since 1970. Returns it and its
    /// key in PEM.
    pub(crate) fn made(from: u64, until: u64) -> (String, String) {
        made_for(&["flows.test", "127.0.0.1"], from, until)
    }

    fn made_for(names: &[&str], from: u64, until: u64) -> (String, String) {
        let at = |seconds| (SystemTime::UNIX_EPOCH + Duration::from_secs(seconds)).into();
        let key = KeyPair::generate().unwrap();
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let mut params = CertificateParams::new(names).unwrap();
        (params.not_before, params.not_after) = (at(from), at(until));
        let certificate = params.self_signed(&key).unwrap();
        (pem("CERTIFICATE", certificate.der()), pem("PRIVATE KEY", &key.serialize_der()))
    }

    /// Writes a pair of files into a folder. Only the owner may read the key.
    pub(crate) fn write(folder: &Path, certificate: &[u8], key: &[u8]) -> TlsFiles {
        let files = TlsFiles { certificate: folder.join("cert.pem"), key: folder.join("key.pem") };
        fs::write(&files.certificate, certificate).unwrap();
        fs::write(&files.key, key).unwrap();
        fs::set_permissions(&files.key, fs::Permissions::from_mode(0o600)).unwrap();
        files
    }

    /// Makes a pair for these names and addresses.
    pub(crate) fn pair_for(names: &[&str]) -> TlsPair {
        let folder = tempfile::tempdir().unwrap();
        let (certificate, key) = made_for(names, 0, 4_000_000_000);
        write(folder.path(), certificate.as_bytes(), key.as_bytes()).read().unwrap()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

    use std::{fs, os::unix::fs::PermissionsExt, process::Command};

    use base64::{Engine as _, engine::general_purpose::STANDARD};

    use super::{
        testing::{made, pem, write},
        *,
    };

    #[test]
    fn a_pair_is_read_with_its_names_and_times() {
        let folder = tempfile::tempdir().unwrap();
        let (certificate, key) = made(1_000, 4_000_000_000);
        // Other blocks, such as those of parameters of a key, are not looked at. One file may have both.
        let both = format!("{}{key}{certificate}", pem("EC PARAMETERS", b"x"));
        for (certificate, key) in [(&certificate, &key), (&both, &both)] {
            let pair = write(folder.path(), certificate.as_bytes(), key.as_bytes()).read().unwrap();
            assert_eq!((pair.valid_from, pair.valid_until_ms()), (1_000, 4_000_000_000_000));
            assert_eq!(pair.shown_end(), "2096-10-02T07:06:40Z");
            let names = ["flows.test", "127.0.0.1", "evil.test", "127.0.0.2", "", "a b"].map(|name| pair.is_for(name));
            assert_eq!(names, [true, true, false, false, false, false]);
        }
    }

    #[test]
    fn unusable_files_are_refused_with_a_reason_and_without_their_content() {
        let folder = tempfile::tempdir().unwrap();
        let ((certificate, key), (_, other)) = (made(1_000, 4_000_000_000), made(1_000, 4_000_000_000));
        let half = |text: &str| text.as_bytes()[..text.len() / 2].to_vec();
        let der = |text: &str| STANDARD.decode(text.lines().filter(|line| !line.starts_with('-')).collect::<String>());
        let (certificate_der, key_der) = (der(&certificate).unwrap(), der(&key).unwrap());
        let broken = key.replacen('M', "#", 1);
        let not_signed = pem("CERTIFICATE", b"nothing");
        let bytes = |text: &str| text.as_bytes().to_vec();
        let large = vec![b'-'; usize::try_from(MAX_FILE_BYTES).unwrap() + 1];
        let table = [
            (bytes(""), bytes(&key), "the certificate in", "the file is empty"),
            (bytes(&certificate), bytes(""), "the private key in", "the file is empty"),
            (certificate_der, bytes(&key), "the certificate in", "not PEM"),
            (bytes(&certificate), key_der, "the private key in", "not PEM"),
            (bytes(&key), bytes(&key), "the certificate in", "has no certificate"),
            (bytes(&certificate), bytes(&certificate), "the private key in", "has no private key"),
            (half(&certificate), bytes(&key), "the certificate in", "damaged or incomplete"),
            (bytes(&certificate), half(&key), "the private key in", "damaged or incomplete"),
            (bytes(&certificate), bytes(&broken), "the private key in", "damaged or incomplete"),
            (bytes(&not_signed), bytes(&key), "the certificate in", "cannot be used"),
            (bytes(&certificate), bytes(&pem("PRIVATE KEY", b"no")), "the private key in", "neither RSA nor"),
            (bytes(&certificate), bytes(&pem("ENCRYPTED PRIVATE KEY", b"no")), "the private key in", "is encrypted"),
            (
                bytes(&certificate),
                bytes("-----BEGIN RSA PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\n"),
                "the private key in",
                "is encrypted",
            ),
            (bytes(&certificate), bytes(&other), "the private key in", "does not belong to the first certificate"),
            (large, bytes(&key), "the certificate in", "more than 1048576 bytes"),
        ];
        for (certificate, key, which, why) in table {
            let error = write(folder.path(), &certificate, &key).read().unwrap_err();
            let text = error.to_string();
            assert!(text.starts_with(which) && text.contains(why) && !error.help().is_empty(), "{why}: {text}");
            // Each line of a key is a secret, of which not even a part may be in a message.
            let key = String::from_utf8_lossy(&key);
            let mut parts = key.lines().filter(|line| !line.starts_with('-')).filter_map(|line| line.get(..9));
            assert!(parts.all(|part| !text.contains(part)), "{text}");
        }
        let missing = TlsFiles { certificate: folder.path().join("none"), key: folder.path().join("none") };
        assert!(missing.read().unwrap_err().to_string().contains("the certificate in `/"));
        let pipe = folder.path().join("pipe");
        assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
        for certificate in [pipe, "/dev/zero".into(), folder.path().to_owned()] {
            let error = TlsFiles { certificate, key: missing.key.clone() }.read().unwrap_err();
            assert!(error.to_string().contains("not a regular file"), "{error}");
        }
    }

    #[test]
    fn t8_a_key_that_other_users_may_read_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let (certificate, key) = made(1_000, 4_000_000_000);
        let files = write(folder.path(), certificate.as_bytes(), key.as_bytes());
        for (mode, is_refused) in [(0o600, false), (0o400, false), (0o640, true), (0o604, true)] {
            fs::set_permissions(&files.key, fs::Permissions::from_mode(mode)).unwrap();
            let read = files.read();
            let why = read.as_ref().map_or_else(ToString::to_string, |_| String::new());
            assert_eq!(why.contains(&format!("other users may read it (mode {mode:o})")), is_refused, "{mode:o} {why}");
            assert_eq!(read.is_err(), is_refused, "{mode:o} {why}");
        }
    }

    #[test]
    fn the_warning_says_when_clients_refuse_the_certificate() {
        let folder = tempfile::tempdir().unwrap();
        let day = 24 * 3_600;
        let (certificate, key) = made(10 * day, 40 * day);
        let pair = write(folder.path(), certificate.as_bytes(), key.as_bytes()).read().unwrap();
        let table = [
            (9 * day, "is not valid before 1970-01-11T00:00:00Z"),
            (10 * day, ""),
            (26 * day - 1, ""),
            (26 * day, "expires at 1970-02-10T00:00:00Z, in 14 days"),
            (40 * day - 1, "expires at 1970-02-10T00:00:00Z, in 0 days"),
            (40 * day, "in 0 days"),
            (40 * day + 1, "has expired at 1970-02-10T00:00:00Z"),
        ];
        for (now, words) in table {
            let warning = pair.warning(now * 1_000).unwrap_or_default();
            assert!(warning.contains(words) && warning.is_empty() == words.is_empty(), "{now}: {warning}");
        }
    }
}
