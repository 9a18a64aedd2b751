//! The answer of a browser in which a person has allowed something to a command: one request to a port of this machine
//! (RFC 8252).
//!
//! The server sends the browser to `http://127.0.0.1:PORT/callback` with the state of the command, and a code or an error. Other
//! requests, also those of other programs of this machine, are refused and change nothing. Nothing of a request is shown in an
//! answer.

use std::{net::Ipv4Addr, time::Duration};

use flowcell::{credentials::read_redirect, pkce, vault::Hidden};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    sync::mpsc,
    task::JoinSet,
    time::timeout,
};

/// The path of the answer.
const CALLBACK: &str = "/callback";
/// Maximum size of the head of a request.
const MAX_HEAD_BYTES: usize = 16 << 10;
/// The time for a request.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);
/// Maximum number of open connections. Browsers open some that they do not use.
const MAX_CONNECTIONS: usize = 32;

/// The one-time code, or the error that the server reports instead.
pub(crate) type Returned = Result<Hidden, String>;

/// What the browser shows at the end: titles and sentences.
pub(crate) struct Pages {
    /// The page after a code.
    pub(crate) allowed: (&'static str, &'static str),
    /// The page after an error.
    pub(crate) refused: (&'static str, &'static str),
}

/// A port that waits for a browser.
pub(crate) struct Loopback {
    listener: TcpListener,
    port: u16,
    /// The text that the browser has to bring back.
    pub(crate) state: String,
}

impl Loopback {
    /// Listens on a port; 0 is any free port.
    pub(crate) async fn open(port: u16) -> std::io::Result<Loopback> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).await?;
        let port = listener.local_addr()?.port();
        Ok(Loopback { listener, port, state: pkce::random() })
    }

    /// Returns the port.
    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    /// Returns the address to which the browser has to come back.
    pub(crate) fn address(&self) -> String {
        format!("http://{}{CALLBACK}", self.own_host())
    }

    /// Waits for the answer with the right state. `None`: it did not come in this time.
    pub(crate) async fn wait(self, time: Duration, pages: &'static Pages) -> Option<Returned> {
        timeout(time, self.answers(pages)).await.ok().flatten()
    }

    async fn answers(self, pages: &'static Pages) -> Option<Returned> {
        let (send, mut returned) = mpsc::channel(1);
        let mut connections = JoinSet::new();
        loop {
            tokio::select! {
                // The page of the request is already sent.
                found = returned.recv() => return found,
                accepted = self.listener.accept(), if connections.len() < MAX_CONNECTIONS => {
                    let Ok((stream, _)) = accepted else { continue };
                    let (own, state, send) = (self.own_host(), self.state.clone(), send.clone());
                    connections.spawn(async move {
                        let serving = serve(stream, &own, &state, pages, send);
                        drop(timeout(REQUEST_TIMEOUT, serving).await);
                    });
                }
                Some(_) = connections.join_next() => {}
            }
        }
    }

    fn own_host(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }
}

/// Answers one request, and reports its code or its error afterwards.
async fn serve(
    mut stream: TcpStream,
    own: &str,
    state: &str,
    pages: &Pages,
    send: mpsc::Sender<Returned>,
) -> std::io::Result<()> {
    let head = read_head(&mut stream).await?;
    let returned = read_request(&head, own, state);
    let (status, (title, said)) = match &returned {
        Ok(Ok(_)) => ("200 OK", pages.allowed),
        Ok(Err(_)) => ("200 OK", pages.refused),
        Err(why) => (*why, ("Not found", "This is not the answer that the command waits for.")),
    };
    let body = format!(
        "<!doctype html><html lang=en><meta charset=utf-8><title>{title} · Flowcell</title><h1>{title}</h1><p>{said}</p>"
    );
    let answer = format!(
        "HTTP/1.1 {status}\r\nContent-Type: text/html; charset=utf-8\r\nContent-Length: {}\r\nConnection: close\r\n\
         Cache-Control: no-store\r\nReferrer-Policy: no-referrer\r\nX-Content-Type-Options: nosniff\r\n\
         Content-Security-Policy: default-src 'none'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'\r\n\r\n{body}",
        body.len()
    );
    let written = stream.write_all(answer.as_bytes()).await;
    _ = stream.shutdown().await;
    if let Ok(returned) = returned {
        // Of several answers, the first counts.
        _ = send.try_send(returned);
    }
    written
}

async fn read_head(stream: &mut TcpStream) -> std::io::Result<String> {
    let mut head = Vec::new();
    let mut piece = [0; 1_024];
    while !head.windows(4).any(|end| end == b"\r\n\r\n") && head.len() < MAX_HEAD_BYTES {
        match stream.read(&mut piece).await? {
            0 => break,
            count => head.extend_from_slice(&piece[..count]),
        }
    }
    Ok(String::from_utf8_lossy(&head).into_owned())
}

