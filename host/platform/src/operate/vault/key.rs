//! The operator's keys, which encrypt data keys. The store never contains them.

use std::{
    env, fmt, fs, io,
    path::{Path, PathBuf},
    str::FromStr,
};

use flowcell_contract::{host_files::STORE_FILE, shell::shell_word};
use sha2::{Digest, Sha256};
use zeroize::Zeroizing;

use super::{
    VaultError,
    seal::{KEY_BYTES, KeyBytes, new_key},
};

/// Name of the file with the operator's key, in the folder of the store. The host creates the file if the operator has
/// configured no key.
pub const KEY_FILE: &str = "secret.key";
/// Name of the file with the next key during a rotation, in the same folder.
const NEXT_KEY_FILE: &str = "secret.key.next";
/// A constant text. The name of a key is derived from this text and the key.
const KEY_NAME_INPUT: &[u8] = b"flowcell key encryption key";

/// A key encryption key: a key of the operator that encrypts data keys. Its name identifies it and reveals nothing
/// about its bytes.
#[derive(Clone)]
pub(super) struct Kek {
    pub(super) name: String,
    pub(super) bytes: KeyBytes,
    /// True for a key in a file that the host has made, in the folder of the store. Its data keys need the keys of
    /// tenants, too.
    pub(super) is_own: bool,
}

impl fmt::Debug for Kek {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_tuple("Kek").field(&self.name).finish()
    }
}

impl Kek {
    fn from_bytes(bytes: KeyBytes) -> Kek {
        let mut hasher = Sha256::new();
        hasher.update(KEY_NAME_INPUT);
        hasher.update(&bytes[..]);
        Kek { name: hex::encode(&hasher.finalize()[..8]), bytes, is_own: false }
    }

    pub(super) fn random() -> Kek {
        Kek::from_bytes(new_key())
    }

    /// Parses 64 hexadecimal digits. The error does not contain them.
    pub(super) fn parse(text: &str) -> Result<Kek, String> {
        let mut bytes = Zeroizing::new([0; KEY_BYTES]);
        let read = hex::decode_to_slice(text.trim(), &mut bytes[..]);
        read.map_err(|_| "write 64 hexadecimal digits, as `openssl rand -hex 32` prints them".to_owned())?;
        Ok(Kek::from_bytes(bytes))
    }
}

/// The source of a key: `env:NAME` or `file:PATH`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KeySource {
    /// A variable of the environment.
    Environment(String),
    /// A file that only its owner may read.
    File(PathBuf),
}

impl FromStr for KeySource {
    type Err = String;

    fn from_str(text: &str) -> Result<KeySource, String> {
        match text.split_once(':') {
            Some(("env", name)) if !name.is_empty() => Ok(KeySource::Environment(name.to_owned())),
            Some(("file", path)) if !path.is_empty() => Ok(KeySource::File(path.into())),
            // The text may be the key itself, so the error does not quote it.
            _ => Err("write `env:NAME` or `file:PATH`".into()),
        }
    }
}

impl KeySource {
    /// Reads the text of the key.
    pub fn read(&self) -> Result<Zeroizing<String>, VaultError> {
        match self {
            KeySource::Environment(name) => {
                let value = env::var(name)
                    .map_err(|_| VaultError::Key(format!("the environment variable {name} is not set")))?;
                Ok(Zeroizing::new(value))
            }
            KeySource::File(path) => read_file(path),
        }
    }

    pub(super) fn key(&self) -> Result<Kek, VaultError> {
        let place = match self {
            KeySource::Environment(name) => format!("the environment variable {name}"),
            KeySource::File(path) => path.display().to_string(),
        };
        Kek::parse(&self.read()?).map_err(|why| VaultError::Key(format!("{place}: {why}")))
    }
}

fn read_file(path: &Path) -> Result<Zeroizing<String>, VaultError> {
    let wrong = |why: &dyn fmt::Display| VaultError::Key(format!("{}: {why}", path.display()));
    if let Some(mode) = fs::metadata(path).ok().and_then(|file| open_to_others(&file)) {
        let why = format!("other users may read it (mode {mode:o}); run `chmod 600 {}`", word(path));
        return Err(wrong(&why));
    }
    fs::read_to_string(path).map(Zeroizing::new).map_err(|error| wrong(&error))
}

/// Returns the mode of a file if users other than its owner may read or write it, or else `None`.
#[cfg(unix)]
pub fn open_to_others(file: &fs::Metadata) -> Option<u32> {
    use std::os::unix::fs::PermissionsExt;
    let mode = file.permissions().mode() & 0o777;
    (mode & 0o077 != 0).then_some(mode)
}

/// Returns `None`, since systems other than Unix have no such modes.
#[cfg(not(unix))]
pub fn open_to_others(_file: &fs::Metadata) -> Option<u32> {
    None
}

/// Returns a warning if other users may read the store in a folder, or else `None`.
pub fn exposure_warning(folder: &Path) -> Option<String> {
    let mode = open_to_others(&fs::metadata(folder.join(STORE_FILE)).ok()?)?;
    let (shown, folder) = (folder.display(), word(folder));
    Some(format!("other users may read the store in {shown} (mode {mode:o}); run `chmod -R go= {folder}`"))
}

/// Returns a path as one word of a shell.
fn word(path: &Path) -> String {
    shell_word(&path.display().to_string())
}

/// Checks that the operator's keys can be used: the given ones, or without any those beside the store in a folder.
pub fn check_keys(given: &[KeySource], folder: Option<&Path>) -> Result<(), VaultError> {
    let place = match folder {
        _ if !given.is_empty() => KeyPlace::Given(given.to_vec()),
        Some(folder) => KeyPlace::Beside(folder.to_owned()),
        None => KeyPlace::Missing,
    };
    place.load().map(drop)
}

