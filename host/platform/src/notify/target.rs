//! Sends a message to a target.

use std::{
    fs::File,
    io::{self, Read as _},
    path::Path,
    sync::{Arc, atomic::AtomicBool},
    time::Duration,
};

use bytes::Bytes;
use flowcell_services::{
    mail::{MailSettings, MailTls, Mailer},
    program::run_with_input,
    webhook::{SecretSource, SigningKey, Webhook},
};
use url::Url;
use zeroize::Zeroizing;

use super::{
    config::{ChannelKind, Format, MailServer, NotifyFile, Quiet, TargetSettings, TlsMode, check_url},
    format,
    message::Message,
};
use crate::{Host, host::outside::operator_webhook, operate::vault::signing};

/// Maximum size of a file of certificates.
const MAX_ISSUERS_BYTES: u64 = 1024 * 1024;
/// Time limit of a program.
pub(super) const PROGRAM_TIMEOUT: Duration = Duration::from_secs(30);

/// A target of the file, with its secrets.
pub(super) struct Target {
    pub(super) settings: TargetSettings,
    pub(super) quiet: Option<Quiet>,
    /// True once another file is in force. The sender then stops.
    pub(super) is_replaced: AtomicBool,
    way: Way,
}

/// The way to a target.
enum Way {
    Webhook { hook: Box<Webhook>, key: Option<Zeroizing<String>> },
    Mail(Box<Mailer>),
    Program,
}

/// The reason why a message was not sent.
#[derive(Debug)]
pub(super) struct SendError {
    /// The reason as part of a sentence, without secrets.
    pub(super) why: String,
    /// True if the target has refused this message. False if it takes no messages at present.
    pub(super) is_refusal: bool,
    /// The wait that the target requests.
    pub(super) wait: Option<Duration>,
}

/// A file with its secrets.
#[derive(Default)]
pub(super) struct Opened {
    pub(super) targets: Vec<Arc<Target>>,
    /// The scheme, name and port of the console, without a `/` at the end.
    pub(super) console: Option<String>,
}

impl Opened {
    /// Reads the secrets of a file. Connects to no target.
    pub(super) async fn new(host: &Host, file: &NotifyFile) -> Result<Opened, String> {
        if file.targets.iter().any(|target| target.answer) {
            signing::check(host.vault()).map_err(|error| format!("`answer`: cannot sign links: {error}"))?;
        }
        let targets = open_all(host, file).await?.into_iter().map(Arc::new).collect();
        let origin = |console: &String| Url::parse(console).map(|url| url.origin().ascii_serialization());
        let console = file.console.as_ref().map(origin).transpose().map_err(|error| error.to_string())?;
        Ok(Opened { targets, console })
    }
}

/// Opens the targets of a file: reads their secrets, and connects to none. The error has the name of the target.
async fn open_all(host: &Host, file: &NotifyFile) -> Result<Vec<Target>, String> {
    let mut targets = Vec::new();
    let mailer = match &file.mail {
        Some(server) => Some(open_mailer(server).await.map_err(|why| format!("`mail`: {why}"))?),
        None => None,
    };
    for settings in &file.targets {
        let way = match settings.channel {
            ChannelKind::Webhook => open_webhook(host, settings).await,
            ChannelKind::Mail => {
                mailer.clone().map(|mailer| Way::Mail(Box::new(mailer))).ok_or_else(|| "no mail server".into())
            }
            ChannelKind::Program => Ok(Way::Program),
        };
        let way = way.map_err(|why| format!("the target `{}`: {why}", settings.name))?;
        let quiet = settings.quiet.as_ref().map(|quiet| quiet.parse()).transpose()?;
        targets.push(Target { settings: settings.clone(), quiet, is_replaced: AtomicBool::new(false), way });
    }
    Ok(targets)
}

async fn read_secret(place: &str) -> Result<Zeroizing<String>, String> {
    let source: SecretSource = place.parse()?;
    source.read_text().await.map_err(|failure| failure.message.to_string())
}

async fn open_webhook(host: &Host, settings: &TargetSettings) -> Result<Way, String> {
    let url = match &settings.url_from {
        Some(place) => Some(read_secret(place).await?),
        None => settings.url.clone().map(Zeroizing::new),
    };
    let url = Zeroizing::new(settings.full_url(url.as_ref().map(|url| url.as_str())));
    check_url(&url)?;
    let secret = match &settings.secret_from {
        Some(place) => Some(read_secret(place).await?),
        None => None,
    };
    let (signing, key) = match settings.format {
        Some(Format::PagerDuty) => (None, secret),
        _ => (secret.map(|secret| SigningKey::new(&secret)).transpose()?, None),
    };
    let hook = operator_webhook(host, &url, signing, settings.allow_private);
    Ok(Way::Webhook { hook: Box::new(hook.map_err(|failure| failure.message.to_string())?), key })
}

/// Reads a file of certificates, of a bounded size.
async fn read_issuers(file: &Path) -> Result<Vec<u8>, String> {
    let file = file.to_owned();
    let read = move || {
        let mut pem = Vec::new();
        File::open(file)?.take(MAX_ISSUERS_BYTES + 1).read_to_end(&mut pem)?;
        Ok(pem)
    };
    let read: io::Result<Vec<u8>> = tokio::task::spawn_blocking(read).await.map_err(|error| error.to_string())?;
    let pem = read.map_err(|error| error.to_string())?;
    match pem.len() as u64 > MAX_ISSUERS_BYTES {
        true => Err(format!("the file is larger than {} KiB", MAX_ISSUERS_BYTES >> 10)),
        false => Ok(pem),
    }
}

async fn open_mailer(server: &MailServer) -> Result<Mailer, String> {
    let login = match (&server.user, &server.password_from) {
        (Some(user), Some(place)) => Some((user.clone(), read_secret(place).await?)),
        _ => None,
    };
    let issuers = match &server.ca_file {
        Some(file) => Some(read_issuers(file).await.map_err(|why| format!("`caFile` {}: {why}", file.display()))?),
        None => None,
    };
    Mailer::new(MailSettings {
        server: server.server.clone(),
        port: server.port(),
        tls: match server.tls {
            TlsMode::StartTls => MailTls::StartTls,
            TlsMode::Tls => MailTls::Tls,
            TlsMode::None => MailTls::Plain,
        },
        login,
        issuers,
        from: server.from.clone(),
    })
}

impl Target {
    /// Returns the name.
    pub(super) fn name(&self) -> &str {
        &self.settings.name
    }

    /// Sends a message once, at `now`.
    pub(super) async fn send(&self, message: &Message, now: u64) -> Result<(), SendError> {
        let contents = self.settings.contents;
        match &self.way {
            Way::Webhook { hook, key } => {
                let form = self.settings.format.unwrap_or_default();
                let body = format::body(form, message, contents, key.as_ref().map(|key| key.as_str()), now);
                let sent = hook.post_once(&message.id, Bytes::from(body.to_string())).await;
                sent.map_err(|error| SendError { why: error.why, is_refusal: error.is_refusal, wait: error.wait })
            }
            Way::Mail(mailer) => {
                let (to, text) = (&self.settings.to, format::plain(message, contents));
                let sent = mailer.send(to, &message.title(), &text, &message.id).await;
                sent.map_err(|error| SendError { why: error.why, is_refusal: error.is_refusal, wait: None })
            }
            Way::Program => {
                let input = format!("{}\n", format::standard(message, contents));
                let ended = run_with_input(&self.settings.command, input.as_bytes(), PROGRAM_TIMEOUT).await;
                ended.map_err(|why| SendError { why, is_refusal: true, wait: None })
            }
        }
    }
}
