//! The limits of the capability `files`.

use flowcell_contract::MAX_FILE_BYTES;

/// The limits on files. The page `limits` of the manual lists the defaults.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Maximum bytes of a file that is read as text.
    pub text: u64,
    /// Maximum bytes of one file.
    pub file: u64,
    /// Maximum bytes of all files of a tenant.
    pub total: u64,
    /// Maximum number of files and folders of a tenant.
    pub entries: u64,
    /// Maximum number of entries that `list` returns. To list a folder with more entries is an error.
    pub listed: usize,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits { text: 1 << 20, file: MAX_FILE_BYTES, total: 16 << 30, entries: 100_000, listed: 10_000 }
    }
}
