//! The parts that the pages of signed links share. Such a page needs no login, and shows nothing before the code of the link was
//! sent: the code is behind the `#` of the address, so a client that only fetches the address, such as a scanner of mails,
//! learns nothing.

use axum::http::StatusCode;
use flowcell_server::api::Refusal;
use maud::{Markup, html};

use crate::{
    frame::Page,
    parts::{message, time},
    sent::Form,
};

/// The pages of a kind of links.
pub(crate) struct LinkPages {
    /// The page that takes the code of a link.
    pub(crate) here: &'static str,
    pub(crate) title: &'static str,
    pub(crate) about: &'static str,
    /// The button that sends the code.
    pub(crate) button: &'static str,
    /// The title and the text of the page after the form was sent.
    pub(crate) done: (&'static str, &'static str),
    /// The advice after a refusal whose code has no other one.
    pub(crate) advice: &'static str,
}

impl LinkPages {
    /// Shows the field for a code. The script takes the code out of the address, and sends it.
    pub(crate) fn take_code(&self) -> Page {
        let main = html! {
            p { (self.about) }
            form data-by-link method="post" action=(self.here) {
                label for="code" { "Or paste the link, or its part behind #" }
                input #code name="code" type="password" autocomplete="off" required spellcheck="false";
                button .primary { (self.button) }
            }
        };
        Page::bare(StatusCode::OK, self.title, main)
    }

    /// Shows the page after the form was sent.
    pub(crate) fn done(&self) -> Page {
        let (title, text) = self.done;
        Page::bare(StatusCode::OK, title, html! { p role="status" { (text) } (self.next_link()) })
    }

    /// Shows a refusal. `known` is the title and the advice for its code, if the pages have some.
    pub(crate) fn refused(&self, refusal: &Refusal, known: Option<(&str, &str)>) -> Page {
        let is_busy = refusal.status == StatusCode::TOO_MANY_REQUESTS || refusal.status.is_server_error();
        let (title, advice) = known.unwrap_or(match is_busy {
            true => ("Not now", "Try again in a moment: open the link again."),
            false => ("Refused", self.advice),
        });
        let main = html! {
            p .notice .bad role="alert" {
                (message(&refusal.message))
                // The page shows the time in the zone of its reader.
                @if refusal.details["answeredAt"].is_u64() { " (" (time(&refusal.details["answeredAt"])) ")" }
            }
            p { (advice) }
            p .faint { "Code " code { (refusal.code) } ", status " (refusal.status.as_u16()) "." }
            (self.next_link())
        };
        Page::bare(refusal.status, title.to_owned(), main)
    }

    /// Returns a form that only the script sends: a further link that is opened in the same window changes only the part of
    /// the address behind `#`.
    pub(crate) fn next_link(&self) -> Markup {
        html! {
            form data-by-link hidden method="post" action=(self.here) { input type="hidden" name="code"; }
        }
    }
}

/// Returns the code of a form. A whole link may be pasted.
pub(crate) fn code_of(form: &Form) -> &str {
    let sent = form.text("code").unwrap_or_default().trim();
    sent.rsplit_once('#').map_or(sent, |(_, code)| code)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sent::form_of;

    #[test]
    fn a_code_may_be_pasted_as_a_link() {
        for sent in ["fca_x.y", " fca_x.y\n", "https://flows.example.com/console/answer#fca_x.y"] {
            assert_eq!(code_of(&form_of(&[("code", sent)])), "fca_x.y");
        }
        assert_eq!(code_of(&form_of(&[])), "");
    }
}
