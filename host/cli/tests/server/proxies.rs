//! Tests `flowcell serve --trusted-proxy`: failures of a caller count for the address that a trusted proxy names.

use crate::{
    client::ask,
    kit::{output_of, stderr},
    server::process::{serve, stop},
};

/// Maximum number of unknown tokens from one address in a minute.
const MAX_UNKNOWN_TOKENS: usize = 100;

#[test]
fn h18_the_program_trusts_the_proxies_of_its_option() {
    for (trusted, header, value, is_believed) in [
        (Some("127.0.0.0/8"), "Forwarded", "proto=https;for=\"203.0.113.{}:4711\"", true),
        (Some("10.0.0.0/8,127.0.0.1"), "X-Forwarded-For", "203.0.113.{}", true),
        (Some("10.0.0.0/8"), "Forwarded", "for=203.0.113.{}", false),
        (None, "Forwarded", "for=203.0.113.{}", false),
        (None, "X-Forwarded-For", "203.0.113.{}", false),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let made = output_of(folder.path(), &["tenant", "create", "a"]);
        assert!(made.status.success(), "{}", stderr(&made));
        let arguments: Vec<_> = trusted.into_iter().flat_map(|proxies| ["--trusted-proxy", proxies]).collect();
        let (child, address) = serve(folder.path(), &arguments);
        let guess = |caller: u8| {
            let value = value.replace("{}", &caller.to_string());
            let headers = [("Authorization", "Bearer fct_0123456789abcdef_guessed"), (header, value.as_str())];
            ask(address, "GET", "/v1/runs", &headers, "").status
        };
        for _ in 0..MAX_UNKNOWN_TOKENS {
            assert_eq!(guess(1), 401, "{trusted:?} {header}");
        }
        assert_eq!(guess(1), 429, "{trusted:?} {header}");
        assert_eq!(guess(2), if is_believed { 401 } else { 429 }, "{trusted:?} {header}");
        assert_eq!(stop(child), Some(0));
    }
}