/// Reads a request. The error is the status of the answer.
fn read_request(head: &str, own: &str, state: &str) -> Result<Returned, &'static str> {
    let (head, _) = head.split_once("\r\n\r\n").ok_or("400 Bad Request")?;
    let mut lines = head.split("\r\n");
    let mut first = lines.next().unwrap_or_default().split(' ');
    let (method, target) = (first.next().unwrap_or_default(), first.next().unwrap_or_default());
    // A page of another site that has this machine as the address of its name (DNS rebinding).
    let headers = || lines.clone().filter_map(|line| line.split_once(':'));
    let mut hosts = headers().filter(|(name, _)| name.eq_ignore_ascii_case("host")).map(|(_, host)| host.trim());
    if hosts.next() != Some(own) || hosts.next().is_some() {
        return Err("403 Forbidden");
    }
    if method != "GET" || target.split('?').next() != Some(CALLBACK) {
        return Err("404 Not Found");
    }
    Ok(read_redirect(target, CALLBACK, state).ok_or("403 Forbidden")?.map(Hidden::from))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

    use super::*;

    #[test]
    fn only_the_answer_with_the_state_counts() {
        let read = |line: &str, host: &str| read_request(&format!("{line}\r\n{host}\r\n\r\n"), "127.0.0.1:9", "S");
        let good = "GET /callback?code=fcc_a%5Fb&state=S HTTP/1.1";
        assert_eq!(read(good, "Host: 127.0.0.1:9"), Ok(Ok(Hidden::from("fcc_a_b".to_owned()))));
        assert_eq!(read("GET /callback?error=x&state=S HTTP/1.1", "host: 127.0.0.1:9"), Ok(Err("x".to_owned())));
        for (line, host) in [
            (good, "Host: evil.test:9"),
            (good, "Host: 127.0.0.1:8"),
            (good, "Host: localhost:9"),
            (good, "X: y"),
            (good, "Host: 127.0.0.1:9\r\nHost: evil.test"),
            ("GET /callback?code=a&state=T HTTP/1.1", "Host: 127.0.0.1:9"),
            ("GET /callback?code=a&state=T&state=S HTTP/1.1", "Host: 127.0.0.1:9"),
            ("GET /callback?code=a HTTP/1.1", "Host: 127.0.0.1:9"),
            ("GET /callback?state=S HTTP/1.1", "Host: 127.0.0.1:9"),
            ("POST /callback?code=a&state=S HTTP/1.1", "Host: 127.0.0.1:9"),
            ("GET /?code=a&state=S HTTP/1.1", "Host: 127.0.0.1:9"),
            ("GET http://127.0.0.1:9/callback?code=a&state=S HTTP/1.1", "Host: 127.0.0.1:9"),
            ("", ""),
        ] {
            assert!(read(line, host).is_err(), "{line} {host}");
        }
        assert_eq!(read_request(good, "127.0.0.1:9", "S"), Err("400 Bad Request"), "a head that does not end");
    }

    #[tokio::test]
    async fn a_page_shows_nothing_of_its_request_and_strangers_do_not_end_the_wait() {
        const PAGES: Pages = Pages { allowed: ("Done", "Close it."), refused: ("Not done", "Close it.") };
        let loopback = Loopback::open(0).await.unwrap();
        let (port, state) = (loopback.port(), loopback.state.clone());
        let waiting = tokio::spawn(loopback.wait(Duration::from_secs(600), &PAGES));
        // Open connections that send nothing, as browsers have them.
        let idle = [
            TcpStream::connect(("127.0.0.1", port)).await.unwrap(),
            TcpStream::connect(("127.0.0.1", port)).await.unwrap(),
        ];
        let ask = async |target: &str, host: &str| {
            let mut stream = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
            let request = format!("GET {target} HTTP/1.1\r\nHost: {host}\r\n\r\n");
            stream.write_all(request.as_bytes()).await.unwrap();
            let mut answer = String::new();
            stream.read_to_string(&mut answer).await.unwrap();
            assert!(!answer.contains("<script") && !answer.contains("fcc_"), "{answer}");
            assert!(answer.contains("default-src 'none'"), "{answer}");
            answer
        };
        let own = format!("127.0.0.1:{port}");
        let hostile = "/callback?state=%3Cscript%3Ealert(1)%3C/script%3E&code=fcc_x";
        assert!(ask(hostile, &own).await.starts_with("HTTP/1.1 403 "));
        assert!(ask(&format!("/callback?state={state}&code=fcc_x"), "evil.test").await.starts_with("HTTP/1.1 403 "));
        assert!(ask("/<script>", &own).await.starts_with("HTTP/1.1 404 "));
        assert!(ask(&format!("/callback?state={state}&code=fcc_y"), &own).await.starts_with("HTTP/1.1 200 "));
        assert_eq!(waiting.await.unwrap(), Some(Ok(Hidden::from("fcc_y".to_owned()))));
        drop(idle);
    }
}
