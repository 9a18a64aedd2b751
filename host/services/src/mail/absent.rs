//! The mailer of a program without the feature `mail`.

use super::{MailError, MailSettings};

/// The reason why there is no mail.
const ABSENT: &str = "this program was built without mail; build it with `--features full`";

/// Sends mail. A program without the feature `mail` makes none.
#[derive(Clone, Debug)]
pub struct Mailer(());

/// Checks an address roughly. The error is part of a sentence.
pub fn check_address(address: &str) -> Result<(), String> {
    let is_one = address.matches('@').count() == 1 && !address.contains([',', ';']);
    if is_one && !address.contains(char::is_control) {
        return Ok(());
    }
    Err(format!("`{}` is not a mail address", address.escape_debug()))
}

impl Mailer {
    /// Fails: this program has no mail.
    pub fn new(_settings: MailSettings) -> Result<Mailer, String> {
        Err(ABSENT.to_owned())
    }

    /// Fails: this program has no mail.
    pub async fn send(&self, _to: &[String], _subject: &str, _body: &str, _id: &str) -> Result<(), MailError> {
        Err(MailError { why: ABSENT.to_owned(), is_refusal: true })
    }
}
