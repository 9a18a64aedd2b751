//! A bucket of S3, or of a server with the same interface.

use std::{
    ops::Range,
    sync::{Arc, mpsc},
    time::Duration,
};

use futures_util::StreamExt;
use hyper::Uri;
use object_store::{
    BackoffConfig, Error, GetOptions, GetRange, MultipartUpload, ObjectStore, ObjectStoreExt, PutMode, PutOptions,
    PutPayload, RetryConfig,
    aws::{AmazonS3, AmazonS3Builder},
    path::Path,
};
use tokio::{runtime::Runtime, task::JoinHandle};

use super::{Access, Bucket, BucketError, Location, ObjectsError, Upload, connect::Connector};
use crate::{
    blocking::blocking,
    limits::{OBJECT_PATIENCE_MS, OBJECT_RETRIES},
};

/// The first pause between two tries of a request, and the longest one.
const PAUSES: [Duration; 2] = [Duration::from_millis(100), Duration::from_secs(5)];

/// The codes of answers about settings that stay wrong until the operator corrects them, such as the region.
const REFUSALS: [&str; 2] = ["AuthorizationHeaderMalformed", "PermanentRedirect"];

/// A bucket. One thread of its own does all exchanges, so callers may be on any thread.
#[derive(Clone)]
pub(super) struct S3(Arc<Client>);

struct Client {
    store: AmazonS3,
    /// Present until the client is dropped.
    runtime: Option<Runtime>,
    /// The texts that no message may have.
    hidden: Vec<String>,
}

impl S3 {
    pub(super) fn new(location: &Location, access: &Access) -> Result<S3, ObjectsError> {
        let unusable = |error: &dyn std::fmt::Display| ObjectsError::Access(format!("cannot use {location}: {error}"));
        if let Some(endpoint) = &access.endpoint {
            check_endpoint(endpoint, access.allows_http).map_err(|why| ObjectsError::Access(why.into()))?;
        }
        let retry = RetryConfig {
            backoff: BackoffConfig { init_backoff: PAUSES[0], max_backoff: PAUSES[1], ..BackoffConfig::default() },
            max_retries: OBJECT_RETRIES,
            retry_timeout: Duration::from_millis(OBJECT_PATIENCE_MS),
        };
        let mut builder = AmazonS3Builder::new()
            .with_bucket_name(location.bucket())
            .with_access_key_id(&access.key)
            .with_secret_access_key(&access.secret)
            .with_region(&access.region)
            .with_allow_http(true)
            .with_disable_bulk_delete(true)
            .with_retry(retry)
            .with_http_connector(Connector);
        if let Some(token) = &access.token {
            builder = builder.with_token(token);
        }
        if let Some(endpoint) = &access.endpoint {
            builder = builder.with_endpoint(endpoint.trim_end_matches('/'));
        }
        let store = builder.build().map_err(|error| unusable(&error))?;
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .thread_name("flowcell-objects")
            .enable_all()
            .build()
            .map_err(|error| unusable(&error))?;
        let hidden = [Some(&access.key), Some(&access.secret), access.token.as_ref()];
        let hidden = hidden.into_iter().flatten().cloned().collect();
        Ok(S3(Arc::new(Client { store, runtime: Some(runtime), hidden })))
    }

    /// Does work on the thread of the bucket, and waits for the result.
    fn wait<T, F>(&self, work: impl FnOnce(AmazonS3) -> F) -> Result<T, BucketError>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, Error>> + Send + 'static,
    {
        let (answer, answered) = mpsc::channel();
        let working = work(self.0.store.clone());
        // The caller waits, so it is there.
        self.0.spawn(async move { _ = answer.send(working.await) })?;
        let done = blocking(|| answered.recv()).map_err(|_| closed())?;
        done.map_err(|error| self.0.error(&error))
    }
}

fn closed() -> BucketError {
    BucketError::away("the connection to it is closed")
}

