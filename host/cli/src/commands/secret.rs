//! `flowcell secret`: manages the encrypted secrets of tenants in the store.

use std::{env, io::Read as _, time::Duration};

use clap::{Args, Subcommand};
use flowcell::{
    Host,
    tenants::{Tenants, operation::Operation},
    vault::{self, Hidden, KeySource, LostSecrets, MAX_VALUE},
};

use crate::{
    arguments::shell_word,
    cli_error::{CliError, Exit},
    duration,
    options::{KeyArgs, PackArgs, StoreArgs, StoreLocation, TenantArgs},
    output::put_json,
    owner::operate_with,
    terminal::{Terminal, counted},
};

/// Commands for secrets.
#[derive(Subcommand)]
pub(crate) enum SecretCommand {
    /// Set a secret to the content of standard input or of an environment variable
    Set(SetArgs),
    /// List the names of the secrets, without their values
    List(ListArgs),
    /// Remove a secret; nodes with a grant for it then fail
    Rm(RemoveArgs),
    /// List the secrets that no given key opens; with `--yes`, remove them, so that new ones can be set
    Reset(ResetArgs),
    /// Encrypt the secrets of all tenants with a new key
    RotateKey(RotateArgs),
}

/// The tenant that owns the secrets, the key of the secrets, and the store.
#[derive(Args)]
pub(crate) struct SecretsArgs {
    #[command(flatten)]
    keys: KeyArgs,
    #[command(flatten)]
    of: TenantArgs,
}

/// Arguments of `flowcell secret set`.
#[derive(Args)]
pub(crate) struct SetArgs {
    /// The name of the secret: 1 to 64 letters, digits, `-` and `_`
    name: String,
    /// A server that may receive the secret, such as `https://api.example.com`; may be repeated [default: only the host
    /// uses the secret]
    #[arg(long = "for", value_name = "ORIGIN")]
    origins: Vec<String>,
    /// Read the secret from this environment variable instead of standard input
    #[arg(long, value_name = "VARIABLE")]
    from_env: Option<String>,
    /// The time after which the server that issued the secret ends it, such as `90d`, at most `365d`: notifications tell of
    /// it beforehand [default: no end]
    #[arg(long, value_name = "DUR", value_parser = duration::parse)]
    expires: Option<Duration>,
    #[command(flatten)]
    secrets: SecretsArgs,
}

/// Arguments of `flowcell secret list`.
#[derive(Args)]
pub(crate) struct ListArgs {
    #[command(flatten)]
    secrets: SecretsArgs,
}

/// Arguments of `flowcell secret rm`.
#[derive(Args)]
pub(crate) struct RemoveArgs {
    /// The name of the secret
    name: String,
    #[command(flatten)]
    secrets: SecretsArgs,
}

/// Arguments of `flowcell secret reset`.
#[derive(Args)]
pub(crate) struct ResetArgs {
    /// Remove the listed secrets; this cannot be undone
    #[arg(long)]
    yes: bool,
    #[command(flatten)]
    secrets: SecretsArgs,
}

/// Arguments of `flowcell secret rotate-key`.
#[derive(Args)]
pub(crate) struct RotateArgs {
    /// The new key: `env:NAME` or `file:PATH` [default: a store in a folder creates a key]
    #[arg(long, value_name = "KEY")]
    new_secret_key: Option<KeySource>,
    #[command(flatten)]
    keys: KeyArgs,
    #[command(flatten)]
    store: StoreArgs,
}

