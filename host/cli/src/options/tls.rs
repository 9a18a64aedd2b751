//! The arguments for TLS.

use std::{net::SocketAddr, path::PathBuf};

use clap::{Args, ValueHint};
use flowcell::server::tls::{TlsError, TlsFiles};

use crate::{cli_error::CliError, clock::now_ms, terminal::Terminal};

/// The certificate of a server.
#[derive(Args, Default)]
pub(crate) struct TlsArgs {
    /// A PEM file with the server's certificate, followed by those of its issuers: the server then speaks TLS only;
    /// needs `--tls-key`
    #[arg(long, value_name = "FILE", env = "FLOWCELL_TLS_CERT", value_hint = ValueHint::FilePath)]
    tls_cert: Option<PathBuf>,
    /// A PEM file with the private key of the certificate, which only its owner may read
    #[arg(long, value_name = "FILE", env = "FLOWCELL_TLS_KEY", value_hint = ValueHint::FilePath)]
    tls_key: Option<PathBuf>,
}

impl TlsArgs {
    /// Returns the files of the certificate and its key, or `None` for a server without TLS.
    pub(crate) fn files(&self) -> Result<Option<TlsFiles>, CliError> {
        match (&self.tls_cert, &self.tls_key) {
            (None, None) => Ok(None),
            (Some(certificate), Some(key)) => Ok(Some(TlsFiles { certificate: certificate.clone(), key: key.clone() })),
            (given, _) => {
                let (given, missing) = match given {
                    Some(_) => ("--tls-cert", "--tls-key"),
                    None => ("--tls-key", "--tls-cert"),
                };
                Err(CliError::wrong(format!("`{given}` is given without `{missing}`"))
                    .hint("give both files, or neither for a server without TLS"))
            }
        }
    }

    /// Checks the files, and warns if clients refuse the certificate now or soon.
    pub(crate) fn check(&self, terminal: Terminal) -> Result<(), CliError> {
        let Some(files) = self.files()? else { return Ok(()) };
        let pair = files.read()?;
        if let Some(warning) = pair.warning(now_ms()) {
            terminal.warn(&warning);
        }
        let file = files.certificate.display();
        terminal.say(&format!("checked the certificate in `{file}`, which is valid until {}", pair.shown_end()));
        Ok(())
    }
}

/// Warns of a server without TLS that other machines reach, unless the operator has named the proxy in front of it.
pub(crate) fn warn_of_plain_network(address: SocketAddr, has_tls: bool, has_proxy: bool, terminal: Terminal) {
    if !address.ip().is_loopback() && !has_tls && !has_proxy {
        terminal.warn(&format!(
            "other machines reach `http://{address}` without TLS, so tokens and data can be read on the way; give \
             `--tls-cert` and `--tls-key`, or put a proxy with TLS in front and name it with `--trusted-proxy`"
        ));
    }
}

impl From<TlsError> for CliError {
    fn from(error: TlsError) -> CliError {
        CliError::wrong(error.to_string()).hint(error.help())
    }
}
