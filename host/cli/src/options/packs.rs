//! The arguments that configure a host: packs with more node types, and the addresses, files, models, secrets and
//! services that nodes may reach.

use std::{
    env,
    path::{Path, PathBuf},
    sync::Arc,
};

use clap::{Args, ValueHint};
use flowcell::{
    AddressRange, Host, HostBuilder, OpenStoreError, Reader, Runs, Simulate,
    control::Reach,
    open_shared_runs,
    vault::{self, KeySource},
};

use super::{
    locked::LockArgs,
    node_limits::NodeLimitArgs,
    program,
    server::ServerArgs,
    store_location::{StoreArgs, StoreLocation},
    watch::WatchArgs,
};
use crate::{
    cli_error::{CliError, Exit},
    terminal::Terminal,
};

/// Maximum number of concurrent attempts in a host of the command line. Most commands run one flow, so a fast start
/// matters more than capacity. A flow runs 16 tasks at a time by default.
const MAX_ATTEMPTS: u32 = 64;

/// Node types besides the built-in catalog, and everything outside the sandbox that nodes may reach.
#[derive(Args, Clone, Default)]
pub(crate) struct PackArgs {
    /// Use the packs (*.wasm) in this folder, too; may be repeated
    #[arg(long, value_name = "DIR", value_hint = ValueHint::AnyPath)]
    pub(crate) packs: Vec<PathBuf>,
    #[command(flatten)]
    lock: LockArgs,
    /// A private address that nodes may reach if their flow grants it, such as 127.0.0.1:8080 or 10.0.0.0/8; may be
    /// repeated
    #[arg(long, value_name = "ADDRESS", env = "FLOWCELL_ALLOW_PRIVATE", value_delimiter = ',')]
    allow_private: Vec<AddressRange>,
    /// A folder of files that nodes may read and write if their flow grants it
    #[arg(long, value_name = "DIR", env = "FLOWCELL_FILES", value_hint = ValueHint::DirPath)]
    files: Option<PathBuf>,
    /// Store the files that are larger than 1 MiB in this object store: `s3://BUCKET/PREFIX`; the credentials are in the
    /// variables `AWS_ACCESS_KEY_ID` and `AWS_SECRET_ACCESS_KEY`
    #[arg(long, value_name = "URL", env = "FLOWCELL_BLOBS")]
    blobs: Option<String>,
    /// The largest file that a node may send or receive over HTTP, in MiB: 32 to 4096 [default: 32]
    #[arg(long, value_name = "MIB", env = "FLOWCELL_MAX_HTTP_FILE", value_parser = clap::value_parser!(u64).range(32..=4096))]
    max_http_file: Option<u64>,
    #[command(flatten)]
    node_limits: NodeLimitArgs,
    /// A YAML file of the models that nodes may reach [default: `~/.config/flowcell/providers.yaml`, if it exists]
    #[arg(long, value_name = "FILE", env = "FLOWCELL_PROVIDERS", value_hint = ValueHint::FilePath)]
    providers: Option<PathBuf>,
    /// A YAML file of the MCP servers whose tools agents may use [default: `~/.config/flowcell/mcp.yaml`, if it exists]
    #[arg(long, value_name = "FILE", env = "FLOWCELL_MCP", value_hint = ValueHint::FilePath)]
    mcp: Option<PathBuf>,
    /// A YAML file of the places of secrets that nodes may send [default: `~/.config/flowcell/secrets.yaml`, if it
    /// exists]
    #[arg(long, value_name = "FILE", env = "FLOWCELL_SECRETS", value_hint = ValueHint::FilePath)]
    secrets: Option<PathBuf>,
    #[command(flatten)]
    keys: KeyArgs,
    /// A YAML file of the services that flows may use [default: `~/.config/flowcell/services.yaml`, if it exists]
    #[arg(long, value_name = "FILE", env = "FLOWCELL_SERVICES", value_hint = ValueHint::FilePath)]
    services: Option<PathBuf>,
    /// Answer these calls with simulated replies: http, model, tools, services, all, or the names of services, such as
    /// img,agent; may be repeated
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    simulate: Vec<String>,
}

/// The key of the secrets in a store.
#[derive(Args, Clone, Default)]
pub(crate) struct KeyArgs {
    /// The key that encrypts the secrets of the store: `env:NAME` or `file:PATH`; of several keys, separated by commas,
    /// the first one encrypts [default: a store in a folder creates a key]
    #[arg(long, value_name = "KEY", env = "FLOWCELL_SECRET_KEY", value_delimiter = ',')]
    pub(crate) secret_key: Vec<KeySource>,
}

/// The store whose secrets a flow may name, for commands that only check flows.
#[derive(Args, Default)]
pub(crate) struct BesideArgs {
    /// The folder of the store with the secrets that flows may name
    #[arg(long, value_name = "DIR", default_value = ".flowcell", env = "FLOWCELL_STATE", value_hint = ValueHint::DirPath)]
    pub(crate) state: PathBuf,
}

