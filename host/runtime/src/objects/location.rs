//! The address of the objects of a store, and the settings of the environment for it.

use std::fmt;

use flowcell_contract::Tenant;

use crate::limits::MAX_OBJECT_PREFIX_BYTES;

/// The scheme of an address.
const SCHEME: &str = "s3://";

/// An address of objects: `s3://BUCKET[/PREFIX]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Location {
    bucket: String,
    /// The beginning of all names, without slashes at its ends. It may be empty.
    prefix: String,
}

/// The reason why an address cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LocationError {
    /// The address has another form.
    #[error("the address of blobs has another form than `s3://BUCKET` or `s3://BUCKET/PREFIX`")]
    Form,
    /// The address has credentials.
    #[error(
        "the address of blobs has a `@`, as if it had credentials: give `s3://BUCKET/PREFIX`, and the key in \
         `AWS_ACCESS_KEY_ID` and `AWS_SECRET_ACCESS_KEY`"
    )]
    Credentials,
    /// The name of the bucket is not one that S3 accepts.
    #[error(
        "the name of a bucket has 3 to 63 characters: a to z, 0 to 9, `-` and `.`, with a letter or digit at each end"
    )]
    Bucket,
    /// The prefix has a part that is empty, `.` or `..`, or it has other characters.
    #[error(
        "the prefix of blobs has parts of A to Z, a to z, 0 to 9, `-`, `_` and `.` with `/` between them, no part is `.` \
         or `..`, and it has at most {MAX_OBJECT_PREFIX_BYTES} bytes"
    )]
    Prefix,
}

impl Location {
    /// Parses an address. Its text is not in an error, because it may have a password.
    pub fn parse(text: &str) -> Result<Location, LocationError> {
        if text.contains('@') {
            return Err(LocationError::Credentials);
        }
        let rest = text.strip_prefix(SCHEME).ok_or(LocationError::Form)?;
        let (bucket, prefix) = rest.split_once('/').unwrap_or((rest, ""));
        let is_end = |byte: Option<&u8>| byte.is_some_and(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit());
        let bytes = bucket.as_bytes();
        let known = |byte: &u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || matches!(byte, b'-' | b'.');
        let is_bucket = (3..=63).contains(&bytes.len()) && bytes.iter().all(known) && !bucket.contains("..");
        if !is_bucket || !is_end(bytes.first()) || !is_end(bytes.last()) {
            return Err(LocationError::Bucket);
        }
        let inner = prefix.strip_suffix('/').unwrap_or(prefix);
        let known = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
        let is_part = |part: &str| !matches!(part, "" | "." | "..") && part.bytes().all(known);
        if inner.len() > MAX_OBJECT_PREFIX_BYTES || (!prefix.is_empty() && !inner.split('/').all(is_part)) {
            return Err(LocationError::Prefix);
        }
        Ok(Location { bucket: bucket.to_owned(), prefix: inner.to_owned() })
    }

    /// Returns the name of the bucket.
    pub fn bucket(&self) -> &str {
        &self.bucket
    }

    /// Returns the name of an object that belongs to no tenant.
    pub(super) fn object(&self, name: &str) -> String {
        match &*self.prefix {
            "" => name.to_owned(),
            prefix => format!("{prefix}/{name}"),
        }
    }

    /// Returns the beginning of the names of a tenant's objects, without a slash at its end. No two tenants have the
    /// same one, and none has that of another at its beginning.
    pub(super) fn folder_of(&self, tenant: &Tenant) -> String {
        let mut name = String::from("t-");
        for byte in tenant.as_str().bytes() {
            match byte {
                b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' => name.push(char::from(byte)),
                _ => name.push_str(&format!("={byte:02X}")),
            }
        }
        self.object(&name)
    }

    /// Returns the name of an object of a tenant.
    pub(super) fn of(&self, tenant: &Tenant, name: &str) -> String {
        format!("{}/{name}", self.folder_of(tenant))
    }
}

impl fmt::Display for Location {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{SCHEME}{}", self.bucket)?;
        if self.prefix.is_empty() { Ok(()) } else { write!(formatter, "/{}", self.prefix) }
    }
}

/// The settings with which a process uses an object store. They are never printed.
#[derive(Clone, PartialEq, Eq)]
pub struct Access {
    /// The id of the key.
    pub key: String,
    /// The secret of the key.
    pub secret: String,
    /// The token of a temporary key.
    pub token: Option<String>,
    /// The region of the bucket.
    pub region: String,
    /// The address of a server that is not that of Amazon.
    pub endpoint: Option<String>,
    /// Whether an endpoint other than this machine may be used without TLS.
    pub allows_http: bool,
}

impl fmt::Debug for Access {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Access({}, {:?})", self.region, self.endpoint)
    }
}

