//! Opens the control socket of a store. The system limits a socket path to about 100 bytes. If the folder has a longer
//! path, Linux reaches the socket through the descriptor of the opened folder. Other systems refuse such a folder.

use std::{
    fs::{File, Permissions},
    io,
    os::unix::{
        ffi::OsStrExt,
        fs::PermissionsExt,
        net::{UnixListener, UnixStream},
    },
    path::{Path, PathBuf},
};

const SOCKET: &str = "control.sock";
/// Maximum number of bytes of a socket path that every Unix accepts.
const SOCKET_PATH_BYTES: usize = 103;

/// Connects to the process that listens in a folder.
pub(super) fn connect(folder: &Path) -> io::Result<UnixStream> {
    let place = SocketPath::new(folder)?;
    UnixStream::connect(&place.path)
}

/// Listens in a folder that this process owns. It removes a socket that an earlier process left behind.
pub(super) fn bind(folder: &Path) -> io::Result<UnixListener> {
    let path = folder.join(SOCKET);
    let _ = std::fs::remove_file(&path);
    let place = SocketPath::new(folder)?;
    let listener = UnixListener::bind(&place.path)?;
    std::fs::set_permissions(&path, Permissions::from_mode(0o600))?;
    Ok(listener)
}

/// Removes the socket in a folder that this process owns. No other process can connect to it after that.
pub(super) fn unbind(folder: &Path) {
    // If it remains, the next owner removes it.
    let _ = std::fs::remove_file(folder.join(SOCKET));
}

/// A socket path that is short enough for the system.
struct SocketPath {
    path: PathBuf,
    /// The opened folder, if `path` goes through its descriptor. `path` is valid only while the folder is open.
    _folder: Option<File>,
}

impl SocketPath {
    fn new(folder: &Path) -> io::Result<SocketPath> {
        let path = folder.join(SOCKET);
        if path.as_os_str().as_bytes().len() <= SOCKET_PATH_BYTES {
            return Ok(SocketPath { path, _folder: None });
        }
        SocketPath::through_open_folder(folder)
    }

    #[cfg(target_os = "linux")]
    fn through_open_folder(folder: &Path) -> io::Result<SocketPath> {
        let folder = File::open(folder)?;
        let number = std::os::fd::AsRawFd::as_raw_fd(&folder);
        let path = PathBuf::from(format!("/proc/self/fd/{number}/{SOCKET}"));
        Ok(SocketPath { path, _folder: Some(folder) })
    }

    #[cfg(not(target_os = "linux"))]
    fn through_open_folder(folder: &Path) -> io::Result<SocketPath> {
        let most = SOCKET_PATH_BYTES - SOCKET.len() - 1;
        let message = format!("the path {} is longer than the {most} bytes that this system allows", folder.display());
        Err(io::Error::new(io::ErrorKind::InvalidInput, message))
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

    use std::io::{Read, Write};

    use super::*;

    #[test]
    fn a_folder_with_a_long_path_has_a_socket() {
        let place = tempfile::tempdir().unwrap();
        for name in ["short".to_owned(), "long".repeat(30), format!("{}/{}", "a".repeat(200), "b".repeat(200))] {
            let folder = place.path().join(name);
            std::fs::create_dir_all(&folder).unwrap();
            // A second process takes over the socket that the first left behind.
            drop(bind(&folder).unwrap());
            let listener = bind(&folder).unwrap();
            let mode = folder.join(SOCKET).metadata().unwrap().permissions().mode();
            assert_eq!(mode & 0o777, 0o600);
            let mut asking = connect(&folder).unwrap();
            asking.write_all(b"ask").unwrap();
            drop(asking);
            let mut heard = String::new();
            listener.accept().unwrap().0.read_to_string(&mut heard).unwrap();
            assert_eq!(heard, "ask");
        }
    }
}
