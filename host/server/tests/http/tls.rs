//! Tests TLS: versions and protocols, handshakes that do not end, and clients that do not speak TLS.

use std::{
    io::{BufReader, Read, Write},
    net::{SocketAddr, TcpStream},
    time::Duration,
};

use flowcell_server::Limits;
use tokio_rustls::rustls::version::{TLS12, TLS13};

use crate::{
    client::{Served, ask, connect, read, request},
    encrypted::{Made, ask_on, get, shake_hands, shake_hands_with},
};

/// The beginning of a handshake: a record of 512 bytes with a message of 508, of which the rest does not come.
const HALF_HELLO: &[u8] = &[22, 3, 1, 2, 0, 1, 0, 1, 252, 3, 3, 7, 7, 7];

fn serve(limits: Limits) -> (Served, Made) {
    let (folder, made) = (tempfile::tempdir().unwrap(), Made::new());
    (Served::with_tls(made.write(folder.path()), limits), made)
}

/// Opens a connection, and sends these bytes.
fn begin(address: SocketAddr, bytes: &[u8]) -> TcpStream {
    let mut stream = connect(address);
    // The server may have closed the connection before.
    let _ = stream.write_all(bytes);
    stream
}

/// Waits until the server closes the connection. Returns the bytes that it has sent.
#[track_caller]
fn rest(mut stream: TcpStream) -> Vec<u8> {
    let (mut all, mut bytes) = (Vec::new(), [0; 1_024]);
    loop {
        match stream.read(&mut bytes) {
            Ok(0) => return all,
            Ok(count) => all.extend(&bytes[..count]),
            Err(error) => {
                assert_ne!(error.kind(), std::io::ErrorKind::WouldBlock, "the connection stays open");
                return all;
            }
        }
    }
}

#[test]
fn both_versions_speak_http_1() {
    let (served, made) = serve(Limits::default());
    for version in [&TLS12, &TLS13] {
        for (protocols, agreed) in [(&[][..], None), (&["h2", "http/1.1"][..], Some("http/1.1"))] {
            let mut stream = shake_hands_with(served.address, &made, &[version], protocols).unwrap();
            let session = &stream.get_ref().conn;
            assert_eq!(session.protocol_version(), Some(version.version));
            assert_eq!(session.alpn_protocol(), agreed.map(str::as_bytes));
            for _ in 0..2 {
                let answer = ask_on(&mut stream, served.address, "GET", "/healthz", &[], "");
                assert_eq!(answer.status, 200, "{answer:?}");
            }
        }
        assert!(shake_hands_with(served.address, &made, &[version], &["h2"]).is_err());
    }
    // A client that trusts another certificate of the same names.
    assert!(shake_hands(served.address, &Made::new()).is_err());
    assert_eq!(get(served.address, &made, "/healthz").status, 200);
}

#[test]
fn h4_handshakes_that_do_not_end_are_closed() {
    let (served, made) = serve(Limits { handshake_time: Duration::from_secs(3), ..Limits::default() });
    let slow: Vec<_> = [&[][..], &[22], HALF_HELLO].map(|bytes| begin(served.address, bytes)).into();
    assert_eq!(get(served.address, &made, "/healthz").status, 200);
    for stream in slow {
        assert!(!rest(stream).starts_with(b"HTTP"));
    }
    assert_eq!(get(served.address, &made, "/healthz").status, 200);
}

#[test]
fn h4_handshakes_in_progress_leave_permits_to_others() {
    let time = Duration::from_secs(600);
    let (served, made) = serve(Limits { handshake_time: time, handshakes: 8, ..Limits::default() });
    let mut open = shake_hands(served.address, &made).unwrap();
    // With the answer, the handshake has ended for the server, too.
    assert_eq!(ask_on(&mut open, served.address, "GET", "/healthz", &[], "").status, 200);
    let slow: Vec<_> = (0..50).map(|_| begin(served.address, HALF_HELLO)).collect();
    // The connection that is open needs no permit, and a new one takes the permit of the oldest handshake.
    assert_eq!(ask_on(&mut open, served.address, "GET", "/healthz", &[], "").status, 200);
    for _ in 0..20 {
        assert_eq!(get(served.address, &made, "/healthz").status, 200);
    }
    slow.into_iter().take(40).for_each(|stream| _ = rest(stream));
}

#[test]
fn a_client_without_tls_is_told_and_strange_bytes_close_the_connection() {
    let (served, made) = serve(Limits::default());
    for path in ["/healthz", "/v1/runs"] {
        let answer = ask(served.address, "GET", path, &[], "");
        assert_eq!(answer.fault(), (400, "tls_required".into()));
        assert_eq!(answer.header("connection"), Some("close"));
    }
    let post = request(served.address, "POST", "/v1/runs", &[], r#"{"flow":"hello"}"#);
    assert_eq!(read(&mut BufReader::new(begin(served.address, post.as_bytes()))).fault().1, "tls_required");
    let mut strange: Vec<Vec<u8>> = vec![vec![0; 70_000], vec![22; 70_000], vec![255; 9], b"\r\n\r\n".to_vec()];
    // An alert, data before a handshake, and a hello whose length is wrong.
    strange.extend([vec![21, 3, 3, 0, 2, 2, 40], vec![23, 3, 3, 0, 1, 0], vec![22, 3, 1, 0, 4, 1, 255, 255, 255]]);
    let count = strange.len();
    for bytes in strange {
        let stream = begin(served.address, &bytes);
        stream.shutdown(std::net::Shutdown::Write).unwrap_or_default();
        assert!(!rest(stream).starts_with(b"HTTP"), "{:?}", &bytes[..4]);
    }
    let metrics = get(served.address, &made, "/metrics").body;
    let line = metrics.lines().find_map(|line| line.strip_prefix("flowcell_tls_failed_handshakes_total "));
    assert!(line.unwrap().parse::<usize>().unwrap() >= count + 3, "{line:?}");
}
