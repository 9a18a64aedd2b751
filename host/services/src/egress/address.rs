//! Distinguishes public from private addresses, and parses the ranges of private addresses that the operator permits.

use std::{
    fmt,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    str::FromStr,
};

/// The networks of IPv4 that are not public: address, length of the prefix in bits, and description for people.
const NOT_PUBLIC_V4: [(Ipv4Addr, u8, &str); 16] = [
    (Ipv4Addr::new(0, 0, 0, 0), 8, "this host"),
    (Ipv4Addr::new(10, 0, 0, 0), 8, "a private network"),
    (Ipv4Addr::new(100, 64, 0, 0), 10, "a carrier's network"),
    (Ipv4Addr::new(127, 0, 0, 0), 8, LOOPBACK),
    (Ipv4Addr::new(168, 63, 129, 16), 32, "a cloud's own service"),
    (Ipv4Addr::new(169, 254, 0, 0), 16, "link-local"),
    (Ipv4Addr::new(172, 16, 0, 0), 12, "a private network"),
    (Ipv4Addr::new(192, 0, 0, 0), 24, "reserved"),
    (Ipv4Addr::new(192, 0, 2, 0), 24, "for documentation"),
    (Ipv4Addr::new(192, 88, 99, 0), 24, "reserved"),
    (Ipv4Addr::new(192, 168, 0, 0), 16, "a private network"),
    (Ipv4Addr::new(198, 18, 0, 0), 15, "for benchmarks"),
    (Ipv4Addr::new(198, 51, 100, 0), 24, "for documentation"),
    (Ipv4Addr::new(203, 0, 113, 0), 24, "for documentation"),
    (Ipv4Addr::new(224, 0, 0, 0), 4, "multicast"),
    (Ipv4Addr::new(240, 0, 0, 0), 4, "reserved"),
];

/// The networks inside 2000::/3 that are not public. No address outside of 2000::/3 is public.
const NOT_PUBLIC_V6: [(Ipv6Addr, u8, &str); 3] = [
    // Teredo, ORCHID, benchmarking and other protocol assignments.
    (Ipv6Addr::new(0x2001, 0, 0, 0, 0, 0, 0, 0), 23, "reserved"),
    (Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 0), 32, "for documentation"),
    (Ipv6Addr::new(0x3fff, 0, 0, 0, 0, 0, 0, 0), 20, "for documentation"),
];

/// Networks outside of 2000::/3, with descriptions for people.
const NAMED_V6: [(Ipv6Addr, u8, &str); 5] = [
    (Ipv6Addr::LOCALHOST, 128, LOOPBACK),
    (Ipv6Addr::UNSPECIFIED, 128, "this host"),
    (Ipv6Addr::new(0xfc00, 0, 0, 0, 0, 0, 0, 0), 7, "a private network"),
    (Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 0), 10, "link-local"),
    (Ipv6Addr::new(0xff00, 0, 0, 0, 0, 0, 0, 0), 8, "multicast"),
];

/// The description of loopback addresses. If a name resolves to a private address, the message to the node has
/// the address itself only if it is loopback: other addresses reveal something about the operator's network. The
/// message always has the kind of the address.
pub(super) const LOOPBACK: &str = "loopback";

/// Returns the description of a private address, or `None` for a public one. An IPv6 address that contains an IPv4
/// address (mapped, NAT64, 6to4) is judged by the IPv4 address.
pub(super) fn private_kind(address: IpAddr) -> Option<&'static str> {
    match address.to_canonical() {
        IpAddr::V4(address) => private_kind_v4(address),
        IpAddr::V6(address) => private_kind_v6(address),
    }
}

fn private_kind_v4(address: Ipv4Addr) -> Option<&'static str> {
    let covers = |(network, prefix, _): &&(Ipv4Addr, u8, &str)| covers_v4(*network, *prefix, address);
    NOT_PUBLIC_V4.iter().find(covers).map(|(_, _, words)| *words)
}

fn private_kind_v6(address: Ipv6Addr) -> Option<&'static str> {
    if let Some(inner) = embedded(address) {
        return private_kind_v4(inner);
    }
    let covers = |(network, prefix, _): &&(Ipv6Addr, u8, &str)| covers_v6(*network, *prefix, address);
    if covers_v6(Ipv6Addr::new(0x2000, 0, 0, 0, 0, 0, 0, 0), 3, address) {
        return NOT_PUBLIC_V6.iter().find(covers).map(|(_, _, words)| *words);
    }
    Some(NAMED_V6.iter().find(covers).map_or("reserved", |(_, _, words)| *words))
}

