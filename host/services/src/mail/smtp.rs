//! Mail over SMTP.

use std::fmt;

use lettre::{
    AsyncSmtpTransport, AsyncTransport, Message, Tokio1Executor,
    message::{Mailbox, header::ContentType},
    transport::smtp::{
        authentication::Credentials,
        client::{CertificateStore, Tls, TlsParameters},
    },
};

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

impl Mailer {
    /// Creates a sender. Does not connect. The error is a sentence without the password.
    pub fn new(settings: MailSettings) -> Result<Mailer, String> {
        let MailSettings { server, port, tls, login, from } = settings;
        let parameters = || {
            let builder = TlsParameters::builder(server.clone()).certificate_store(CertificateStore::WebpkiRoots);
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
        let mailer = Mailer::new(MailSettings { server, port: 1, tls: MailTls::Plain, login: None, from }).unwrap();
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
}
