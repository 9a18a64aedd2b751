//! Keys with spaces, which forms write as `+`. N24 is an attack in the table of `tests/README.md`.

use super::*;

const KEY: &str = "s3cr3t Value+1 x";

/// Encodes bytes as a form does.
fn form(bytes: &[u8]) -> Vec<u8> {
    each(bytes, |byte| match byte {
        b' ' => "+".to_owned(),
        _ if byte.is_ascii_alphanumeric() || b"*-._".contains(&byte) => char::from(byte).to_string(),
        _ => format!("%{byte:02X}"),
    })
}

#[test]
fn n24_a_space_of_a_key_is_found_as_a_plus() {
    let in_login = [b"flow:".to_vec(), form(KEY.as_bytes())].concat();
    let random = &mut StdRng::seed_from_u64(1);
    let table = [
        KEY.as_bytes().to_vec(),
        b"s3cr3t+Value%2B1+x".to_vec(),
        b"s3cr3t%20Value%2b1%20x".to_vec(),
        b"S3CR3T+VALUE+1+X".to_vec(),
        // Forms in escapes.
        b"s3cr3t%2BValue%252B1%2Bx".to_vec(),
        b"s3cr3t\\u002bValue%2B1\\u002Bx".to_vec(),
        b"s3cr3t&#43;Value%2B1&plus;x".to_vec(),
        b"s3cr3t%252BValue%25252B1%252Bx".to_vec(),
        // A server has decoded the form twice.
        b"s3cr3t Value 1 x".to_vec(),
    ];
    for sent in table {
        let hidden = now(redaction(KEY).bytes([b"a=".to_vec(), sent.clone(), b"&b".to_vec()].concat()));
        assert_eq!(String::from_utf8_lossy(&hidden), "a=[key]&b", "{}", String::from_utf8_lossy(&sent));
    }
    for sent in [base64(&in_login, random, b"+/"), each(&in_login, |byte| format!("{byte:02x}")), gzip(&in_login)] {
        let hidden = now(redaction(KEY).bytes(sent.clone()));
        assert!(has(&hidden, b"[key]") && hidden.len() < 16, "{}", String::from_utf8_lossy(&hidden));
    }
    assert_eq!(now(redaction(" s3cr3t x").text("a=+s3cr3t+x")), "a=[key]");
    let other = "s3cr3t-Value+1 x s3cr3t++Value+1 x";
    assert_eq!(now(redaction(KEY).text(other)), other, "a space is no other character, and not two");
}

#[test]
fn n24_a_key_with_a_space_is_found_in_a_location() {
    let mut headers = HeaderMap::new();
    headers.insert("location", "https://a.example/?key=s3cr3t+Value%2B1+x&n=1".parse().unwrap());
    now(redaction(KEY).headers(&mut headers));
    assert_eq!(headers["location"], "https://a.example/?key=[key]&n=1");
}

#[test]
fn n24_random_keys_with_spaces_are_found_in_encoded_forms() {
    for number in 0..CASES / 10 {
        let random = &mut StdRng::seed_from_u64(number);
        let key = format!("{} {}", key(random), key(random));
        for (name, encode) in TEXT_ENCODERS {
            let sent = [b"a=".to_vec(), form(key.as_bytes()), b"&b=1".to_vec()].concat();
            let sent = encode(&sent, random);
            let how = format!("{name} of a form");
            let case = Case { key: key.clone(), how, sent };
            let hidden = now(redaction(&key).bytes(case.sent.clone()));
            assert!(!leaks_key(&hidden, &case), "case {number}: {key} as {}", case.how);
        }
    }
}