/// Returns the IPv4 address inside a NAT64 or 6to4 address.
fn embedded(address: Ipv6Addr) -> Option<Ipv4Addr> {
    let [a, b, .., c, d] = address.segments();
    match (a, b, &address.segments()[2..6]) {
        (0x64, 0xff9b, [0, 0, 0, 0]) => Some(ipv4_from_halves(c, d)),
        (0x2002, high, [low, ..]) => Some(ipv4_from_halves(high, *low)),
        _ => None,
    }
}

fn ipv4_from_halves(high: u16, low: u16) -> Ipv4Addr {
    Ipv4Addr::from_bits(u32::from(high) << 16 | u32::from(low))
}

fn covers_v4(network: Ipv4Addr, prefix: u8, address: Ipv4Addr) -> bool {
    let mask = u32::MAX.checked_shl(32 - u32::from(prefix)).unwrap_or(0);
    network.to_bits() & mask == address.to_bits() & mask
}

fn covers_v6(network: Ipv6Addr, prefix: u8, address: Ipv6Addr) -> bool {
    let mask = u128::MAX.checked_shl(128 - u32::from(prefix)).unwrap_or(0);
    network.to_bits() & mask == address.to_bits() & mask
}

/// A range of private addresses that connections may reach: `127.0.0.1`, `127.0.0.1:8080`, `10.0.0.0/8`,
/// `10.0.0.0/8:8000`, `::1`, `fd00::/8`, `[::1]:8080`, `[fd00::/8]:8000`. Without a port, it covers every port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AddressRange {
    network: IpAddr,
    prefix: u8,
    port: Option<u16>,
}

impl AddressRange {
    /// Returns true if the range covers this address and port.
    pub fn covers(&self, address: IpAddr, port: u16) -> bool {
        let same_port = self.port.is_none_or(|own| own == port);
        same_port
            && match (self.network, address.to_canonical()) {
                (IpAddr::V4(network), IpAddr::V4(address)) => covers_v4(network, self.prefix, address),
                (IpAddr::V6(network), IpAddr::V6(address)) => covers_v6(network, self.prefix, address),
                _ => false,
            }
    }

    /// Returns the number of bits in an address of this family.
    fn address_bits(network: IpAddr) -> u8 {
        if network.is_ipv4() { 32 } else { 128 }
    }
}

impl FromStr for AddressRange {
    type Err = String;

    fn from_str(text: &str) -> Result<AddressRange, String> {
        let wrong = || format!("`{text}` is not an address such as `127.0.0.1:8080`, `10.0.0.0/8` or `[::1]:8080`");
        let (network, port) = split_port(text).ok_or_else(wrong)?;
        let (address, prefix) = match network.split_once('/') {
            Some((address, prefix)) => (address, Some(prefix)),
            None => (network, None),
        };
        let address = address.parse::<IpAddr>().map_err(|_| wrong())?.to_canonical();
        let width = AddressRange::address_bits(address);
        let prefix = prefix.map_or(Some(width), |prefix| prefix.parse().ok()).ok_or_else(wrong)?;
        let port = port.map(str::parse).transpose().map_err(|_| wrong())?;
        if prefix > width {
            return Err(format!("`{text}` has a prefix of more than {width} bits"));
        }
        Ok(AddressRange { network: address, prefix, port })
    }
}

/// Splits a range from its port, if it has one. IPv6 needs brackets before a port. Returns `None` if the brackets are
/// wrong.
fn split_port(text: &str) -> Option<(&str, Option<&str>)> {
    if let Some(rest) = text.strip_prefix('[') {
        let (network, port) = rest.split_once(']')?;
        return match port {
            "" => Some((network, None)),
            _ => Some((network, Some(port.strip_prefix(':')?))),
        };
    }
    match text.matches(':').count() {
        1 => text.split_once(':').map(|(network, port)| (network, Some(port))),
        _ => Some((text, None)),
    }
}

