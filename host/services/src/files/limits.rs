//! The numbers of the capability `files`.

/// How much files may take. The page `limits` of the manual lists the defaults.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of a file that is read as text.
    pub text: u64,
    /// Bytes of a file.
    pub file: u64,
    /// Bytes of all files of a tenant.
    pub total: u64,
    /// Files and folders of a tenant.
    pub entries: u64,
    /// Entries of a folder that is listed.
    pub listed: usize,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits { text: 1 << 20, file: 32 << 20, total: 1 << 30, entries: 100_000, listed: 10_000 }
    }
}