impl Access {
    /// Reads the settings by the names that other programs for S3 use. `variable` returns the value of a variable of the
    /// environment. The error names the variable that is missing or invalid, and never has its value.
    pub fn read(variable: impl Fn(&str) -> Option<String>) -> Result<Access, String> {
        let read = |name: &str| variable(name).filter(|value| !value.is_empty());
        // All values but the secret are sent in the headers or the addresses of requests.
        let word = |name: &str, is_allowed: fn(char) -> bool| match read(name) {
            Some(value) if !value.chars().all(is_allowed) => Err(format!(
                "the variable `{name}` has a line break or another letter that no such value has: correct it"
            )),
            value => Ok(value),
        };
        let is_graphic = |letter: char| letter.is_ascii_graphic();
        let needed = |name: &str, is_allowed: fn(char) -> bool| {
            word(name, is_allowed)?
                .ok_or_else(|| format!("files in an object store need the variable `{name}`: set it"))
        };
        let either = |[one, other]: [&str; 2]| match word(one, is_graphic)? {
            None => word(other, is_graphic),
            found => Ok(found),
        };
        Ok(Access {
            key: needed("AWS_ACCESS_KEY_ID", is_graphic)?,
            secret: needed("AWS_SECRET_ACCESS_KEY", |letter| !letter.is_control())?,
            token: word("AWS_SESSION_TOKEN", is_graphic)?,
            region: either(["AWS_REGION", "AWS_DEFAULT_REGION"])?.unwrap_or_else(|| "us-east-1".into()),
            endpoint: either(["AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL"])?,
            allows_http: read("AWS_ALLOW_HTTP").is_some_and(|value| value.eq_ignore_ascii_case("true")),
        })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

    use super::*;

    #[test]
    fn an_address_has_a_bucket_and_a_prefix_that_stays_in_it() {
        for (text, shown, mark) in [
            ("s3://files", "s3://files", "m"),
            ("s3://files/", "s3://files", "m"),
            ("s3://my.files-1/a/B_2", "s3://my.files-1/a/B_2", "a/B_2/m"),
            ("s3://files/a..b/", "s3://files/a..b", "a..b/m"),
        ] {
            let location = Location::parse(text).unwrap();
            assert_eq!((location.to_string().as_str(), location.object("m").as_str()), (shown, mark));
            assert_eq!(Location::parse(&location.to_string()).unwrap(), location);
        }
        for text in ["", "files", "http://files", "S3://files", "file:///tmp"] {
            assert_eq!(Location::parse(text), Err(LocationError::Form), "{text}");
        }
        let long = format!("s3://{}", "a".repeat(64));
        for text in ["s3://", "s3://ab", "s3://Files", "s3://-files", "s3://a..b", "s3://key:secret", "s3:///a", &long]
        {
            assert_eq!(Location::parse(text), Err(LocationError::Bucket), "{text}");
        }
        for text in ["s3://key:secret@files", "https://key:secret@files/a", "s3://files/a@b"] {
            assert_eq!(Location::parse(text), Err(LocationError::Credentials), "{text}");
        }
        let long = format!("s3://files/{}", "a".repeat(129));
        let strange = ["/../x", "/a/../b", "/a/./b", "/a//b", "/a%2Fb", "/a?x", "/a b", "/é", "/a\u{0}", "//", "/a//"];
        for text in strange.map(|prefix| format!("s3://files{prefix}")).iter().chain([&long]) {
            assert_eq!(Location::parse(text), Err(LocationError::Prefix), "{text}");
        }
    }

    #[test]
    fn no_two_tenants_share_a_name() {
        let location = Location::parse("s3://files/p").unwrap();
        let folder = |tenant: &str| location.folder_of(&Tenant::from(tenant));
        assert_eq!((folder("acme"), folder("Acme")), ("p/t-acme".into(), "p/t-Acme".into()));
        assert_eq!(folder("../a=b/é"), "p/t-=2E=2E=2Fa=3Db=2F=C3=A9");
        assert_ne!(folder("a=2Fb"), folder("a/b"));
        assert_eq!(folder(""), "p/t-");
    }

    #[test]
    fn the_settings_are_read_and_never_shown() {
        let set = [("AWS_ACCESS_KEY_ID", "key"), ("AWS_SECRET_ACCESS_KEY", "hidden"), ("AWS_ENDPOINT_URL", "http://a")];
        let read = |without: &str| {
            let of = |name: &str| set.iter().find(|(known, _)| *known == name && name != without);
            Access::read(|name| of(name).map(|(_, value)| (*value).to_owned()))
        };
        let access = read("").unwrap();
        assert_eq!((&*access.region, access.endpoint.as_deref()), ("us-east-1", Some("http://a")));
        let shown = format!("{access:?}");
        assert!(!shown.contains("key") && !shown.contains("hidden"), "{shown}");
        let missing = read("AWS_SECRET_ACCESS_KEY").unwrap_err();
        assert!(missing.contains("AWS_SECRET_ACCESS_KEY") && !missing.contains("hidden"), "{missing}");
        for (name, value, is_used) in [
            ("AWS_ACCESS_KEY_ID", "hidden\n", false),
            ("AWS_ACCESS_KEY_ID", "hiddené", false),
            ("AWS_SECRET_ACCESS_KEY", "hidden\r\n", false),
            ("AWS_SECRET_ACCESS_KEY", "hidden and é", true),
            ("AWS_SESSION_TOKEN", "hidden\n", false),
            ("AWS_REGION", "eu hidden", false),
            ("AWS_DEFAULT_REGION", "eu\thidden", false),
            ("AWS_ENDPOINT_URL", "http://hidden:80 80", false),
            ("AWS_ENDPOINT_URL", "http://hidden", true),
        ] {
            let of = |asked: &str| set.iter().find(|(known, _)| *known == asked).map(|(_, value)| (*value).to_owned());
            let read = Access::read(|asked| if asked == name { Some(value.to_owned()) } else { of(asked) });
            assert_eq!(read.is_ok(), is_used, "{name}");
            let told = read.err().unwrap_or_default();
            assert!(is_used || (told.contains(name) && !told.contains("hidden")), "{told}");
        }
    }
}