impl fmt::Display for AddressRange {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = self.network.to_string();
        if self.prefix != AddressRange::address_bits(self.network) {
            text = format!("{text}/{}", self.prefix);
        }
        match self.port {
            Some(port) if self.network.is_ipv6() => write!(formatter, "[{text}]:{port}"),
            Some(port) => write!(formatter, "{text}:{port}"),
            None => formatter.write_str(&text),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_private_range_is_recognised() {
        let table = [
            ("0.0.0.0", "this host"),
            ("0.255.255.255", "this host"),
            ("10.0.0.1", "a private network"),
            ("100.64.0.1", "a carrier's network"),
            ("100.127.255.255", "a carrier's network"),
            ("127.0.0.1", LOOPBACK),
            ("127.255.255.254", LOOPBACK),
            ("168.63.129.16", "a cloud's own service"),
            ("169.254.169.254", "link-local"),
            ("172.16.0.1", "a private network"),
            ("172.31.255.255", "a private network"),
            ("192.0.0.170", "reserved"),
            ("192.0.2.1", "for documentation"),
            ("192.88.99.1", "reserved"),
            ("192.168.1.1", "a private network"),
            ("198.18.0.1", "for benchmarks"),
            ("198.19.255.255", "for benchmarks"),
            ("198.51.100.7", "for documentation"),
            ("203.0.113.7", "for documentation"),
            ("224.0.0.1", "multicast"),
            ("239.255.255.255", "multicast"),
            ("240.0.0.1", "reserved"),
            ("255.255.255.255", "reserved"),
            ("::", "this host"),
            ("::1", LOOPBACK),
            ("::7f00:1", "reserved"),
            ("::ffff:127.0.0.1", LOOPBACK),
            ("::ffff:169.254.169.254", "link-local"),
            ("::ffff:0:127.0.0.1", "reserved"),
            ("64:ff9b::7f00:1", LOOPBACK),
            ("64:ff9b::169.254.169.254", "link-local"),
            ("64:ff9b:1::8.8.8.8", "reserved"),
            ("100::1", "reserved"),
            ("2001::1", "reserved"),
            ("2001:0:4136:e378:8000:63bf:3fff:fdd2", "reserved"),
            ("2001:2::1", "reserved"),
            ("2001:20::1", "reserved"),
            ("2001:db8::1", "for documentation"),
            ("2002:7f00:1::", LOOPBACK),
            ("2002:a9fe:a9fe::1", "link-local"),
            ("3fff::1", "for documentation"),
            ("4000::1", "reserved"),
            ("5f00::1", "reserved"),
            ("fc00::1", "a private network"),
            ("fd00:ec2::254", "a private network"),
            ("fe80::1", "link-local"),
            ("fec0::1", "reserved"),
            ("ff02::1", "multicast"),
        ];
        for (address, words) in table {
            assert_eq!(private_kind(address.parse().unwrap()), Some(words), "{address}");
        }
    }

    #[test]
    fn addresses_just_outside_of_private_ranges_are_public() {
        let table = [
            "1.0.0.0",
            "8.8.8.8",
            "9.255.255.255",
            "11.0.0.0",
            "100.63.255.255",
            "100.128.0.0",
            "126.255.255.255",
            "128.0.0.0",
            "168.63.129.15",
            "168.63.129.17",
            "169.253.255.255",
            "169.255.0.0",
            "172.15.255.255",
            "172.32.0.0",
            "192.0.1.0",
            "192.0.3.0",
            "192.167.255.255",
            "192.169.0.0",
            "198.17.255.255",
            "198.20.0.0",
            "223.255.255.255",
            "2000::1",
            "2001:200::1",
            "2001:4860:4860::8888",
            "2002:808:808::1",
            "2606:4700::1111",
            "3ffe:ffff::1",
            "64:ff9b::8.8.8.8",
            "::ffff:8.8.8.8",
        ];
        for address in table {
            assert_eq!(private_kind(address.parse().unwrap()), None, "{address}");
        }
    }

    #[test]
    fn ranges_are_written_with_and_without_prefix_and_port() {
        let table = [
            ("127.0.0.1", "127.0.0.1", 1, true),
            ("127.0.0.1", "127.0.0.2", 1, false),
            ("127.0.0.1:8080", "127.0.0.1", 8080, true),
            ("127.0.0.1:8080", "127.0.0.1", 8081, false),
            ("127.0.0.1:8080", "::ffff:127.0.0.1", 8080, true),
            ("10.0.0.0/8", "10.200.0.1", 443, true),
            ("10.0.0.0/8:8000", "10.200.0.1", 443, false),
            ("0.0.0.0/0", "10.0.0.1", 443, true),
            ("0.0.0.0/0", "::1", 443, false),
            ("::1", "::1", 443, true),
            ("[::1]:8080", "::1", 8080, true),
            ("[::1]:8080", "::1", 8081, false),
            ("fd00::/8", "fd12::1", 443, true),
            ("[fd00::/8]:8000", "fd12::1", 443, false),
            ("::/0", "fe80::1", 443, true),
        ];
        for (range, address, port, expected) in table {
            let parsed: AddressRange = range.parse().unwrap();
            assert_eq!(parsed.covers(address.parse().unwrap(), port), expected, "{range} {address} {port}");
            assert_eq!(parsed.to_string(), range);
        }
    }

    #[test]
    fn malformed_ranges_are_refused() {
        let table = [
            "",
            "localhost",
            "10.0.0.0/33",
            "10.0.0.0/",
            "10.0.0.0/-1",
            "127.0.0.1:",
            "127.0.0.1:99999",
            "[::1",
            "[::1]8080",
            "::/129",
            "*:80",
        ];
        for text in table {
            assert!(text.parse::<AddressRange>().is_err(), "{text}");
        }
    }
}
