//! `flowcell tenant`, `token` and `audit`: manages tenants and their tokens, and shows their audit log.

mod export;

use std::{
    io::Write as _,
    path::{Path, PathBuf},
    time::Duration,
};

use clap::{Args, Subcommand, ValueHint};
use flowcell::{
    Json,
    contract::{Tenant, yaml_error},
    policy::Policy,
    tenants::operation::Operation,
};

use crate::{
    arguments::{at_least_one, shell_word},
    cli_error::{CliError, Exit},
    duration,
    options::{KeyArgs, PackArgs, StoreArgs},
    output::put_json,
    owner::{operate, operate_with, stop_tenant},
    terminal::Terminal,
};

/// The default lifetime of a token.
const DEFAULT_LIFETIME: &str = "90d";

/// Commands for tenants.
#[derive(Subcommand)]
pub(crate) enum TenantCommand {
    /// Create a tenant, which owns its flows, runs, state and quotas; other tenants cannot see them
    Create(CreateTenant),
    /// List the tenants
    List(StoreArgs),
    /// Print or set the policy of a tenant
    Policy(PolicyArgs),
    /// Print the usage of a tenant on this day (UTC)
    Usage(OneTenant),
    /// Refuse the tokens of a tenant, and neither start nor resume its runs; with `--stop`, cancel those that have not
    /// ended
    Disable(DisableTenant),
    /// Accept the tokens of a tenant again, and resume its runs
    Enable(OneTenant),
    /// Write the runs, flows, files and audit log of a tenant into a new folder, without secrets
    Export(Box<export::ExportTenant>),
    /// Remove a disabled tenant with its runs, flows, files, secrets, tokens and logs, and print a certificate; without
    /// `--yes`, print what would be removed
    Delete(DeleteTenant),
}

/// A tenant, and its store.
#[derive(Args)]
pub(crate) struct OneTenant {
    /// The name of the tenant: 1 to 64 letters, digits, `-` and `_`
    name: String,
    #[command(flatten)]
    store: StoreArgs,
}

/// Arguments of `flowcell tenant create`.
#[derive(Args)]
pub(crate) struct CreateTenant {
    #[command(flatten)]
    tenant: OneTenant,
    /// Create the tenant although a removed one had its name
    #[arg(long)]
    reuse_name: bool,
}

/// Arguments of `flowcell tenant disable`.
#[derive(Args)]
pub(crate) struct DisableTenant {
    #[command(flatten)]
    tenant: OneTenant,
    /// Cancel the runs that have not ended
    #[arg(long)]
    stop: bool,
}

/// Arguments of `flowcell tenant delete`.
#[derive(Args)]
pub(crate) struct DeleteTenant {
    #[command(flatten)]
    tenant: OneTenant,
    /// Remove the tenant; this cannot be undone
    #[arg(long)]
    yes: bool,
    /// Write the certificate to this new file, too
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, requires = "yes")]
    certificate: Option<PathBuf>,
    /// The folder of the flows of the tenant `local`; the flows of other tenants are in `.tenants` below it
    #[arg(long, value_name = "DIR", default_value = "flows", env = "FLOWCELL_FLOWS", value_hint = ValueHint::DirPath)]
    flows: PathBuf,
    /// The folder with the files of nodes, unless another process owns the store, which then uses its own `--files`
    #[arg(long, value_name = "DIR", env = "FLOWCELL_FILES", value_hint = ValueHint::DirPath)]
    files: Option<PathBuf>,
    #[command(flatten)]
    keys: KeyArgs,
}

/// Arguments of `flowcell tenant policy`.
#[derive(Args)]
pub(crate) struct PolicyArgs {
    #[command(flatten)]
    tenant: OneTenant,
    /// Set the policy from this YAML file
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    set: Option<PathBuf>,
}

/// Commands for tokens.
#[derive(Subcommand)]
pub(crate) enum TokenCommand {
    /// Create a token, and print it; it cannot be printed again
    Create(NewToken),
    /// List the tokens, without their values
    List(ListTokens),
    /// Revoke a token
    Revoke(OneToken),
}

/// Arguments of `flowcell token create`.
#[derive(Args)]
pub(crate) struct NewToken {
    /// The tenant of the token
    #[arg(required_unless_present = "operator")]
    tenant: Option<String>,
    /// Create a token of the operators, which belongs to no tenant and acts on the whole server
    #[arg(long, conflicts_with = "tenant", requires = "scopes")]
    operator: bool,
    /// The scopes of the token, separated by commas
    #[arg(
        long,
        value_name = "LIST",
        value_delimiter = ',',
        default_value = "flow:read,flow:write,run:create,run:read,run:control,gate:decide"
    )]
    scopes: Vec<String>,
    /// The name of the token: 1 to 64 letters, digits, `-` and `_`, other than those of the tenant's valid tokens
    #[arg(long, value_name = "NAME", default_value = "", hide_default_value = true)]
    name: String,
    /// The purpose of the token
    #[arg(long, value_name = "TEXT", default_value = "")]
    note: String,
    /// The lifetime of the token: such as `12h` or `90d`, or `never`
    #[arg(long, value_name = "DUR", default_value = DEFAULT_LIFETIME, value_parser = lifetime)]
    expires: Lifetime,
    #[command(flatten)]
    store: StoreArgs,
}

