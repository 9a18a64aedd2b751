//! Mail over SMTP, through the operator's server.
//!
//! The operator names the server, so the [egress guard](crate::egress) does not check its address. Each message uses a
//! connection of its own. A text of a tenant can be in the subject and in the body. Control characters of a subject are
//! replaced, so no text adds a header. The body is plain text in UTF-8.
//!
//! | subject | limit |
//! |---|---|
//! | one message, with its connection | 30 s |
//!
//! The feature `mail` brings the code for SMTP. Without it, no mailer can be made.

#[cfg(not(feature = "mail"))]
mod absent;
#[cfg(feature = "mail")]
mod smtp;

use std::time::Duration;

use zeroize::Zeroizing;

#[cfg(not(feature = "mail"))]
pub use self::absent::{Mailer, check_address};
#[cfg(feature = "mail")]
pub use self::smtp::{Mailer, check_address};

/// Time limit of one message, with its connection.
pub const SEND_TIMEOUT: Duration = Duration::from_secs(30);

/// The way in which the connection is encrypted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MailTls {
    /// The connection begins in plain text and must change to TLS (STARTTLS).
    StartTls,
    /// The connection is TLS from its start.
    Tls,
    /// The connection stays plain.
    Plain,
}

/// A mail server, and the sender.
pub struct MailSettings {
    /// The host name of the server.
    pub server: String,
    /// The port of the server.
    pub port: u16,
    /// The encryption of the connection.
    pub tls: MailTls,
    /// The name and the password for the server.
    pub login: Option<(String, Zeroizing<String>)>,
    /// Certificates of private issuers, in PEM. They count beside the public ones. `None`: the public ones alone.
    pub issuers: Option<Vec<u8>>,
    /// The address of the sender, such as `Flowcell <flowcell@example.com>`.
    pub from: String,
}

/// The reason why a message was not sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MailError {
    /// The reason as part of a sentence.
    pub why: String,
    /// True if the server has refused this message for good.
    pub is_refusal: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_has_no_line_breaks_and_one_receiver() {
        for wrong in ["a", "a@b\r\nBcc: c@d", "a@b, c@d", ""] {
            assert!(check_address(wrong).is_err(), "{wrong:?}");
        }
        assert_eq!(check_address("Team <a@example.com>"), Ok(()));
    }
}