impl PackArgs {
    /// Returns options that set only these keys.
    pub(crate) fn with_keys(keys: KeyArgs) -> PackArgs {
        PackArgs { keys, ..PackArgs::default() }
    }

    /// Returns options that set only these keys and the folder of files.
    pub(crate) fn with_keys_and_files(keys: KeyArgs, files: Option<PathBuf>) -> PackArgs {
        PackArgs { files, ..PackArgs::with_keys(keys) }
    }

    /// Checks that the keys of the secrets can be used.
    pub(crate) fn check_keys(&self, place: StoreLocation<'_>) -> Result<(), CliError> {
        let folder = match place {
            StoreLocation::Folder(folder) => Some(folder),
            _ => None,
        };
        let checked = vault::check_keys(&self.keys.secret_key, folder);
        checked.map_err(|error| CliError::wrong(format!("{error}; the option of the keys is `--secret-key`")))
    }

    pub(crate) fn host(&self) -> Result<Host, CliError> {
        Ok(self.builder().build()?)
    }

    /// Returns a host that only checks flows. It reads the names of the secrets in the store, even if another process
    /// owns the store. A missing store is not an error.
    pub(crate) fn checking_host(&self, beside: &BesideArgs) -> Result<Host, CliError> {
        self.host_beside(&beside.state, |builder| builder)
    }

    /// Returns a checking host that also tries to open the secrets that flows name.
    pub(crate) fn validating_host(&self, beside: &BesideArgs) -> Result<Host, CliError> {
        self.host_beside(&beside.state, |builder| builder.opens_secrets(&beside.state))
    }

    /// Returns a host for `--dry-run`, which only reads the store.
    pub(crate) fn dry_host(&self, store: &StoreArgs) -> Result<Host, CliError> {
        match store.place()? {
            StoreLocation::Folder(folder) => self.host_beside(folder, |builder| builder),
            place => Ok(self.host_at(place)?),
        }
    }

    /// Returns a host that only reads the store in a folder. `with` adds to the builder if there is a store.
    fn host_beside(&self, folder: &Path, with: impl FnOnce(HostBuilder) -> HostBuilder) -> Result<Host, CliError> {
        match Reader::open(folder) {
            Ok(reader) => Ok(with(self.builder().reads(Arc::new(reader))).build()?),
            Err(OpenStoreError::Missing(_)) => self.host(),
            Err(error) => Err(flowcell::Error::Store(error).into()),
        }
    }

    pub(crate) fn host_with(&self, store: &StoreArgs) -> Result<Host, CliError> {
        Ok(self.host_at(store.place()?)?)
    }

    /// Returns a host with this store. The host exports telemetry if a collector is set. If `waits` is true, the server
    /// of a shared store may be away for minutes.
    pub(crate) fn watched_host(
        &self,
        store: &StoreArgs,
        server: &ServerArgs,
        watch: &WatchArgs,
        waits: bool,
    ) -> Result<Host, CliError> {
        let builder = store.place()?.set_store(watch.with_collector(self.builder()));
        Ok(warn_if_restored(server.add_to(builder.blobs(self.blobs.as_deref(), true), waits).build()?))
    }

    pub(crate) fn host_at(&self, place: StoreLocation<'_>) -> Result<Host, flowcell::Error> {
        place.set_store(self.builder()).build().map(warn_if_restored)
    }

    /// Returns a host that only reads a store, even if another process owns it. It reaches no services.
    pub(crate) fn reading_host(&self, store: &StoreArgs) -> Result<Host, CliError> {
        match store.place()? {
            StoreLocation::Server(url) => Ok(self.types().server(url).build()?),
            _ => Ok(self.types().reads(Arc::new(store.folder_reader()?)).build()?),
        }
    }

    /// Returns a host that only reads a store, and the lists of runs in the store. A store in a folder shows one moment
    /// from now on.
    pub(crate) fn snapshot_host(&self, store: &StoreArgs) -> Result<(Host, Arc<dyn Runs>), CliError> {
        match store.place()? {
            StoreLocation::Server(url) => {
                let runs: Box<dyn Runs> = open_shared_runs(url)?;
                Ok((self.types().server(url).build()?, runs.into()))
            }
            _ => {
                let reader = Arc::new(store.folder_reader()?);
                let unreadable = |error| CliError::ending(Exit::Unreadable, format!("cannot read the store: {error}"));
                reader.pin_snapshot().map_err(unreadable)?;
                Ok((self.types().reads(reader.clone()).build()?, reader))
            }
        }
    }

    /// Returns a host that only knows node types.
    pub(crate) fn types_host(&self) -> Result<Host, CliError> {
        Ok(self.types().build()?)
    }

    /// Returns a builder with the node types, but without the services that nodes may reach.
    fn types(&self) -> HostBuilder {
        let mut builder = Host::builder().instances(MAX_ATTEMPTS);
        program::arm_watchdog();
        if let Some(program) = program::program() {
            builder = builder.compiler(program);
        }
        self.packs.iter().fold(self.lock.add_to(builder), |builder, path| builder.packs(path))
    }

