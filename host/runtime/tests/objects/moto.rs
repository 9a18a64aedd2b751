//! A server of S3 that nobody here wrote: `moto_server`, from the package `moto` of PyPI.

use std::{
    io::{BufRead, BufReader, Write},
    net::TcpListener,
    sync::{Arc, Mutex},
    thread,
};

use flowcell_contract::BlobWriter;
use flowcell_runtime::{
    limits::OBJECT_PART_BYTES,
    objects::{Access, Chosen, Location, Objects},
    sqlite::{SqliteStore, stop_process},
};

use super::{
    age_with, all, begin, content, open_with, refer,
    server::{Moto, moto},
    tenant, write,
};
use crate::stores::backend::Backend;

impl Moto {
    fn access(&self) -> Access {
        access(&format!("http://127.0.0.1:{}", self.port))
    }

    fn objects(&self, bucket: &str) -> Objects {
        Objects::connect(location(bucket), &self.access()).unwrap()
    }
}

fn access(endpoint: &str) -> Access {
    Access {
        key: "THEKEYID".into(),
        secret: "thesecret".into(),
        token: None,
        region: "eu-central-1".into(),
        endpoint: Some(endpoint.to_owned()),
        allows_http: false,
    }
}

fn location(bucket: &str) -> Location {
    Location::parse(&format!("s3://{bucket}/pre/fix")).unwrap()
}

#[test]
fn files_are_uploaded_read_and_removed() {
    let Some(moto) = moto() else { return };
    let (bucket, backend) = (moto.bucket(), Backend::sqlite());
    let open = || open_with(&backend, moto.objects(&bucket));
    let store = open();
    let sizes = [(1 << 20) + 1, OBJECT_PART_BYTES, OBJECT_PART_BYTES + 1, 4 * OBJECT_PART_BYTES + 17];
    let blobs: Vec<_> = (1..).zip(sizes).map(|(seed, size)| write(&store, &content(size, seed))).collect();
    refer(&store, &blobs[3], true);
    store.settle();
    for ((seed, size), blob) in (1..).zip(sizes).zip(&blobs) {
        assert!(all(&*store.blobs, blob) == content(size, seed), "{size}");
    }
    let names = moto.names(&bucket);
    assert_eq!(names.len(), 5, "{names:?}");
    assert!(names.iter().all(|name| name == "pre/fix/flowcell-store" || name.starts_with("pre/fix/t-acme=2F=C3=A9/")));
    let store = age_with(&backend, store, open);
    assert_eq!(store.sweep.sweep(&tenant()).unwrap().blobs, 3);
    assert_eq!(moto.names(&bucket).len(), 2);
    assert!(all(&*store.blobs, &blobs[3]) == content(sizes[3], 4));
}

#[test]
fn a_dropped_upload_leaves_no_parts() {
    let Some(moto) = moto() else { return };
    let (bucket, backend) = (moto.bucket(), Backend::sqlite());
    let store = open_with(&backend, moto.objects(&bucket));
    let writer: Box<dyn BlobWriter> = begin(&store, &content(3 * OBJECT_PART_BYTES, 1));
    assert_eq!(moto.unfinished(&bucket), 1);
    drop(writer);
    // The parts are discarded beside the caller.
    while moto.unfinished(&bucket) > 0 {
        thread::yield_now();
    }
    assert_eq!(moto.names(&bucket), ["pre/fix/flowcell-store"]);
}

#[test]
fn a_content_that_the_store_has_leaves_no_parts() {
    let Some(moto) = moto() else { return };
    let (bucket, backend) = (moto.bucket(), Backend::sqlite());
    let store = open_with(&backend, moto.objects(&bucket));
    let bytes = content(3 * OBJECT_PART_BYTES, 1);
    let blobs = [write(&store, &bytes), write(&store, &bytes)];
    assert_eq!((&blobs[0].file_id, moto.unfinished(&bucket)), (&blobs[1].file_id, 0));
    assert_eq!(moto.names(&bucket).len(), 2);
}

#[test]
fn a_missing_bucket_is_refused() {
    let Some(moto) = moto() else { return };
    let folder = tempfile::tempdir().unwrap();
    let objects = moto.objects("nowhere");
    let error = SqliteStore::open_with(folder.path(), stop_process, &Chosen::Exactly(Some(objects.clone())))
        .err()
        .unwrap()
        .to_string();
    assert!(error.contains("cannot use s3://nowhere/pre/fix: NoSuchBucket"), "{error}");
}

/// A server that repeats everything that it was told is not repeated: its answer has the credentials.
#[test]
fn no_message_has_the_credentials() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let served = Arc::new(Mutex::new(Vec::new()));
    let seen = served.clone();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let lines = BufReader::new(stream.try_clone().unwrap()).lines().map(Result::unwrap);
            let told: Vec<String> = lines.take_while(|line| !line.is_empty()).collect();
            let body = format!(
                "<Error><Code>RequestTimeTooSkewed</Code><Message>The difference between the request time and the server's \
                 time is too large, THEKEYID thesecret.</Message><StringToSign>{}</StringToSign></Error>",
                told.join(" ")
            );
            seen.lock().unwrap().push(told.join("\n"));
            let head =
                "HTTP/1.1 403 Forbidden\r\nContent-Type: application/xml\r\nConnection: close\r\nContent-Length:";
            write!(stream, "{head} {}\r\n\r\n{body}", body.len()).unwrap();
        }
    });
    let objects = Objects::connect(location("bucket"), &access(&format!("http://127.0.0.1:{port}"))).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let error = SqliteStore::open_with(folder.path(), stop_process, &Chosen::Exactly(Some(objects.clone())))
        .err()
        .unwrap()
        .to_string();
    assert!(error.contains("RequestTimeTooSkewed: The difference between"), "{error}");
    let served = served.lock().unwrap().join("\n");
    assert!(
        served.contains("Credential=THEKEYID/") && !served.contains("thesecret"),
        "the request is signed: {served}"
    );
    for hidden in ["THEKEYID", "thesecret", "Signature", "StringToSign"] {
        assert!(!error.contains(hidden) && !format!("{objects:?}").contains(hidden), "{error}");
    }
}

#[test]
fn an_endpoint_without_tls_is_this_machine_or_allowed() {
    for (endpoint, is_used) in [
        ("http://127.0.0.1:1", true),
        ("http://[::1]:1", true),
        ("http://localhost", true),
        ("http://10.0.0.1:9000", false),
        ("http://127.0.0.1.example", false),
        ("http://user@127.0.0.1", false),
        ("https://user:word@s3.example", false),
        ("https://s3.example", true),
        ("https://s3.example:9000/", true),
        ("https://s3.example:90000", false),
        ("https://s3.example?x=y", false),
        ("https://s3 example", false),
        ("https://", false),
        ("s3.example", false),
        ("ftp://s3.example", false),
    ] {
        let connected = Objects::connect(location("bucket"), &access(endpoint));
        assert_eq!(connected.is_ok(), is_used, "{endpoint}: {connected:?}");
    }
    let allowed = Access { allows_http: true, ..access("http://10.0.0.1:9000") };
    assert!(Objects::connect(location("bucket"), &allowed).is_ok());
}