impl Client {
    fn spawn<T: Send + 'static>(
        &self,
        work: impl Future<Output = T> + Send + 'static,
    ) -> Result<JoinHandle<T>, BucketError> {
        Ok(self.runtime.as_ref().ok_or_else(closed)?.spawn(work))
    }

    /// Describes an error by the code and the message of the server, if it has answered. Its answer may repeat the
    /// credentials, so the rest of it is left out.
    fn error(&self, error: &Error) -> BucketError {
        let mut text = error.to_string();
        let mut cause = std::error::Error::source(error);
        while let Some(inner) = cause {
            text = inner.to_string();
            cause = inner.source();
        }
        let whole = error.to_string();
        let part = |name: &str| {
            let (_, rest) = whole.split_once(&format!("<{name}>"))?;
            rest.split_once(&format!("</{name}>")).map(|(part, _)| part.to_owned())
        };
        if let Some(code) = part("Code") {
            let message = part("Message").map(|message| format!(": {}", message.trim_end_matches('.')));
            text = format!("{code}{}", message.unwrap_or_default());
        }
        for hidden in &self.hidden {
            text = text.replace(hidden.as_str(), "…");
        }
        let is_refused = REFUSALS.iter().any(|code| text.starts_with(code))
            || matches!(error, Error::PermissionDenied { .. } | Error::Unauthenticated { .. } | Error::NotFound { .. });
        if is_refused { BucketError::refused(text) } else { BucketError::away(text) }
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        // The last owner may be on a thread that must not block.
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

/// Checks the address of a server. The error has no part of it, because it may have a password.
fn check_endpoint(endpoint: &str, allows_http: bool) -> Result<(), &'static str> {
    let form = "`AWS_ENDPOINT_URL` has another form than `https://HOST:PORT` or `http://HOST:PORT`";
    let uri: Uri = endpoint.parse().map_err(|_| form)?;
    let (Some(scheme), Some(authority)) = (uri.scheme_str(), uri.authority()) else { return Err(form) };
    if authority.as_str().contains('@') {
        return Err("`AWS_ENDPOINT_URL` has a user or a password: give the key in `AWS_ACCESS_KEY_ID` and \
                    `AWS_SECRET_ACCESS_KEY`");
    }
    let has_port = authority.as_str() != authority.host();
    if !["http", "https"].contains(&scheme) || uri.query().is_some() || (has_port && authority.port_u16().is_none()) {
        return Err(form);
    }
    if scheme == "http" && !allows_http && !is_this_machine(authority.host()) {
        return Err("`AWS_ENDPOINT_URL` is without TLS, so others could read the files: use `https://`, or set \
                    `AWS_ALLOW_HTTP=true`");
    }
    Ok(())
}

/// Returns whether a host is this machine.
fn is_this_machine(host: &str) -> bool {
    matches!(host, "localhost" | "[::1]")
        || host.parse::<std::net::Ipv4Addr>().is_ok_and(|address| address.is_loopback())
}

/// Returns whether an error says that the object is missing. A missing bucket is another error.
fn is_missing(error: &Error) -> bool {
    matches!(error, Error::NotFound { .. }) && !error.to_string().contains("NoSuchBucket")
}

impl Bucket for S3 {
    fn put(&self, name: &str, bytes: Vec<u8>) -> Result<(), BucketError> {
        let path = Path::from(name);
        self.wait(move |store: AmazonS3| async move { store.put(&path, bytes.into()).await.map(drop) })
    }

    fn create(&self, name: &str, bytes: Vec<u8>) -> Result<(), BucketError> {
        let path = Path::from(name);
        self.wait(move |store: AmazonS3| async move {
            let options = PutOptions { mode: PutMode::Create, ..PutOptions::default() };
            match store.put_opts(&path, bytes.into(), options).await {
                Err(Error::AlreadyExists { .. } | Error::Precondition { .. }) => Ok(()),
                put => put.map(drop),
            }
        })
    }

    fn begin(&self, name: &str) -> Result<Box<dyn Upload>, BucketError> {
        let path = Path::from(name);
        let upload = self.wait(move |store: AmazonS3| async move { store.put_multipart(&path).await })?;
        Ok(Box::new(parking_lot::Mutex::new(Parts { s3: self.clone(), upload: Some(upload), sending: None })))
    }

