//! TLS: the server's certificate and private key, the handshakes with them, and their renewal while the server runs.
//!
//! | module | content |
//! |---|---|
//! | pair | the files of a certificate and its key, and their checks |

mod pair;

use std::{
    io,
    sync::Arc,
    time::{Duration, SystemTime},
};

use flowcell_platform::reload::CertificateRead;
use parking_lot::{Mutex, RwLock};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    time::Instant,
};
use tokio_rustls::{
    TlsAcceptor,
    rustls::{
        ServerConfig,
        crypto::ring,
        server::{ClientHello, ResolvesServerCert},
        sign::CertifiedKey,
        version::{TLS12, TLS13},
    },
    server::TlsStream,
};

use self::pair::Standing;
pub use self::pair::{TlsError, TlsFiles, TlsPair};
use crate::blocking::blocking;

/// The interval between two looks at the files.
const LOOK_INTERVAL: Duration = Duration::from_secs(10);
/// The interval between two warnings of a certificate that clients refuse, or soon will.
const WARNING_INTERVAL: Duration = Duration::from_secs(24 * 3_600);
/// The protocols that the server offers during a handshake.
const PROTOCOLS: [&[u8]; 1] = [b"http/1.1"];
/// The bytes of a request without TLS that are read before its answer.
const PLAIN_HEAD_BYTES: usize = 8 * 1024;

/// The answer to a request without TLS.
const PLAIN_ANSWER: &[u8] = b"HTTP/1.1 400 Bad Request\r\ncontent-type: application/json\r\n\
                      connection: close\r\ncontent-length: 82\r\n\r\n\
                      {\"error\":{\"code\":\"tls_required\",\"message\":\"this server speaks TLS; use https://\"}}";

/// The pair that handshakes use now.
#[derive(Debug)]
struct CurrentPair(RwLock<Arc<TlsPair>>);

impl CurrentPair {
    fn get(&self) -> Arc<TlsPair> {
        self.0.read().clone()
    }
}

impl ResolvesServerCert for CurrentPair {
    fn resolve(&self, _hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.0.read().certified.clone())
    }
}

/// The TLS of a server.
pub(crate) struct Tls {
    files: TlsFiles,
    acceptor: TlsAcceptor,
    current: Arc<CurrentPair>,
    /// The error of the last look at the files. An error is logged once. The lock is held during a look.
    refused: Mutex<Option<String>>,
}

impl Tls {
    /// Reads the files.
    pub(crate) fn open(files: TlsFiles) -> Result<Arc<Tls>, TlsError> {
        let current = Arc::new(CurrentPair(RwLock::new(Arc::new(files.read()?))));
        let builder = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()));
        let builder = builder.with_protocol_versions(&[&TLS13, &TLS12]);
        let builder = builder.map_err(|error| TlsError::new(error.to_string(), "this program cannot speak TLS"))?;
        let mut config = builder.with_no_client_auth().with_cert_resolver(current.clone());
        config.alpn_protocols = PROTOCOLS.map(<[u8]>::to_vec).into();
        let acceptor = TlsAcceptor::from(Arc::new(config));
        Ok(Arc::new(Tls { files, acceptor, current, refused: Mutex::default() }))
    }

    /// Returns the pair that handshakes use now.
    pub(crate) fn pair(&self) -> Arc<TlsPair> {
        self.current.get()
    }

    /// Performs the handshake of a new connection. A request without TLS gets [`PLAIN_ANSWER`]. The caller limits the
    /// time.
    pub(crate) async fn accept(&self, mut stream: TcpStream) -> io::Result<TlsStream<TcpStream>> {
        let mut first = [0];
        // A handshake begins with the byte 22, and a request with the letters of its method.
        if stream.peek(&mut first).await? > 0 && first[0].is_ascii_uppercase() {
            // The system would discard the answer if it closed the connection with unread bytes.
            let _ = stream.read(&mut vec![0; PLAIN_HEAD_BYTES]).await?;
            stream.write_all(PLAIN_ANSWER).await?;
            stream.shutdown().await?;
            return Err(io::Error::new(io::ErrorKind::InvalidData, "the client has sent a request without TLS"));
        }
        self.acceptor.accept(stream).await
    }

    /// Reads the files again. If they cannot be used, the earlier pair stays in use, and the error says why.
    pub(crate) fn reload(&self) -> Result<CertificateRead, String> {
        self.look().map_err(|Refused { text, .. }| text)
    }

    fn look(&self) -> Result<CertificateRead, Refused> {
        let mut refused = self.refused.lock();
        let (read, current) = (self.files.read(), self.current.get());
        match read {
            Ok(pair) => {
                *refused = None;
                let (replaced, valid_until) = (!pair.is_same(&current), pair.valid_until_ms());
                if replaced {
                    tracing::info!("the certificate was replaced; the new one is valid until {}", pair.shown_end());
                    *self.current.0.write() = Arc::new(pair);
                }
                Ok(CertificateRead { replaced, valid_until })
            }
            Err(error) => {
                let end = current.shown_end();
                let text =
                    format!("{error}; {}; the earlier pair stays in use, and is valid until {end}", error.help());
                let is_new = refused.as_ref() != Some(&text);
                *refused = Some(text.clone());
                Err(Refused { text, is_new })
            }
        }
    }

    /// Looks at the files once in each [`LOOK_INTERVAL`], and warns of a certificate that clients refuse or soon will,
    /// until the caller drops the future.
    pub(crate) async fn watch(self: Arc<Self>) {
        let mut warnings = Warnings::default();
        loop {
            if let Some(warning) = warnings.due(&self.pair(), now_ms(), Instant::now()) {
                tracing::warn!("{warning}");
            }
            tokio::time::sleep(LOOK_INTERVAL).await;
            let own = self.clone();
            // A look that has panicked finds nothing.
            let looked = blocking(move || own.look()).await;
            if let Ok(Err(Refused { text, is_new: true })) = looked {
                tracing::warn!("{text}");
            }
        }
    }
}

