//! Mail over SMTP.

use std::fmt;

use lettre::{
    AsyncSmtpTransport, AsyncTransport, Message, Tokio1Executor,
    message::{Mailbox, header::ContentType},
    transport::smtp::{
        authentication::Credentials,
        client::{Certificate, CertificateStore, Tls, TlsParameters},
    },
};

use tokio_rustls::rustls::pki_types::{CertificateDer, pem::PemObject as _};

use super::{MailError, MailSettings, MailTls, SEND_TIMEOUT};

/// Maximum characters of a server's text in an error.
const MAX_REASON_CHARS: usize = 200;

/// Sends mail.
#[derive(Clone)]
pub struct Mailer {
    transport: AsyncSmtpTransport<Tokio1Executor>,
    from: Mailbox,
}

impl fmt::Debug for Mailer {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Mailer")
    }
}

/// Checks an address such as `a@example.com` or `Name <a@example.com>`. The error is part of a sentence.
pub fn check_address(address: &str) -> Result<(), String> {
    parse(address).map(drop)
}

fn parse(address: &str) -> Result<Mailbox, String> {
    address.parse().map_err(|_| format!("`{}` is not a mail address", address.escape_debug()))
}

/// Parses certificates in PEM, at least one.
fn parse_issuers(pem: &[u8]) -> Result<Certificate, String> {
    let all: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
    match all {
        Ok(all) if all.is_empty() => Err("`caFile` has no certificate in PEM".to_owned()),
        Err(error) => Err(format!("`caFile` has a certificate that is not PEM: {error}")),
        Ok(_) => Certificate::from_pem(pem).map_err(|error| format!("`caFile`: {error}")),
    }
}

impl Mailer {
    /// Creates a sender. Does not connect. The error is a sentence without the password.
    pub fn new(settings: MailSettings) -> Result<Mailer, String> {
        let MailSettings { server, port, tls, login, issuers, from } = settings;
        let parameters = || {
            let mut builder = TlsParameters::builder(server.clone()).certificate_store(CertificateStore::WebpkiRoots);
            if let Some(pem) = &issuers {
                builder = builder.add_root_certificate(parse_issuers(pem)?);
            }
            builder.build_rustls().map_err(|error| error.to_string())
        };
        let tls = match tls {
            MailTls::StartTls => Tls::Required(parameters()?),
            MailTls::Tls => Tls::Wrapper(parameters()?),
            MailTls::Plain => Tls::None,
        };
        let from = parse(&from)?;
        let mut builder = AsyncSmtpTransport::<Tokio1Executor>::builder_dangerous(&server).port(port).tls(tls);
        builder = builder.timeout(Some(SEND_TIMEOUT));
        if let Some((name, password)) = login {
            builder = builder.credentials(Credentials::new(name, password.to_string()));
        }
        Ok(Mailer { transport: builder.build(), from })
    }

    /// Sends one message to all addresses. `id` becomes the `Message-ID`, so that a repeated message is recognised.
    pub async fn send(&self, to: &[String], subject: &str, body: &str, id: &str) -> Result<(), MailError> {
        let message = self.message(to, subject, body, id).map_err(|why| MailError { why, is_refusal: true })?;
        match tokio::time::timeout(SEND_TIMEOUT, self.transport.send(message)).await {
            Err(_) => Err(MailError {
                why: format!("the mail server took more than {} s", SEND_TIMEOUT.as_secs()),
                is_refusal: false,
            }),
            Ok(Err(error)) => {
                let text: String = one_line(&error.to_string()).chars().take(MAX_REASON_CHARS).collect();
                Err(MailError { why: format!("the mail server: {text}"), is_refusal: error.is_permanent() })
            }
            Ok(Ok(_)) => Ok(()),
        }
    }
}

impl Mailer {
    fn message(&self, to: &[String], subject: &str, body: &str, id: &str) -> Result<Message, String> {
        let mut builder = Message::builder().from(self.from.clone()).subject(one_line(subject));
        builder = builder.message_id(Some(format!("<{}@flowcell>", one_line(id)))).header(ContentType::TEXT_PLAIN);
        for address in to {
            builder = builder.to(parse(address)?);
        }
        builder.body(body.to_owned()).map_err(|error| error.to_string())
    }
}