pub(super) fn execute(command: SecretCommand, terminal: Terminal) -> Result<Exit, CliError> {
    let (operation, keys, store) = match command {
        SecretCommand::Set(SetArgs { name, origins, from_env, expires, secrets }) => {
            let value = read_secret_value(from_env.as_deref())?;
            let lasts = expires.map(|expires| expires.as_millis() as u64);
            let set = Operation::SetSecret { tenant: secrets.of.tenant, name, value, origins, lasts };
            (set, secrets.keys, secrets.of.store)
        }
        SecretCommand::List(ListArgs { secrets }) => {
            (Operation::ListSecrets { tenant: secrets.of.tenant }, secrets.keys, secrets.of.store)
        }
        SecretCommand::Rm(RemoveArgs { name, secrets }) => {
            (Operation::RemoveSecret { tenant: secrets.of.tenant, name }, secrets.keys, secrets.of.store)
        }
        SecretCommand::Reset(ResetArgs { yes, secrets }) => {
            (Operation::ResetSecrets { tenant: secrets.of.tenant, remove: yes }, secrets.keys, secrets.of.store)
        }
        SecretCommand::RotateKey(RotateArgs { new_secret_key, keys, store }) => {
            let key = new_secret_key.as_ref().map(KeySource::read).transpose();
            let key = key.map_err(|error| CliError::wrong(error.to_string()))?;
            let key = key.map(|key| Hidden::from(key.trim().to_owned()));
            (Operation::RotateSecretKey { key }, keys, store)
        }
    };
    let packs = PackArgs::with_keys(keys);
    put_json(&operate_with(&packs, operation, &store)?)?;
    warn_if_exposed(&store, terminal)?;
    Ok(Exit::Good)
}

/// Warns if other users may read the store's folder.
pub(super) fn warn_if_exposed(store: &StoreArgs, terminal: Terminal) -> Result<(), CliError> {
    if let StoreLocation::Folder(folder) = store.place()?
        && let Some(why) = vault::exposure_warning(folder)
    {
        terminal.warn(&why.to_string());
    }
    Ok(())
}

/// Warns of secrets that no given key opens.
pub(super) fn warn_of_lost_secrets(host: &Host, terminal: Terminal) {
    match Tenants::of(host).lost_secrets() {
        Ok(all) => {
            for (tenant, lost) in all {
                terminal.warn(&format!(
                    "no given key opens {} of the tenant `{tenant}`; pass the right key with `--secret-key`, or \
                     list them with `flowcell secret reset --tenant {}`",
                    amounts(&lost),
                    shell_word(tenant.as_str())
                ));
            }
        }
        Err(error) => terminal.warn(&format!("cannot check the keys of the secrets: {error}")),
    }
}

/// Returns what is lost, such as `2 secrets and 1 credential`.
fn amounts(lost: &LostSecrets) -> String {
    let LostSecrets { secrets, credentials, data_keys, .. } = lost;
    let found =
        [(secrets.len(), "secret"), (credentials.len(), "credential")].into_iter().filter(|(count, _)| *count > 0);
    let found: Vec<_> = found.map(|(count, word)| counted(count, word)).collect();
    match found.is_empty() {
        true => counted(data_keys.len(), "data key"),
        false => found.join(" and "),
    }
}

/// Reads a secret from an environment variable, or for `None` from standard input. Removes one line end, since editors
/// and `echo` add it.
pub(super) fn read_secret_value(variable: Option<&str>) -> Result<Hidden, CliError> {
    let text = match variable {
        Some(name) => {
            env::var(name).map_err(|_| CliError::wrong(format!("the environment variable {name} is not set")))?
        }
        None => {
            let mut text = String::new();
            // Read up to three bytes more than the maximum: two for a line end, and one so that a value that is too
            // long is detected.
            let read = std::io::stdin().take(MAX_VALUE as u64 + 3).read_to_string(&mut text);
            read.map_err(|error| CliError::wrong("standard input is not UTF-8 text").because(&error))?;
            text
        }
    };
    let text = Hidden::from(text);
    let line = text.text().strip_suffix('\n').unwrap_or(text.text());
    Ok(Hidden::from(line.strip_suffix('\r').unwrap_or(line).to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_warning_counts_each_kind_that_is_lost() {
        let of = |secrets: usize, credentials: usize, data_keys: usize| {
            let names = |count: usize| vec!["n".to_owned(); count];
            let (secrets, credentials, data_keys) = (names(secrets), names(credentials), names(data_keys));
            amounts(&LostSecrets { secrets, credentials, data_keys, removed: false })
        };
        assert_eq!(of(2, 1, 1), "2 secrets and 1 credential");
        assert_eq!([of(1, 0, 1), of(0, 2, 0), of(0, 0, 1)], ["1 secret", "2 credentials", "1 data key"]);
    }
}
