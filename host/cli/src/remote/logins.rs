//! The stored logins: a file for each server in `flowcell/logins` in the user's folder of settings, which only the user may read.
//!
//! A file that another user could read or could have written is refused, and so is a link in its place.

use std::{
    fs::{self, DirBuilder, File, Metadata},
    io::{self, ErrorKind, Read, Write},
    path::{Path, PathBuf},
};

use flowcell::vault::Hidden;
use serde::{Deserialize, Serialize};

use super::ServerAddress;
use crate::{arguments::shell_word, cli_error::CliError, options::user_settings_folder};

/// Maximum size of a file.
const MAX_BYTES: u64 = 16 << 10;
/// Maximum number of stored logins.
pub(crate) const MAX_LOGINS: usize = 1_000;

/// A login at a server.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct StoredLogin {
    /// The address of the server.
    pub(crate) server: String,
    /// The token.
    pub(crate) token: Hidden,
    /// The time when it ends, in milliseconds since 1970.
    pub(crate) expires: Option<u64>,
    /// A file with certificates of private issuers of certificates.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) ca_file: Option<PathBuf>,
}

impl StoredLogin {
    /// Returns the address of the server.
    pub(crate) fn address(&self) -> Result<ServerAddress, CliError> {
        self.server.parse().map_err(|why: String| damaged(Path::new(&self.server), &why))
    }
}

/// The folder of the logins.
pub(crate) struct Logins(PathBuf);

impl Logins {
    /// Returns the folder of the user.
    pub(crate) fn of_user() -> Result<Logins, CliError> {
        let settings = user_settings_folder().ok_or_else(|| {
            CliError::wrong("the environment names no folder for the login")
                .hint("set HOME, or XDG_CONFIG_HOME to an own folder")
        })?;
        Ok(Logins(settings.join("logins")))
    }

    /// Returns the login at a server.
    pub(crate) fn find(&self, address: &ServerAddress) -> Result<Option<StoredLogin>, CliError> {
        let found = self.read(&address.file_name())?;
        match found {
            Some(login) if login.address()? != *address => {
                let file = self.0.join(address.file_name());
                Err(damaged(&file, "it is the login at another server"))
            }
            found => Ok(found),
        }
    }

    /// Returns all logins, in the order of their files.
    pub(crate) fn all(&self) -> Result<Vec<StoredLogin>, CliError> {
        let entries = match fs::read_dir(&self.0) {
            Ok(entries) => entries,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(unreadable(&self.0, &error)),
        };
        let names = entries.flatten().filter_map(|entry| entry.file_name().into_string().ok());
        let mut names: Vec<String> = names.filter(|name| name.ends_with(".json")).take(MAX_LOGINS).collect();
        names.sort();
        let read = names.iter().map(|name| self.read(name));
        read.filter_map(Result::transpose).collect()
    }

    /// Stores a login in the place of an earlier one at the server.
    pub(crate) fn put(&self, address: &ServerAddress, login: &StoredLogin) -> Result<(), CliError> {
        let file = self.0.join(address.file_name());
        let unwritable = |error: io::Error| CliError::wrong(format!("cannot write {}", file.display())).because(&error);
        let mut builder = DirBuilder::new();
        builder.recursive(true);
        #[cfg(unix)]
        std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
        builder.create(&self.0).map_err(unwritable)?;
        self.check_folder()?;
        let text = Hidden::from(serde_json::to_string(login).unwrap_or_default());
        // The temporary file is private, and the rename replaces a link instead of following it.
        let mut beside = tempfile::Builder::new().prefix(".login").tempfile_in(&self.0).map_err(unwritable)?;
        let written = beside.write_all(text.text().as_bytes()).and_then(|()| beside.as_file().sync_all());
        written.map_err(unwritable)?;
        beside.persist(&file).map_err(|error| unwritable(error.error))?;
        Ok(())
    }

