//! Refuses requests with secrets or credentials whose answer could have a part of a secret only.
//!
//! Many servers repeat what they receive, in an echo or in the text of an error. The host finds a secret in an answer if the
//! answer has all of it. A node that could cut the answer at a place of its choice would get the secret in two halves.

use flowcell_contract::{Failure, code as codes};
use hyper::Method;

use super::request::Request;
use crate::{client::folded_name, credentials::Bound, secrets::SecretGrant};

/// Headers that ask for a part of an answer, or for its difference to another one: `range` and its older name, the condition
/// of a range, and instance manipulations (RFC 3229).
const PARTS: [&str; 4] = ["range", "request-range", "if-range", "a-im"];

/// The header that asks for another character set, in which the host does not find secrets.
const CHARSET: &str = "accept-charset";

/// Checks a request that the host adds these secrets and credentials to. Fails with `invalid_input`.
pub(super) fn check(request: &Request, secrets: &[SecretGrant], bound: &[Bound]) -> Result<(), Failure> {
    if secrets.is_empty() && bound.is_empty() {
        return Ok(());
    }
    let refused = |what: &str, why: &str| {
        let message = format!("a request with a secret or a credential must not have {what}: {why}");
        Err(Failure::new(codes::INVALID_INPUT, message))
    };
    if request.method == Method::TRACE {
        return refused("the method `TRACE`", "the server would send the secret back");
    }
    for (name, value) in &request.headers {
        let is_utf8 = value.to_str().is_ok_and(|value| value.trim().eq_ignore_ascii_case("utf-8"));
        match folded_name(name).as_str() {
            folded if PARTS.contains(&folded) => {
                let why = "the host cannot find a secret of which the answer has a part; request the whole answer, or leave \
                           the secret out, such as with a signed URL";
                return refused(&format!("the header `{name}`"), why);
            }
            CHARSET if !is_utf8 => {
                let why = "the host finds no secrets in other character sets than `utf-8`";
                return refused(&format!("another `{name}` than `utf-8`"), why);
            }
            _ => {}
        }
    }
    Ok(())
}