/// Replaces control characters, so that a text stays within its header.
fn one_line(text: &str) -> String {
    text.chars().map(|letter| if letter.is_control() { '\u{fffd}' } else { letter }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_hostile_subject_adds_no_header() {
        let (server, from) = ("127.0.0.1".to_owned(), "Flowcell <flowcell@a.test>".to_owned());
        let mailer =
            Mailer::new(MailSettings { server, port: 1, tls: MailTls::Plain, login: None, issuers: None, from })
                .unwrap();
        let hostile = "sold out\r\nBcc: evil@evil.test\r\n\r\nanother body";
        let message = mailer.message(&["team@a.test".to_owned()], hostile, "the body", "ntf_1").unwrap();
        let text = String::from_utf8(message.formatted()).unwrap();
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        assert!(body.trim_end() == "the body" && head.contains("Subject:"), "{text}");
        let names: Vec<_> = head.lines().filter(|line| !line.starts_with(' ')).collect();
        assert!(names.iter().all(|line| !line.starts_with("Bcc") && line.contains(':')), "{head}");
        let receivers: Vec<_> = message.envelope().to().iter().map(ToString::to_string).collect();
        assert_eq!(receivers, ["team@a.test"]);
    }

    #[test]
    fn a_text_adds_no_line() {
        assert_eq!(one_line("a\r\nBcc: x\u{0}\u{85}"), "a\u{fffd}\u{fffd}Bcc: x\u{fffd}\u{fffd}");
    }

    fn pem(der: &[u8]) -> String {
        use base64::{Engine as _, engine::general_purpose::STANDARD};
        let text = STANDARD.encode(der);
        let lines: Vec<_> = text.as_bytes().chunks(64).map(|line| std::str::from_utf8(line).unwrap()).collect();
        format!("-----BEGIN CERTIFICATE-----\n{}\n-----END CERTIFICATE-----\n", lines.join("\n"))
    }

    /// Takes mail over TLS for `localhost`. Returns the port, and the issuer in PEM.
    async fn tls_sink() -> (u16, String) {
        use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
        use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
        use tokio_rustls::{
            TlsAcceptor,
            rustls::{ServerConfig, crypto::ring, pki_types::PrivatePkcs8KeyDer},
        };
        let mut parameters = CertificateParams::new(Vec::new()).unwrap();
        parameters.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let issuer = CertifiedIssuer::self_signed(parameters, KeyPair::generate().unwrap()).unwrap();
        let key = KeyPair::generate().unwrap();
        let own = CertificateParams::new(vec!["localhost".to_owned()]).unwrap().signed_by(&key, &issuer).unwrap();
        let builder = ServerConfig::builder_with_provider(std::sync::Arc::new(ring::default_provider()));
        let builder = builder.with_safe_default_protocol_versions().unwrap().with_no_client_auth();
        let key = PrivatePkcs8KeyDer::from(key.serialize_der());
        let config = builder.with_single_cert(vec![own.der().clone()], key.into()).unwrap();
        let acceptor = TlsAcceptor::from(std::sync::Arc::new(config));
        let listener = tokio::net::TcpListener::bind("localhost:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                // A client that does not trust the certificate ends here.
                let Ok(stream) = acceptor.accept(stream).await else { continue };
                let mut stream = BufReader::new(stream);
                stream.write_all(b"220 sink\r\n").await.unwrap();
                let (mut line, mut is_text) = (String::new(), false);
                while stream.read_line(&mut line).await.is_ok_and(|length| length > 0) {
                    let reply = match line.trim_end() {
                        "DATA" => "354 go on\r\n",
                        _ if is_text && line != ".\r\n" => "",
                        _ => "250 fine\r\n",
                    };
                    is_text = line == "DATA\r\n" || is_text && line != ".\r\n";
                    if stream.write_all(reply.as_bytes()).await.is_err() {
                        break;
                    }
                    line.clear();
                }
            }
        });
        (port, pem(issuer.der()))
    }

    #[tokio::test]
    async fn a_private_issuer_counts_only_if_its_file_is_given() {
        let (port, issuer) = tls_sink().await;
        let mailer = |issuers: Option<&str>| {
            Mailer::new(MailSettings {
                server: "localhost".into(),
                port,
                tls: MailTls::Tls,
                login: None,
                issuers: issuers.map(|pem| pem.as_bytes().to_vec()),
                from: "flowcell@a.test".into(),
            })
        };
        let to = ["team@a.test".to_owned()];
        let other = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
        let other = pem(other.cert.der());
        for issuers in [None, Some(other.as_str())] {
            let refused = mailer(issuers).unwrap().send(&to, "s", "b", "ntf_1").await.unwrap_err();
            assert!(!refused.is_refusal && refused.why.contains("certificate"), "{refused:?}");
        }
        let both = format!("{other}\n{issuer}");
        for issuers in [&issuer, &both] {
            mailer(Some(issuers)).unwrap().send(&to, "s", "b", "ntf_1").await.unwrap();
        }
        let broken = issuer.replace("-----END CERTIFICATE-----", "");
        for wrong in ["", "no certificate", &broken] {
            assert!(mailer(Some(wrong)).unwrap_err().contains("caFile"), "{wrong}");
        }
    }
}