    /// Removes the login at a server. Returns whether there was one. The file is not read.
    pub(crate) fn remove(&self, address: &ServerAddress) -> Result<bool, CliError> {
        let file = self.0.join(address.file_name());
        match fs::remove_file(&file) {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
            Err(error) => Err(CliError::wrong(format!("cannot remove {}", file.display())).because(&error)),
        }
    }

    fn read(&self, name: &str) -> Result<Option<StoredLogin>, CliError> {
        let path = self.0.join(name);
        let file = match open(&path) {
            Ok(file) => file,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(unreadable(&path, &error)),
        };
        self.check_folder()?;
        let metadata = file.metadata().map_err(|error| unreadable(&path, &error))?;
        check_private(&path, &metadata, metadata.is_file(), 0o077)?;
        let mut text = String::new();
        let read = file.take(MAX_BYTES + 1).read_to_string(&mut text);
        let text = Hidden::from(text);
        read.map_err(|error| unreadable(&path, &error))?;
        if text.text().len() as u64 > MAX_BYTES {
            return Err(damaged(&path, "it is too large"));
        }
        let login = serde_json::from_str(text.text());
        // The error of the parser may show a part of the token.
        login.map(Some).map_err(|error| damaged(&path, &format!("it is not a login (line {})", error.line())))
    }

    /// Refuses a folder that other users may read, or whose files they may replace.
    fn check_folder(&self) -> Result<(), CliError> {
        let metadata = fs::symlink_metadata(&self.0).map_err(|error| unreadable(&self.0, &error))?;
        check_private(&self.0, &metadata, metadata.is_dir(), 0o077)
    }
}

/// Opens a file without following a link, and without waiting for the other end of a pipe.
fn open(path: &Path) -> io::Result<File> {
    let mut options = File::options();
    options.read(true);
    #[cfg(unix)]
    {
        use rustix::fs::OFlags;
        let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK).bits();
        std::os::unix::fs::OpenOptionsExt::custom_flags(&mut options, flags as i32);
    }
    options.open(path)
}

/// Refuses an object that is of another kind or of another user, or for which others have one of these permissions.
#[cfg(unix)]
fn check_private(path: &Path, metadata: &Metadata, has_kind: bool, others: u32) -> Result<(), CliError> {
    use std::os::unix::fs::MetadataExt;
    let is_own = metadata.uid() == rustix::process::geteuid().as_raw();
    let why = match () {
        () if !has_kind => "it is a link, or of another kind",
        () if !is_own => "it belongs to another user",
        () if metadata.mode() & others != 0 => "other users may read or change it",
        () => return Ok(()),
    };
    let problem = CliError::wrong(format!("{} is not private: {why}", path.display()));
    if has_kind && is_own && metadata.is_dir() && metadata.mode() & 0o022 == 0 {
        let hint = format!("its logins have rights of their own, so keep them: `chmod 700 {}`", word(path));
        return Err(problem.hint(hint));
    }
    Err(problem
        .note("the token in it may be known to others: `flowcell token revoke ID`, or let its login end")
        .hint(format!("remove it, and log in again: `rm -r {}`", word(path))))
}

/// Returns a path as one word of a shell.
#[cfg(unix)]
fn word(path: &Path) -> String {
    shell_word(&path.display().to_string())
}

#[cfg(not(unix))]
fn check_private(_: &Path, _: &Metadata, _: bool, _: u32) -> Result<(), CliError> {
    Ok(())
}

fn unreadable(path: &Path, error: &io::Error) -> CliError {
    match path.is_symlink() {
        true => CliError::wrong(format!("{} is a link, and a link in the place of a login is refused", path.display()))
            .hint("remove it, and log in again"),
        false => CliError::wrong(format!("cannot read {}", path.display())).because(error),
    }
}

fn damaged(path: &Path, why: &str) -> CliError {
    CliError::wrong(format!("{} cannot be used: {why}", path.display())).hint("remove it, and log in again")
}