/// The lifetime of a token. With `None`, the token never expires.
#[derive(Clone, Copy)]
struct Lifetime(Option<Duration>);

fn lifetime(text: &str) -> Result<Lifetime, String> {
    if text == "never" {
        return Ok(Lifetime(None));
    }
    let lifetime = duration::parse(text);
    lifetime.map(|lifetime| Lifetime(Some(lifetime))).map_err(|_| {
        format!(
            "`{text}` is not a lifetime of a token; write `never`, or a time such as `12h` or `90d`, at most `365d`"
        )
    })
}

/// Arguments of `flowcell token list`.
#[derive(Args)]
pub(crate) struct ListTokens {
    /// List only the tokens of this tenant
    #[arg(long, value_name = "NAME")]
    tenant: Option<String>,
    #[command(flatten)]
    store: StoreArgs,
}

/// A token, and its store.
#[derive(Args)]
pub(crate) struct OneToken {
    /// The id of the token, as `flowcell token list` prints it
    id: String,
    #[command(flatten)]
    store: StoreArgs,
}

/// Commands for audit logs.
#[derive(Subcommand)]
pub(crate) enum AuditCommand {
    /// Print the audit log of a tenant
    List(ListAudit),
    /// Check that no entry of the log was changed or removed
    Verify(VerifyAudit),
}

/// Arguments of `flowcell audit list`.
#[derive(Args)]
pub(crate) struct ListAudit {
    /// The tenant
    tenant: String,
    /// Print only entries after this number
    #[arg(long, value_name = "SEQ", default_value_t = 0)]
    after: u64,
    /// The maximum number of entries
    #[arg(long, value_name = "N", value_parser = at_least_one, default_value_t = 100)]
    limit: usize,
    #[command(flatten)]
    store: StoreArgs,
}

/// Arguments of `flowcell audit verify`.
#[derive(Args)]
pub(crate) struct VerifyAudit {
    /// The tenant
    tenant: String,
    /// The head that an earlier check printed; the log must still contain it
    #[arg(long, value_name = "HASH")]
    head: Option<String>,
    #[command(flatten)]
    store: StoreArgs,
}

pub(super) fn tenant(command: &TenantCommand, terminal: Terminal) -> Result<Exit, CliError> {
    let (operation, store) = match command {
        TenantCommand::Create(args) => {
            warn_before_first_tenant(&args.tenant, terminal)?;
            let (name, reuse_name) = (args.tenant.name.clone(), args.reuse_name);
            (Operation::CreateTenant { name, reuse_name }, &args.tenant.store)
        }
        TenantCommand::List(store) => (Operation::ListTenants, store),
        TenantCommand::Policy(args) => {
            let set = args.set.as_deref().map(read_policy).transpose()?;
            (Operation::Policy { name: args.tenant.name.clone(), set }, &args.tenant.store)
        }
        TenantCommand::Usage(args) => (Operation::Usage { name: args.name.clone() }, &args.store),
        TenantCommand::Disable(args) => return disable(args, terminal),
        TenantCommand::Delete(args) => return delete(args, terminal),
        TenantCommand::Export(args) => return export::execute(args),
        TenantCommand::Enable(args) => {
            (Operation::EnableTenant { name: args.name.clone(), enabled: true }, &args.store)
        }
    };
    put_json(&operate(operation, store)?)?;
    Ok(Exit::Good)
}

fn disable(args: &DisableTenant, terminal: Terminal) -> Result<Exit, CliError> {
    let OneTenant { name, store } = &args.tenant;
    if args.stop {
        put_json(&stop_tenant(name, store)?)?;
        return Ok(Exit::Good);
    }
    let done = operate(Operation::EnableTenant { name: name.clone(), enabled: false }, store)?;
    put_json(&done)?;
    let live = done.get("liveRuns").and_then(Json::as_u64).unwrap_or_default();
    if live > 0 {
        terminal.say(&terminal.paint().faint(&format!(
            "{} not ended: driven ones come to their end, and the others wait until the tenant is enabled; `--stop` \
             cancels them",
            if live == 1 { "1 run has".to_owned() } else { format!("{live} runs have") }
        )));
    }
    Ok(Exit::Good)
}

