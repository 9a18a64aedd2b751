//! A server whose answers the test controls byte by byte.

use std::{
    net::SocketAddr,
    sync::{Arc, Mutex},
};

use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt},
    net::TcpListener,
    sync::mpsc,
};
use tokio_rustls::TlsAcceptor;

/// A received request, unchanged.
#[derive(Clone, Debug)]
pub(crate) struct Seen {
    /// The number of its connection, from 0.
    pub(crate) connection: usize,
    /// The request line, such as `GET / HTTP/1.1`.
    pub(crate) line: String,
    /// Header names and values, unchanged.
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
}

impl Seen {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let header = self.headers.iter().find(|(own, _)| own.eq_ignore_ascii_case(name));
        header.map(|(_, value)| value.as_str())
    }
}

/// The server's reaction to a request.
pub(crate) enum Reaction {
    /// Sends these bytes, and waits for the next request.
    Send(Vec<u8>),
    /// Sends these bytes, and closes the connection.
    SendAndClose(Vec<u8>),
    /// Sends these bytes, and then stays silent.
    SendAndHang(Vec<u8>),
    /// Sends these bytes over and over.
    SendForEver(Vec<u8>),
    /// Sends the bytes that the test sends, and closes the connection when the test drops its sender.
    Relay(mpsc::UnboundedReceiver<Vec<u8>>),
}

#[derive(Default)]
struct Log {
    connections: usize,
    seen: Vec<Seen>,
    /// The number of bytes that were sent over and over.
    repeated: usize,
}

pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    log: Arc<Mutex<Log>>,
}

/// Returns an answer with this status, these headers, and a body of known length.
pub(crate) fn answer(status: &str, headers: &[(&str, &str)], body: &[u8]) -> Vec<u8> {
    let mut text = format!("HTTP/1.1 {status}\r\ncontent-length: {}\r\n", body.len());
    for (name, value) in headers {
        text.push_str(&format!("{name}: {value}\r\n"));
    }
    text.push_str("\r\n");
    [text.as_bytes(), body].concat()
}

pub(crate) fn ok(text: &str) -> Reaction {
    Reaction::Send(answer("200 OK", &[("content-type", "text/plain")], text.as_bytes()))
}

impl Server {
    pub(crate) async fn start(react: impl Fn(&Seen) -> Reaction + Send + Sync + 'static) -> Server {
        Server::start_with(None, react).await
    }

    pub(crate) async fn start_with(
        tls: Option<TlsAcceptor>,
        react: impl Fn(&Seen) -> Reaction + Send + Sync + 'static,
    ) -> Server {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let log = Arc::new(Mutex::new(Log::default()));
        let react = Arc::new(react);
        let own = log.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let number = own.lock().unwrap().connections;
                own.lock().unwrap().connections += 1;
                let (own, react, tls) = (own.clone(), react.clone(), tls.clone());
                tokio::spawn(async move {
                    match tls {
                        None => serve(stream, number, &own, &*react).await,
                        Some(tls) => match tls.accept(stream).await {
                            Ok(stream) => serve(stream, number, &own, &*react).await,
                            Err(_) => None,
                        },
                    }
                });
            }
        });
        Server { address, log }
    }

    pub(crate) fn port(&self) -> u16 {
        self.address.port()
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    pub(crate) fn connections(&self) -> usize {
        self.log.lock().unwrap().connections
    }

    pub(crate) fn repeated(&self) -> usize {
        self.log.lock().unwrap().repeated
    }

    pub(crate) fn seen(&self) -> Vec<Seen> {
        self.log.lock().unwrap().seen.clone()
    }
}

async fn serve(
    mut stream: impl AsyncRead + AsyncWrite + Unpin,
    connection: usize,
    log: &Mutex<Log>,
    react: &(impl Fn(&Seen) -> Reaction + Sync),
) -> Option<()> {
    loop {
        let seen = read_request(&mut stream, connection).await?;
        log.lock().unwrap().seen.push(seen.clone());
        match react(&seen) {
            Reaction::Send(bytes) => stream.write_all(&bytes).await.ok()?,
            Reaction::SendAndClose(bytes) => {
                stream.write_all(&bytes).await.ok()?;
                stream.shutdown().await.ok()?;
                return None;
            }
            Reaction::SendAndHang(bytes) => {
                stream.write_all(&bytes).await.ok()?;
                std::future::pending::<()>().await;
            }
            Reaction::SendForEver(bytes) => loop {
                stream.write_all(&bytes).await.ok()?;
                log.lock().unwrap().repeated += bytes.len();
            },
            Reaction::Relay(mut pieces) => {
                while let Some(bytes) = pieces.recv().await {
                    stream.write_all(&bytes).await.ok()?;
                }
                stream.shutdown().await.ok()?;
                return None;
            }
        }
    }
}

async fn read_request(stream: &mut (impl AsyncRead + Unpin), connection: usize) -> Option<Seen> {
    let mut bytes = Vec::new();
    let head = loop {
        if let Some(end) = bytes.windows(4).position(|window| window == b"\r\n\r\n") {
            break end;
        }
        if stream.read_buf(&mut bytes).await.ok()? == 0 {
            return None;
        }
    };
    let text = String::from_utf8(bytes[..head].to_vec()).unwrap();
    let mut lines = text.lines().map(str::to_owned);
    let line = lines.next().unwrap();
    let headers =
        lines.map(|line| line.split_once(": ").map(|(name, value)| (name.to_owned(), value.to_owned())).unwrap());
    let mut seen = Seen { connection, line, headers: headers.collect(), body: bytes.split_off(head + 4) };
    let length = seen.header("content-length").map_or(0, |length| length.parse::<usize>().unwrap());
    while seen.body.len() < length {
        if stream.read_buf(&mut seen.body).await.ok()? == 0 {
            return None;
        }
    }
    Some(seen)
}