    /// Returns the options that limit the servers, files and secrets that runs may reach. The process that owns a
    /// store compares them with its own options before it runs a flow for this process.
    pub(crate) fn reach(&self) -> Reach {
        let usual = [
            ("--providers", &self.providers, "providers.yaml"),
            ("--mcp", &self.mcp, "mcp.yaml"),
            ("--secrets", &self.secrets, "secrets.yaml"),
            ("--services", &self.services, "services.yaml"),
        ];
        let usual = usual.into_iter().filter(|(_, given, _)| given.is_none());
        let usual = usual.filter_map(|(option, _, name)| Some((option, absolute(&user_setting_file(name)?))));
        let given =
            self.options().into_iter().fold(Reach::default(), |reach, (option, _, values)| reach.with(option, values));
        usual.fold(given, |reach, (option, value)| reach.with(option, [value]))
    }

    /// Returns the options that limit what runs may reach, each with its environment variable and its values.
    fn options(&self) -> Vec<(&'static str, &'static str, Vec<String>)> {
        let file = |file: &Option<PathBuf>| file.as_deref().map(absolute).into_iter().collect();
        let options = [
            ("--allow-private", "FLOWCELL_ALLOW_PRIVATE", self.allow_private.iter().map(ToString::to_string).collect()),
            ("--files", "FLOWCELL_FILES", file(&self.files)),
            ("--max-http-file", "FLOWCELL_MAX_HTTP_FILE", self.max_http_file.iter().map(ToString::to_string).collect()),
            ("--providers", "FLOWCELL_PROVIDERS", file(&self.providers)),
            ("--mcp", "FLOWCELL_MCP", file(&self.mcp)),
            ("--secrets", "FLOWCELL_SECRETS", file(&self.secrets)),
            ("--services", "FLOWCELL_SERVICES", file(&self.services)),
            ("--simulate", "", self.simulate.clone()),
        ];
        options.into_iter().chain(self.node_limits.options()).collect()
    }

    /// Returns the options that the command line sets and the environment does not, each with its value. A later
    /// command that resumes the run has to repeat them.
    pub(crate) fn given(&self) -> Vec<(&'static str, String)> {
        let is_set = |variable: &str, value: &str| {
            let set = env::var(variable).unwrap_or_default();
            set.split(',').any(|set| set == value || absolute(Path::new(set)) == value)
        };
        let mut given = Vec::new();
        for (option, variable, values) in self.options() {
            given.extend(values.into_iter().filter(|value| !is_set(variable, value)).map(|value| (option, value)));
        }
        given
    }

    pub(crate) fn builder(&self) -> HostBuilder {
        let mut builder = self.node_limits.add_to(self.types()).allow_private(self.allow_private.iter().cloned());
        builder = builder.simulate(Simulate::of(&self.simulate)).blobs(self.blobs.as_deref(), false);
        if let Some(folder) = &self.files {
            builder = builder.files(folder);
        }
        if let Some(size) = self.max_http_file {
            builder = builder.http_file_bytes(size << 20);
        }
        if let Some(file) = self.providers.clone().or_else(|| user_setting_file("providers.yaml")) {
            builder = builder.providers_file(file);
        }
        if let Some(file) = self.mcp.clone().or_else(|| user_setting_file("mcp.yaml")) {
            builder = builder.mcp_file(file);
        }
        if let Some(file) = self.secrets.clone().or_else(|| user_setting_file("secrets.yaml")) {
            builder = builder.secrets_file(file);
        }
        if let Some(file) = self.services.clone().or_else(|| user_setting_file("services.yaml")) {
            builder = builder.services_file(file);
        }
        builder.secret_keys(self.keys.secret_key.iter().cloned())
    }
}

fn absolute(path: &Path) -> String {
    let path = path.canonicalize().or_else(|_| std::path::absolute(path)).unwrap_or_else(|_| path.to_owned());
    path.display().to_string()
}

/// Returns a file in the user's settings folder, if it exists.
fn user_setting_file(file: &str) -> Option<PathBuf> {
    Some(user_settings_folder()?.join(file)).filter(|file| file.is_file())
}

/// Returns the user's settings folder of this program. `None`: the environment names no folder of the user.
pub(crate) fn user_settings_folder() -> Option<PathBuf> {
    let folder = |name| env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let settings = folder("XDG_CONFIG_HOME").or_else(|| Some(folder("HOME")?.join(".config")))?;
    Some(settings.join("flowcell"))
}

/// Returns the host. If its store was restored from an older copy, warns how many runs are parked for that reason.
fn warn_if_restored(host: Host) -> Host {
    if let Some(runs) = host.store().map(|store| store.restored()).filter(|runs| *runs > 0) {
        Terminal::detect().warn(&format!(
            "the store was restored from an older copy, so {runs} unfinished runs are parked; resume each with \
             `flowcell runs resume RUN`"
        ));
    }
    host
}
