//! A real registry: `docker-registry`, on a free port for the duration of a test.

use std::{
    env, fs,
    io::{BufRead, BufReader},
    process::{Child, Command, Stdio},
    thread,
};

/// The password of the user `ada` of a private registry.
pub(crate) const PASSWORD: &str = "a secret of the tests";
const HTPASSWD: &str = "ada:$2y$05$flowcellflowcellflowceFn5Em39OngIcE5MOZlG.N6ODLakU7YO\n";

/// A running registry.
pub(crate) struct Registry {
    process: Child,
    _folder: tempfile::TempDir,
    /// The host and port.
    pub(crate) address: String,
}

impl Registry {
    /// Starts a registry that is open, or private with one user. If `docker-registry` is not installed, prints the name
    /// of the skipped test and returns `None`.
    pub(crate) fn start(private: bool) -> Option<Registry> {
        let paths = env::var_os("PATH").unwrap_or_default();
        let Some(program) =
            env::split_paths(&paths).map(|folder| folder.join("docker-registry")).find(|path| path.is_file())
        else {
            let test = thread::current().name().unwrap_or("a test").to_owned();
            assert!(env::var_os("FLOWCELL_TEST_REGISTRY").is_none(), "{test} needs `docker-registry`");
            eprintln!("skipped: {test}: `docker-registry` is not installed");
            return None;
        };
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        fs::write(at("htpasswd"), HTPASSWD).unwrap();
        let auth = format!("auth: {{ htpasswd: {{ realm: tests, path: {} }} }}\n", at("htpasswd").display());
        let config = format!(
            "version: 0.1\nlog: {{ level: info, accesslog: {{ disabled: true }} }}\nhttp: {{ addr: '127.0.0.1:0' }}\n\
             storage: {{ filesystem: {{ rootdirectory: {} }} }}\n{}",
            at("data").display(),
            if private { &auth } else { "" }
        );
        fs::write(at("config.yml"), config).unwrap();
        let mut command = Command::new(program);
        command.arg("serve").arg(at("config.yml")).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut process = command.spawn().unwrap();
        let mut lines = BufReader::new(process.stderr.take().unwrap()).lines().map_while(Result::ok);
        let said = lines.by_ref().find_map(|line| {
            let (_, rest) = line.split_once("listening on ")?;
            Some(rest.split(['"', ' ', ',']).next()?.to_owned())
        });
        // Read the later output, so that the registry does not block.
        thread::spawn(move || lines.for_each(drop));
        Some(Registry { process, _folder: folder, address: said.unwrap() })
    }
}

impl Drop for Registry {
    fn drop(&mut self) {
        // The registry may have ended already.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
