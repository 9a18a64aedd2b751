//! Addresses, settings and places that are refused.

use super::{Place, in_folder, json, told};
use crate::kit::for_each_at_once;

const PASSWORD: &str = "hunter2";

fn refused(place: &Place, address: &str, variables: &[(&str, &str)]) -> String {
    let mut command = place.command(&["run", "hand.yaml", "--quiet", "--blobs", address]);
    let output = command.envs(variables.iter().copied()).output().unwrap();
    let told = told(&output, 2);
    assert!(!told.contains(PASSWORD) && !told.contains("panicked"), "{address} {variables:?}: {told}");
    told
}

#[test]
fn addresses_that_are_no_bucket_with_a_prefix_are_refused() {
    let Some(place) = in_folder() else { return };
    let (name, prefix) = ("`--blobs`: the name of a bucket has 3 to 63", "`--blobs`: the prefix of blobs has parts of");
    let (form, key) =
        ("`--blobs`: the address of blobs has another form than `s3://BUCKET`", "the key in `AWS_ACCESS_KEY_ID`");
    let long = format!("s3://files/{}", "a".repeat(129));
    let cases = [
        ("s3://", name),
        ("s3://ab", name),
        ("s3://Files", name),
        ("s3://a..b/x", name),
        ("s3://-files", name),
        ("s3://../x", name),
        ("s3://files:9000/x", name),
        ("s3://fi\u{1b}[2Jles", name),
        ("s3://files/../x", prefix),
        ("s3://files/x/..", prefix),
        ("s3://files/./x", prefix),
        ("s3://files//x", prefix),
        ("s3://files/a b", prefix),
        ("s3://files/a?x=y", prefix),
        ("s3://files/é", prefix),
        (&long, prefix),
        ("files/x", form),
        ("https://files.example/x", form),
        ("file:///tmp/x", form),
        ("s3://user:hunter2@files/x", key),
        ("https://user:hunter2@files.example/x", key),
    ];
    for_each_at_once(&cases, |&(address, why)| {
        let told = refused(&place, address, &[]);
        assert!(told.contains(why), "{address}: {told}");
    });
    assert!(!place.path().join(".flowcell").exists(), "no store was made");
    // A bucket may have dots.
    place.write("large.bin", 2 << 20);
    let dotted = format!("dotted.{}-1", place.bucket);
    super::exchange(place.moto.port, &format!("PUT /{dotted}"), "", &[]);
    let address = format!("s3://{dotted}/a..b/_/");
    let told = place.done(&["run", "hand.yaml", "-i", "file=@large.bin", "--quiet", "--blobs", &address]);
    let names = place.moto.names(&dotted);
    assert!(names.len() == 2 && names.iter().all(|name| name.starts_with("a..b/_/")), "{names:?}");
    place.assert_read(&json(&told)["file"], "large.bin");
}

#[test]
fn settings_that_no_request_can_have_are_refused() {
    let Some(place) = in_folder() else { return };
    let (form, letter) = ("`AWS_ENDPOINT_URL` has another form than", "has a line break or another letter");
    let cases = [
        ("AWS_ACCESS_KEY_ID", "", "need the variable `AWS_ACCESS_KEY_ID`"),
        ("AWS_SECRET_ACCESS_KEY", "", "need the variable `AWS_SECRET_ACCESS_KEY`"),
        ("AWS_ACCESS_KEY_ID", "hunter2\n", letter),
        ("AWS_SECRET_ACCESS_KEY", "hunter2\r\n", letter),
        ("AWS_SESSION_TOKEN", "hunter2\n", letter),
        ("AWS_REGION", "eu hunter2", letter),
        ("AWS_ENDPOINT_URL", "http://127.0.0.1:1 hunter2", letter),
        ("AWS_ENDPOINT_URL", "http://", form),
        ("AWS_ENDPOINT_URL", "127.0.0.1:9000", form),
        ("AWS_ENDPOINT_URL", "ftp://127.0.0.1", form),
        ("AWS_ENDPOINT_URL", "http://127.0.0.1:90000", form),
        ("AWS_ENDPOINT_URL", "http://127.0.0.1:1/?a=hunter2", form),
        ("AWS_ENDPOINT_URL", "http://user:hunter2@127.0.0.1:1", "`AWS_ENDPOINT_URL` has a user or a password"),
        ("AWS_ENDPOINT_URL", "https://user:hunter2@s3.example", "`AWS_ENDPOINT_URL` has a user or a password"),
        ("AWS_ENDPOINT_URL", "http://10.0.0.1:9000", "`AWS_ENDPOINT_URL` is without TLS"),
    ];
    for_each_at_once(&cases, |&(variable, value, why)| {
        let told = refused(&place, &place.address(), &[(variable, value)]);
        assert!(told.contains(why), "{variable} {value:?}: {told}");
    });
    assert_eq!(place.moto.names(&place.bucket), Vec::<String>::new(), "no request was sent");
}

#[test]
fn a_prefix_has_the_files_of_one_store() {
    let (Some(place), Some(other)) = (in_folder(), in_folder()) else { return };
    for place in [&place, &other] {
        place.write("large.bin", 2 << 20);
    }
    place.run("a", "large.bin");
    let told = refused(&other, &place.address(), &[]);
    assert!(told.contains("has the files of another store: choose another prefix or another bucket"), "{told}");
    assert_eq!(place.objects().len(), 1);
    // A prefix below the other one, even where that store has the files of a tenant, is another place.
    let below = format!("{}/t-local", place.address());
    let told = other.done(&["run", "hand.yaml", "-i", "file=@large.bin", "--quiet", "--blobs", &below]);
    place.done(&["runs", "gc", "--keep", "0"]);
    other.assert_read(&json(&told)["file"], "large.bin");
    assert_eq!(place.objects().len(), 1);
}