#[cfg(all(test, unix))]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    fn address(text: &str) -> ServerAddress {
        text.parse().unwrap()
    }

    fn login(server: &ServerAddress, token: &str) -> StoredLogin {
        StoredLogin { server: server.to_string(), token: Hidden::from(token.to_owned()), expires: None, ca_file: None }
    }

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().permissions().mode() & 0o777
    }

    #[test]
    fn a_login_is_private_and_that_of_its_port() {
        let folder = tempfile::tempdir().unwrap();
        let logins = Logins(folder.path().join("flowcell/logins"));
        let (first, second) = (address("http://127.0.0.1:1"), address("http://127.0.0.1:2"));
        assert!(logins.all().unwrap().is_empty() && logins.find(&first).unwrap().is_none());
        logins.put(&first, &login(&first, "one")).unwrap();
        logins.put(&second, &login(&second, "two")).unwrap();
        let file = logins.0.join(first.file_name());
        assert_eq!((mode(&logins.0), mode(&file)), (0o700, 0o600));
        let token = |of: &ServerAddress| logins.find(of).unwrap().map(|login| login.token.text().to_owned());
        assert_eq!((token(&first).as_deref(), token(&second).as_deref()), (Some("one"), Some("two")));
        assert_eq!(logins.all().unwrap().len(), 2);
        // A file under the name of another server is none.
        fs::copy(&file, logins.0.join(second.file_name())).unwrap();
        assert!(logins.find(&second).unwrap_err().plain().contains("at another server"));
        assert!(logins.remove(&first).unwrap() && !logins.remove(&first).unwrap());
        assert_eq!(fs::read_dir(&logins.0).unwrap().count(), 1, "no temporary file stays");
    }

    #[test]
    fn what_others_could_read_or_write_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let logins = Logins(folder.path().join("logins"));
        let server = address("https://h");
        let file = logins.0.join(server.file_name());
        let put = || logins.put(&server, &login(&server, "secret")).unwrap();
        let refused = |why: &str| {
            let error = logins.find(&server).unwrap_err().plain();
            assert!(error.contains(why) && !error.contains("secret"), "{error}");
        };
        for wrong in [0o640, 0o604, 0o620, 0o666] {
            put();
            fs::set_permissions(&file, fs::Permissions::from_mode(wrong)).unwrap();
            refused("not private");
        }
        put();
        let elsewhere = folder.path().join("elsewhere");
        fs::rename(&file, &elsewhere).unwrap();
        symlink(&elsewhere, &file).unwrap();
        refused("is a link");
        // A dangling link and a circle of links get the same answer.
        for target in [folder.path().join("none"), file.clone()] {
            fs::remove_file(&file).unwrap();
            symlink(target, &file).unwrap();
            refused("is a link");
        }
        fs::remove_file(&file).unwrap();
        symlink(&elsewhere, &file).unwrap();
        // A login replaces the link, and leaves its target alone.
        logins.put(&server, &login(&server, "new")).unwrap();
        assert!(fs::symlink_metadata(&file).unwrap().is_file());
        assert!(fs::read_to_string(&elsewhere).unwrap().contains("secret"));
        fs::remove_file(&file).unwrap();
        fs::create_dir(&file).unwrap();
        refused("not private");
        fs::remove_dir(&file).unwrap();
        fs::write(&file, "{ secret").unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
        refused("not a login");
        put();
        for wrong in [0o770, 0o755, 0o750, 0o710, 0o701, 0o704, 0o722] {
            fs::set_permissions(&logins.0, fs::Permissions::from_mode(wrong)).unwrap();
            refused("not private");
            assert!(logins.put(&server, &login(&server, "new")).is_err(), "{wrong:o}");
        }
        // A link in the place of the folder.
        fs::set_permissions(&logins.0, fs::Permissions::from_mode(0o700)).unwrap();
        fs::rename(&logins.0, folder.path().join("real")).unwrap();
        symlink(folder.path().join("real"), &logins.0).unwrap();
        refused("not private");
        assert!(logins.put(&server, &login(&server, "new")).is_err());
    }
}
