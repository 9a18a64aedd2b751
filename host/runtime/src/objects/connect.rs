//! Connections to an object store: HTTP/1.1 over TCP or TLS, with the roots of trust of the rest of the program.

use std::{
    pin::Pin,
    sync::Arc,
    time::{Duration, Instant},
};

use http_body_util::{BodyExt, Full, Limited};
use hyper::{
    Uri,
    client::conn::http1::{SendRequest, handshake},
    header::{HOST, HeaderValue},
};
use hyper_util::rt::TokioIo;
use object_store::{
    ClientOptions,
    client::{
        HttpClient, HttpConnector, HttpError, HttpErrorKind, HttpRequest, HttpRequestBody, HttpResponse,
        HttpResponseBody, HttpService,
    },
};
use parking_lot::Mutex;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpStream,
    time::timeout,
};
use tokio_rustls::{
    TlsConnector,
    rustls::{ClientConfig, RootCertStore, pki_types::ServerName},
};

use crate::limits::{
    MAX_OBJECT_ANSWER_BYTES, OBJECT_CONNECT_MS, OBJECT_CONNECTIONS, OBJECT_IDLE_MS, OBJECT_REQUEST_MS,
};

/// Makes clients that keep connections open between two requests.
#[derive(Debug)]
pub(super) struct Connector;

impl HttpConnector for Connector {
    fn connect(&self, _: &ClientOptions) -> object_store::Result<HttpClient> {
        let roots = RootCertStore { roots: webpki_roots::TLS_SERVER_ROOTS.to_vec() };
        let provider = Arc::new(tokio_rustls::rustls::crypto::ring::default_provider());
        let config = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
        let config = config.map_err(|error| object_store::Error::Generic { store: "S3", source: Box::new(error) })?;
        let tls = TlsConnector::from(Arc::new(config.with_root_certificates(roots).with_no_client_auth()));
        Ok(HttpClient::new(Client { tls, idle: Mutex::default() }))
    }
}

struct Client {
    tls: TlsConnector,
    /// The connections without a request, the latest last.
    idle: Mutex<Vec<Idle>>,
}

struct Idle {
    to: String,
    since: Instant,
    sender: SendRequest<HttpRequestBody>,
}

impl std::fmt::Debug for Client {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("Client")
    }
}

type Answer<'a> = Pin<Box<dyn Future<Output = Result<HttpResponse, HttpError>> + Send + 'a>>;

impl HttpService for Client {
    fn call<'this, 'future>(&'this self, request: HttpRequest) -> Answer<'future>
    where
        'this: 'future,
        Self: 'future,
    {
        Box::pin(async move {
            let most = Duration::from_millis(OBJECT_REQUEST_MS);
            timeout(most, self.exchange(request))
                .await
                .map_err(|error| HttpError::new(HttpErrorKind::Timeout, error))?
        })
    }
}

impl Client {
    async fn exchange(&self, mut request: HttpRequest) -> Result<HttpResponse, HttpError> {
        let uri = request.uri().clone();
        let host = uri.authority().map(|authority| authority.as_str().to_owned()).unwrap_or_default();
        let to = format!("{}://{host}", uri.scheme_str().unwrap_or_default());
        let path = uri.path_and_query().map_or("/", |path| path.as_str());
        *request.uri_mut() = path.parse().map_err(|error: hyper::http::uri::InvalidUri| invalid(error))?;
        request.headers_mut().insert(HOST, HeaderValue::from_str(&host).map_err(invalid)?);
        let mut sender = match self.take_idle(&to) {
            Some(sender) => sender,
            None => self.open(&uri).await?,
        };
        let answer = sender.send_request(request).await.map_err(interrupted)?;
        let (parts, body) = answer.into_parts();
        let bytes = Limited::new(body, MAX_OBJECT_ANSWER_BYTES)
            .collect()
            .await
            .map_err(|error| HttpError::new_boxed(HttpErrorKind::Interrupted, error))?;
        self.keep(to, sender);
        let body = Full::new(bytes.to_bytes()).map_err(|never| match never {});
        Ok(HttpResponse::from_parts(parts, HttpResponseBody::new(body)))
    }

    /// Takes the latest connection to a server that is still open.
    fn take_idle(&self, to: &str) -> Option<SendRequest<HttpRequestBody>> {
        let mut idle = self.idle.lock();
        idle.retain(|idle| idle.sender.is_ready() && idle.since.elapsed() < Duration::from_millis(OBJECT_IDLE_MS));
        let place = idle.iter().rposition(|idle| idle.to == to)?;
        Some(idle.remove(place).sender)
    }

    fn keep(&self, to: String, sender: SendRequest<HttpRequestBody>) {
        let mut idle = self.idle.lock();
        if idle.len() < OBJECT_CONNECTIONS {
            idle.push(Idle { to, since: Instant::now(), sender });
        }
    }

    async fn open(&self, uri: &Uri) -> Result<SendRequest<HttpRequestBody>, HttpError> {
        let is_tls = uri.scheme_str() == Some("https");
        let host = uri.host().unwrap_or_default().trim_start_matches('[').trim_end_matches(']').to_owned();
        let port = uri.port_u16().unwrap_or(if is_tls { 443 } else { 80 });
        let opening = async {
            let stream = TcpStream::connect((host.as_str(), port)).await.map_err(unconnected)?;
            // Delays would only wait for more bytes of a request that is complete.
            stream.set_nodelay(true).map_err(unconnected)?;
            if !is_tls {
                return start(stream).await;
            }
            let name = ServerName::try_from(host.clone()).map_err(invalid)?;
            start(self.tls.connect(name, stream).await.map_err(unconnected)?).await
        };
        let most = Duration::from_millis(OBJECT_CONNECT_MS);
        timeout(most, opening).await.map_err(|error| HttpError::new(HttpErrorKind::Connect, error))?
    }
}

async fn start(
    stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static,
) -> Result<SendRequest<HttpRequestBody>, HttpError> {
    let (sender, connection) = handshake(TokioIo::new(stream)).await.map_err(interrupted)?;
    // The connection ends with its sender. The sender has its errors.
    tokio::spawn(async move { _ = connection.await });
    Ok(sender)
}

fn unconnected(error: std::io::Error) -> HttpError {
    HttpError::new(HttpErrorKind::Connect, error)
}

fn interrupted(error: hyper::Error) -> HttpError {
    HttpError::new(HttpErrorKind::Request, error)
}

fn invalid(error: impl std::error::Error + Send + Sync + 'static) -> HttpError {
    HttpError::new(HttpErrorKind::Unknown, error)
}