/// The place of the operator's keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum KeyPlace {
    /// The operator's key sources. The first key encrypts.
    Given(Vec<KeySource>),
    /// A key file in this folder, which is created on first use.
    Beside(PathBuf),
    /// A key in memory. The key and the secrets are lost when the process ends.
    Memory,
    /// The operator has configured no key.
    Missing,
}

impl KeyPlace {
    /// Loads the existing keys. The first one encrypts.
    pub(super) fn load(&self) -> Result<Vec<Kek>, VaultError> {
        match self {
            KeyPlace::Given(sources) => sources.iter().map(KeySource::key).collect(),
            KeyPlace::Beside(folder) => {
                let files = [folder.join(KEY_FILE), folder.join(NEXT_KEY_FILE)];
                let own = |file| KeySource::File(file).key().map(|key| Kek { is_own: true, ..key });
                files.into_iter().filter(|file| file.exists()).map(own).collect()
            }
            KeyPlace::Memory => Ok(vec![Kek::random()]),
            KeyPlace::Missing => Ok(Vec::new()),
        }
    }

    /// Returns whether [`KeyPlace::make`] can create a key.
    pub(super) fn makes_keys(&self) -> bool {
        matches!(self, KeyPlace::Beside(_))
    }

    /// Creates the operator's first key in a file beside the store. Fails for every other place of keys.
    pub(super) fn make(&self) -> Result<Kek, VaultError> {
        match self {
            KeyPlace::Beside(folder) => make_file(folder, KEY_FILE),
            _ => Err(VaultError::NoKey),
        }
    }

    /// Creates the next key, or returns the one that an unfinished rotation created.
    pub(super) fn make_next(&self) -> Result<Kek, VaultError> {
        let KeyPlace::Beside(folder) = self else {
            let why = "the new key is missing: pass `--new-secret-key env:NAME` or `file:PATH`";
            return Err(VaultError::Key(why.into()));
        };
        match KeySource::File(folder.join(NEXT_KEY_FILE)) {
            source @ KeySource::File(_) if folder.join(NEXT_KEY_FILE).exists() => {
                source.key().map(|key| Kek { is_own: true, ..key })
            }
            _ => make_file(folder, NEXT_KEY_FILE),
        }
    }

    /// Replaces the key file by the file of the next key, if `key` is that next key. Otherwise it does nothing.
    pub(super) fn promote_next(&self, key: &Kek) -> Result<(), VaultError> {
        let KeyPlace::Beside(folder) = self else { return Ok(()) };
        let file = folder.join(NEXT_KEY_FILE);
        if !file.exists() || KeySource::File(file.clone()).key()?.name != key.name {
            return Ok(());
        }
        let taken = fs::rename(&file, folder.join(KEY_FILE)).and_then(|()| fs::File::open(folder)?.sync_all());
        taken.map_err(|error| VaultError::Key(format!("{}: {error}", file.display())))
    }
}

/// Creates a key in a file that only its owner may read. The file is on stable storage before the key encrypts
/// anything.
fn make_file(folder: &Path, name: &str) -> Result<Kek, VaultError> {
    let (key, file) = (Kek { is_own: true, ..Kek::random() }, folder.join(name));
    let text = Zeroizing::new(hex::encode(&key.bytes[..]) + "\n");
    let made = write_new(&file, &text).and_then(|()| fs::File::open(folder)?.sync_all());
    made.map_err(|error| VaultError::Key(format!("{}: {error}", file.display())))?;
    Ok(key)
}

/// Writes a new file that only its owner may read, and syncs it.
pub(crate) fn write_new(file: &Path, text: &str) -> io::Result<()> {
    let mut options = fs::OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    let mut file = options.open(file)?;
    io::Write::write_all(&mut file, text.as_bytes())?;
    file.sync_all()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

    use super::*;

    #[test]
    fn a_key_is_64_digits_and_only_its_name_is_shown() {
        let text = "0123456789abcdef".repeat(4);
        let key = Kek::parse(&format!(" {text}\n")).unwrap();
        assert_eq!(key.name.len(), 16);
        assert!(!text.contains(&key.name) && !format!("{key:?}").contains(&text));
        for wrong in ["", "hunter2", &text[1..], &format!("{text}00"), &text.replace('0', "x")] {
            let why = Kek::parse(wrong).unwrap_err();
            assert!(wrong.is_empty() || !why.contains(wrong), "{why}");
        }
        assert!("env:A".parse::<KeySource>().is_ok() && "file:a/b".parse::<KeySource>().is_ok());
        assert!(!text.parse::<KeySource>().unwrap_err().contains(&text));
    }

    #[cfg(unix)]
    #[test]
    fn a_folder_in_a_printed_command_is_a_word_of_a_shell() {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().unwrap();
        let store = folder.path().join("st; rm -r x");
        fs::create_dir(&store).unwrap();
        fs::write(store.join(STORE_FILE), "").unwrap();
        fs::set_permissions(store.join(STORE_FILE), fs::Permissions::from_mode(0o644)).unwrap();
        let warning = exposure_warning(&store).unwrap();
        assert!(warning.ends_with(&format!("run `chmod -R go= '{}'`", store.display())), "{warning}");
        let key = store.join("key");
        fs::write(&key, "").unwrap();
        fs::set_permissions(&key, fs::Permissions::from_mode(0o644)).unwrap();
        let refused = read_file(&key).unwrap_err().to_string();
        assert!(refused.contains(&format!("`chmod 600 '{}'`", key.display())), "{refused}");
    }
}
