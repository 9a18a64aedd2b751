//! A grant under a policy never reaches a URL that the policy refuses.

use flowcell_contract::Json;
use flowcell_services::egress::{Destination, Egress, OriginGrants};
use rand::{RngExt, SeedableRng, rngs::StdRng};

use crate::outside::kit::policy;

/// Number of combinations of a policy, a grant and a URL.
const ROUNDS: usize = 200_000;
/// Minimum number of combinations in which the policy allows the grant and the grant covers the URL. With fewer, the
/// test would show little.
const MIN_REACHED: usize = 300;

const SCHEMES: [&str; 2] = ["https", "http"];
const HOSTS: [&str; 12] = [
    "a.test",
    "A.Test",
    "x.a.test",
    "y.x.a.test",
    "xa.test",
    "a.test.evil.test",
    "evil.test",
    "b.a.test",
    "127.0.0.1",
    "0x7f.1",
    "[::1]",
    "*.a.test",
];
const PORTS: [&str; 5] = ["", "", ":443", ":80", ":8443"];
const SEGMENTS: [&str; 16] = [
    "v1",
    "v1",
    "v1",
    "users",
    "users",
    "admin",
    "..",
    ".",
    "%2e%2e",
    ".%2E",
    "%76%31",
    "..%2fadmin",
    "*",
    "",
    "..;x",
    "x.a.test",
];

/// A policy, as text and in parts. From the parts the test decides, independently of the guard, whether the policy
/// allows a destination.
struct Operator {
    text: String,
    scheme: &'static str,
    host: &'static str,
    port: &'static str,
    path: Vec<&'static str>,
}

impl Operator {
    fn roll(dice: &mut StdRng) -> Operator {
        let scheme = one(dice, &["https", "http", "*"]);
        let host = one(dice, &["a.test", "*.a.test", "*", "127.0.0.1", "*.x.a.test"]);
        let port = one(dice, &["", "", ":8443", ":*"]);
        let path: Vec<_> = (0..dice.random_range(0..3)).map(|_| one(dice, &["v1", "users", "*", "x.a.test"])).collect();
        let text = path.iter().fold(format!("{scheme}://{host}{port}"), |text, segment| format!("{text}/{segment}"));
        Operator { text, scheme, host, port, path }
    }

    fn allows(&self, to: &Destination) -> bool {
        let (scheme, host) = (to.url().scheme(), to.url().host_str().unwrap());
        let port = to.url().port_or_known_default().unwrap();
        let at_port = match (self.port, self.host, self.scheme) {
            (":*", _, _) | ("", "*", _) => true,
            ("", ..) => port == if scheme == "https" { 443 } else { 80 },
            (named, ..) => format!(":{port}") == named,
        };
        let of_host = match self.host.strip_prefix('*') {
            Some(end) => host.len() > end.len() && host.ends_with(end),
            None => host == self.host,
        };
        at_port && of_host && (self.scheme == "*" || self.scheme == scheme) && self.allows_path(to.url().path())
    }

    /// Returns true if the policy allows a path. Decodes the path and then resolves it, as some servers do.
    fn allows_path(&self, path: &str) -> bool {
        let path = path.replace("%76", "v").replace("%31", "1").replace("%2f", "/").replace("%2F", "/");
        let path = path.replace("%2e", ".").replace("%2E", ".").replacen('/', "", 1);
        let mut resolved = Vec::new();
        for segment in path.split('/') {
            match segment.split(';').next().unwrap() {
                ".." => _ = resolved.pop(),
                "." => {}
                _ => resolved.push(segment),
            }
        }
        let mut own = self.path.as_slice();
        if let Some(("*", rest)) = own.split_last().map(|(last, rest)| (*last, rest)) {
            own = rest;
        }
        resolved.len() >= own.len() && own.iter().zip(resolved).all(|(own, segment)| *own == "*" || *own == segment)
    }
}

fn one(dice: &mut StdRng, list: &[&'static str]) -> &'static str {
    list[dice.random_range(0..list.len())]
}

/// Returns a random grant or URL whose path has at most `segments` segments.
fn address(dice: &mut StdRng, segments: usize) -> String {
    let origin = format!("{}://{}{}", one(dice, &SCHEMES), one(dice, &HOSTS), one(dice, &PORTS));
    (0..dice.random_range(0..=segments)).fold(origin, |text, _| format!("{text}/{}", one(dice, &SEGMENTS)))
}

#[test]
fn no_grant_under_a_policy_reaches_what_the_policy_refuses() {
    let egress = Egress::new(policy(&["127.0.0.1", "::1"])).unwrap();
    let mut dice = StdRng::seed_from_u64(20);
    let mut reached = 0;
    for _ in 0..ROUNDS {
        let operator = Operator::roll(&mut dice);
        let allowed = OriginGrants::from_policy(&operator.text).unwrap();
        let (grant, url) = (address(&mut dice, 3), address(&mut dice, 5));
        let Ok(granted) = OriginGrants::parse(&Json::from(grant.as_str())) else { continue };
        if allowed.first_not_contained(&granted).is_some() {
            continue;
        }
        // Most URLs begin with the grant or with the policy, because few would be granted otherwise.
        let url = match dice.random_range(0..4) {
            0 => url,
            _ => format!("{}/{}", grant.replace("*.", "x."), url.splitn(4, '/').nth(3).unwrap_or_default()),
        };
        let Ok(to) = egress.admit(&url, &granted) else { continue };
        reached += 1;
        assert!(operator.allows(&to), "policy {}, grant {grant}, URL {url}, sent {}", operator.text, to.url());
    }
    assert!(reached > MIN_REACHED, "only {reached} URLs were granted");
}
