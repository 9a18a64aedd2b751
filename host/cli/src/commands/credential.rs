//! `flowcell credential`: manages the credentials of tenants, which the host adds to requests of nodes.

mod connect;

use std::{collections::BTreeMap, str::FromStr};

use clap::{Args, Subcommand};
use flowcell::{
    credentials::Settings,
    tenants::operation::{
        Operation,
        credential::{CredentialOperation, CredentialToSet},
    },
    vault::{Hidden, KeySource},
};
use serde_json::{Map, Value};

use super::secret::{read_secret_value, warn_if_exposed};
use crate::{
    cli_error::{CliError, Exit},
    options::{KeyArgs, PackArgs, TenantArgs},
    output::put_json,
    owner::operate_with,
    terminal::Terminal,
};

/// Commands for credentials.
#[derive(Subcommand)]
pub(crate) enum CredentialCommand {
    /// Set a credential; its main secret comes from standard input or from an environment variable
    Set(SetArgs),
    /// List the credentials, without their secrets
    List(ListArgs),
    /// Show a credential and the state of its token, without its secrets
    Show(NameArgs),
    /// Remove a credential with its token; nodes with a grant for it then fail
    Remove(NameArgs),
    /// Get a token for a credential of the kind `oauth2` by a person's consent in a browser
    Connect(Box<connect::ConnectArgs>),
}

/// The tenant that owns the credentials, the key of its secrets, and the store.
#[derive(Args)]
pub(crate) struct OwnerArgs {
    #[command(flatten)]
    keys: KeyArgs,
    #[command(flatten)]
    of: TenantArgs,
}

/// Arguments of `flowcell credential set`.
#[derive(Args)]
pub(crate) struct SetArgs {
    /// The name of the credential: 1 to 64 letters, digits, `-` and `_`
    name: String,
    /// The kind: bearer, basic, apiKey, oauth2, hmac or sigv4
    #[arg(long)]
    kind: String,
    /// A server that may receive the credential, such as `https://api.example.com`; may be repeated
    #[arg(long = "for", value_name = "ORIGIN", required = true)]
    origins: Vec<String>,
    /// A setting of the kind, such as `in=query` and `key=api_key`; `params.audience=…` sets a member; may be repeated
    #[arg(long = "set", value_name = "NAME=VALUE")]
    settings: Vec<Setting>,
    /// Another secret than the main one, such as `refreshToken=env:TOKEN` or `sessionToken=file:PATH`; may be repeated
    #[arg(long = "secret", value_name = "NAME=KEY")]
    secrets: Vec<String>,
    /// Read the main secret from this environment variable instead of standard input
    #[arg(long, value_name = "VARIABLE")]
    from_env: Option<String>,
    #[command(flatten)]
    owner: OwnerArgs,
}

/// Arguments of `flowcell credential list`.
#[derive(Args)]
pub(crate) struct ListArgs {
    #[command(flatten)]
    owner: OwnerArgs,
}

/// Arguments of the commands for one credential.
#[derive(Args)]
pub(crate) struct NameArgs {
    /// The name of the credential
    name: String,
    #[command(flatten)]
    owner: OwnerArgs,
}

/// A setting: `NAME=VALUE`.
#[derive(Clone)]
struct Setting(String, String);

impl FromStr for Setting {
    type Err = String;

    fn from_str(text: &str) -> Result<Setting, String> {
        match text.split_once('=') {
            Some((name, value)) if !name.is_empty() => Ok(Setting(name.to_owned(), value.to_owned())),
            _ => Err("write `NAME=VALUE`".into()),
        }
    }
}

/// Reads another secret, `NAME=env:VARIABLE` or `NAME=file:PATH`. The text may be the secret itself, so no error has it. That
/// is why the parser of the command line does not read it.
fn other_secret(text: &str) -> Result<(String, Hidden), CliError> {
    let wrong = || CliError::wrong("write `--secret NAME=env:VARIABLE` or `--secret NAME=file:PATH`");
    let (name, source) = text.split_once('=').filter(|(name, _)| !name.is_empty()).ok_or_else(wrong)?;
    let source: KeySource = source.parse().map_err(|_| wrong())?;
    let value = source.read().map_err(|error| CliError::wrong(error.to_string()))?;
    Ok((name.to_owned(), Hidden::from(value.trim_end_matches(['\r', '\n']).to_owned())))
}

pub(super) fn execute(command: CredentialCommand, terminal: Terminal) -> Result<Exit, CliError> {
    let (request, owner) = match command {
        CredentialCommand::Set(args) => args.request()?,
        CredentialCommand::List(ListArgs { owner }) => (CredentialOperation::List, owner),
        CredentialCommand::Show(NameArgs { name, owner }) => (CredentialOperation::Show { name }, owner),
        CredentialCommand::Remove(NameArgs { name, owner }) => (CredentialOperation::Remove { name }, owner),
        CredentialCommand::Connect(args) => return connect::execute(*args, terminal),
    };
    let operation = Operation::Credential { tenant: owner.of.tenant, request };
    put_json(&operate_with(&PackArgs::with_keys(owner.keys), operation, &owner.of.store)?)?;
    warn_if_exposed(&owner.of.store, terminal)?;
    Ok(Exit::Good)
}

impl SetArgs {
    fn request(self) -> Result<(CredentialOperation, OwnerArgs), CliError> {
        let SetArgs { name, kind, origins, settings, secrets, from_env, owner } = self;
        let settings = members(settings)?;
        let read = Settings::parse(&kind, settings.clone())
            .map_err(|why| CliError::wrong(why).hint("give each setting with `--set NAME=VALUE`"))?;
        let secrets = secrets.iter().map(|text| other_secret(text));
        let mut all = secrets.collect::<Result<BTreeMap<String, Hidden>, _>>()?;
        // A public client has no main secret.
        if let Some((main, _)) = read.secret_names().first()
            && !all.contains_key(*main)
        {
            all.insert((*main).to_owned(), read_secret_value(from_env.as_deref())?);
        }
        let to = CredentialToSet { kind, settings, secrets: all, origins };
        Ok((CredentialOperation::Set { name, to }, owner))
    }
}

/// Returns the settings as an object. A dot in a name separates an object from its member.
fn members(settings: Vec<Setting>) -> Result<Map<String, Value>, CliError> {
    let mut all = Map::new();
    for Setting(name, value) in settings {
        let taken = match name.split_once('.') {
            Some((object, member)) => {
                let object = all.entry(object).or_insert_with(|| Value::Object(Map::new()));
                let object = object.as_object_mut();
                object.and_then(|object| object.insert(member.to_owned(), value.into())).is_some()
            }
            None => all.insert(name.clone(), value.into()).is_some(),
        };
        if taken {
            return Err(CliError::wrong(format!("the setting `{name}` is given twice")));
        }
    }
    Ok(all)
}