    fn read(&self, name: &str, range: Range<u64>) -> Result<Option<Vec<u8>>, BucketError> {
        let path = Path::from(name);
        self.wait(move |store: AmazonS3| async move {
            let options = GetOptions { range: Some(GetRange::Bounded(range)), ..GetOptions::default() };
            match store.get_opts(&path, options).await {
                Ok(found) => Ok(Some(found.bytes().await?.into())),
                Err(error) if is_missing(&error) => Ok(None),
                Err(error) => Err(error),
            }
        })
    }

    fn remove(&self, names: &[String]) -> Result<(), BucketError> {
        let paths: Vec<Path> = names.iter().map(|name| Path::from(name.as_str())).collect();
        self.wait(move |store: AmazonS3| async move {
            let mut removed = store.delete_stream(futures_util::stream::iter(paths).map(Ok).boxed());
            while let Some(removed) = removed.next().await {
                match removed {
                    Err(error) if !is_missing(&error) => return Err(error),
                    _ => {}
                }
            }
            Ok(())
        })
    }

    fn list(&self, folder: &str, visit: &mut dyn FnMut(&str)) -> Result<(), BucketError> {
        let path = Path::from(folder);
        let names = self.wait(move |store: AmazonS3| async move {
            let (mut found, mut names) = (store.list(Some(&path)), Vec::new());
            while let Some(object) = found.next().await {
                names.push(String::from(object?.location));
            }
            Ok(names)
        })?;
        names.iter().for_each(|name| visit(name));
        Ok(())
    }
}

/// An upload in parts. One part is on its way while the next one is collected.
struct Parts {
    s3: S3,
    upload: Option<Box<dyn MultipartUpload>>,
    sending: Option<JoinHandle<Result<(), Error>>>,
}

impl Parts {
    /// Waits until the part that is on its way has arrived.
    fn arrive(&mut self) -> Result<(), BucketError> {
        let Some(sending) = self.sending.take() else { return Ok(()) };
        self.s3.wait(move |_| async move { sending.await.map_err(Error::from)? })
    }
}

/// `MultipartUpload` is not `Sync`, and this is used by one thread at a time through `&mut`.
impl Upload for parking_lot::Mutex<Parts> {
    fn add(&mut self, part: Vec<u8>) -> Result<(), BucketError> {
        let parts = self.get_mut();
        parts.arrive()?;
        let Some(upload) = &mut parts.upload else { return Err(closed()) };
        let sending = upload.put_part(PutPayload::from(part));
        parts.sending = Some(parts.s3.0.spawn(sending)?);
        Ok(())
    }

    fn complete(mut self: Box<Self>) -> Result<(), BucketError> {
        let parts = self.get_mut();
        parts.arrive()?;
        let Some(mut upload) = parts.upload.take() else { return Err(closed()) };
        parts.s3.wait(move |_| async move { upload.complete().await.map(drop) })
    }

    fn discard(mut self: Box<Self>) {
        let parts = self.get_mut();
        let discarding = parts.discarding();
        // An error is in the log.
        _ = parts.s3.wait(move |_| async move {
            discarding.await;
            Ok(())
        });
    }
}

impl Parts {
    /// Returns the work that discards the parts of an upload that is not complete.
    fn discarding(&mut self) -> impl Future<Output = ()> + Send + 'static {
        let (upload, sending) = (self.upload.take(), self.sending.take());
        async move {
            if let Some(sending) = sending {
                _ = sending.await;
            }
            let Some(mut upload) = upload else { return };
            if let Err(error) = upload.abort().await {
                tracing::warn!("the parts of an unfinished upload stay in the bucket: {error}");
            }
        }
    }
}

impl Drop for Parts {
    /// Discards the parts of an upload that is not complete. Nobody waits for it.
    fn drop(&mut self) {
        if self.upload.is_some() {
            let discarding = self.discarding();
            drop(self.s3.0.spawn(discarding));
        }
    }
}