/// An error of a look at the files.
struct Refused {
    text: String,
    /// True if the look before had no error, or another one.
    is_new: bool,
}

/// The warnings of certificates: one at once for each pair and standing, and then one in each [`WARNING_INTERVAL`].
#[derive(Default)]
struct Warnings {
    last: Option<(Arc<TlsPair>, Standing, Instant)>,
}

impl Warnings {
    /// Returns the warning that is due. `now` is in milliseconds since 1970.
    fn due(&mut self, pair: &Arc<TlsPair>, now: u64, at: Instant) -> Option<String> {
        let standing = pair.standing(now);
        let is_known = self.last.as_ref().is_some_and(|(last, known, warned)| {
            last.is_same(pair) && *known == standing && at.duration_since(*warned) < WARNING_INTERVAL
        });
        if is_known {
            return None;
        }
        self.last = Some((pair.clone(), standing, at));
        pair.warning(now)
    }
}

fn now_ms() -> u64 {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(now.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
pub(crate) use self::pair::testing;

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

    use super::{
        testing::{made, write},
        *,
    };

    /// A day in seconds.
    const DAY: u64 = 24 * 3_600;

    #[test]
    fn the_answer_to_a_request_without_tls_is_complete() {
        let text = std::str::from_utf8(PLAIN_ANSWER).unwrap();
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        assert!(head.ends_with(&format!("content-length: {}", body.len())), "{text}");
        assert_eq!(serde_json::from_str::<serde_json::Value>(body).unwrap()["error"]["code"], "tls_required");
    }

    #[test]
    fn a_broken_pair_keeps_the_earlier_one_and_is_reported_once() {
        let folder = tempfile::tempdir().unwrap();
        let put = |(certificate, key): (&str, &str)| write(folder.path(), certificate.as_bytes(), key.as_bytes());
        let ((first, first_key), (second, second_key)) = (made(1, 4_000_000_000), made(1, 4_100_000_000));
        let tls = Tls::open(put((&first, &first_key))).unwrap();
        let ends = || tls.pair().valid_until_ms() / 1_000;
        assert_eq!(tls.reload(), Ok(CertificateRead { replaced: false, valid_until: 4_000_000_000_000 }));
        // The new certificate is there, and its key is not yet.
        put((&second, &first_key));
        for is_new in [true, false] {
            let refused = tls.look().err().unwrap();
            let says = ["does not belong", "the earlier pair stays in use, and is valid until 2096-10-02T07:06:40Z"];
            assert!(says.iter().all(|part| refused.text.contains(part)), "{}", refused.text);
            assert_eq!((refused.is_new, ends()), (is_new, 4_000_000_000));
        }
        put((&second[..200], &second_key));
        assert!(tls.look().is_err_and(|refused| refused.is_new && refused.text.contains("incomplete")));
        put((&second, &second_key));
        assert_eq!(tls.reload(), Ok(CertificateRead { replaced: true, valid_until: 4_100_000_000_000 }));
        assert_eq!(ends(), 4_100_000_000);
        put((&second, &first_key));
        assert!(tls.look().is_err_and(|refused| refused.is_new));
    }

    #[test]
    fn a_certificate_that_ends_is_warned_of_once_a_day() {
        let folder = tempfile::tempdir().unwrap();
        let read = |(certificate, key): (String, String)| {
            Arc::new(write(folder.path(), certificate.as_bytes(), key.as_bytes()).read().unwrap())
        };
        let (ends, renewed) = (read(made(0, 20 * DAY)), read(made(0, 30 * DAY)));
        let (mut warnings, began) = (Warnings::default(), Instant::now());
        let mut due = |pair: &Arc<TlsPair>, hours: u64| {
            let after = Duration::from_secs(hours * 3_600);
            warnings.due(pair, hours * 3_600_000, began + after).is_some()
        };
        assert!(!due(&ends, 5 * 24), "it has 15 days");
        assert_eq!(
            [144, 145, 167, 168, 169, 191].map(|hours| due(&ends, hours)),
            [true, false, false, true, false, false]
        );
        // It expires between two warnings.
        assert_eq!([480, 481, 482].map(|hours| due(&ends, hours)), [true, true, false]);
        assert!(due(&renewed, 483), "the next one has 9 days and more");
    }
}