fn delete(args: &DeleteTenant, terminal: Terminal) -> Result<Exit, CliError> {
    // The process that owns the store may have another current folder, so the path has to be absolute.
    let folder = std::path::absolute(&args.flows).unwrap_or_else(|_| args.flows.clone());
    let unwritable = |file: &Path, error: &std::io::Error| {
        CliError::wrong(format!("cannot write the certificate to {}", file.display())).because(error)
    };
    // The file is made before the removal, since the certificate cannot be written without a place.
    let file = args.certificate.as_deref();
    let mut out = file.map(|file| new_private_file(file).map_err(|error| unwritable(file, &error))).transpose()?;
    let packs = PackArgs::with_keys_and_files(args.keys.clone(), args.files.clone());
    let operation = Operation::DeleteTenant { name: args.tenant.name.clone(), folder, confirmed: args.yes };
    let deleted = operate_with(&packs, operation, &args.tenant.store).inspect_err(|_| {
        // The empty file would look like a certificate.
        _ = file.map(std::fs::remove_file);
    })?;
    if let (Some(out), Some(file)) = (&mut out, file) {
        let written = writeln!(out, "{}", deleted.to_text()).and_then(|()| out.sync_all());
        written.map_err(|error| unwritable(file, &error))?;
    }
    put_json(&deleted)?;
    if !args.yes {
        terminal.say(&terminal.paint().faint("nothing was removed; `--yes` removes the tenant, and cannot be undone"));
    } else if deleted.get("left").and_then(Json::as_object).is_some_and(|left| !left.is_empty()) {
        terminal.warn("other processes keep writing rows of the tenant; stop them, and give the command again");
    }
    Ok(Exit::Good)
}

/// Creates a file that only its owner may read. Fails if it exists.
fn new_private_file(file: &Path) -> std::io::Result<std::fs::File> {
    let mut options = std::fs::OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options.open(file)
}

/// Warns before the first tenant is created. Without tenants, a server treats every caller as the tenant `local`.
fn warn_before_first_tenant(args: &OneTenant, terminal: Terminal) -> Result<(), CliError> {
    let listed = operate(Operation::ListTenants, &args.store)?;
    if listed.as_array().is_none_or(|tenants| tenants.is_empty()) {
        let warning = "this is the first tenant: servers of this store now refuse all requests without a token, \
                       permanently";
        let local = match args.name == Tenant::local().as_str() {
            true => String::new(),
            false => "; to keep using the tenant `local`, create it with `flowcell tenant create local`, and a token \
                      for it"
                .to_owned(),
        };
        let help = format!("create a token with `flowcell token create {}`{local}", shell_word(&args.name));
        terminal.warn(&format!("{warning}\nhelp: {help}"));
    }
    Ok(())
}

fn read_policy(file: &Path) -> Result<Policy, CliError> {
    let wrong = |error: &dyn std::fmt::Display| CliError::wrong(format!("{}: {error}", file.display()));
    let text = std::fs::read_to_string(file).map_err(|error| wrong(&error))?;
    serde_yaml::from_str(&text).map_err(|error| wrong(&yaml_error(&error)))
}

pub(super) fn token(command: &TokenCommand) -> Result<Exit, CliError> {
    let (operation, store) = match command {
        TokenCommand::Create(NewToken { tenant, operator: _, name, scopes, note, expires, store }) => {
            let lifetime = expires.0.map(|lifetime| lifetime.as_millis() as u64);
            // A token of the operators has an empty tenant. An empty variable of a script must not create one.
            if tenant.as_ref().is_some_and(String::is_empty) {
                return Err(CliError::wrong("the name of the tenant is empty")
                    .hint("`--operator` in its place creates a token of the operators"));
            }
            let tenant = tenant.clone().unwrap_or_default();
            let (name, scopes, note) = (name.clone(), scopes.clone(), note.clone());
            (Operation::CreateToken { tenant, name, scopes, note, lasts: lifetime }, store)
        }
        TokenCommand::List(args) => (Operation::ListTokens { tenant: args.tenant.clone() }, &args.store),
        TokenCommand::Revoke(args) => (Operation::RevokeToken { id: args.id.clone() }, &args.store),
    };
    put_json(&operate(operation, store)?)?;
    Ok(Exit::Good)
}

pub(super) fn audit(command: &AuditCommand) -> Result<Exit, CliError> {
    match command {
        AuditCommand::List(ListAudit { tenant, after, limit, store }) => {
            let operation = Operation::Audit { tenant: tenant.clone(), after: *after, limit: *limit };
            put_json(&operate(operation, store)?)?;
        }
        AuditCommand::Verify(VerifyAudit { tenant, head, store }) => {
            let operation = Operation::VerifyAudit { tenant: tenant.clone(), head: head.clone() };
            let verified = operate(operation, store)?;
            put_json(&verified)?;
            if verified.get("damage").and_then(Json::as_array).is_some_and(|damage| !damage.is_empty()) {
                return Err(CliError::internal(format!("the audit log of `{tenant}` is damaged")));
            }
        }
    }
    Ok(Exit::Good)
}
