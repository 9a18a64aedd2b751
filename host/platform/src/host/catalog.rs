//! The packs that the build script embedded in this program.

/// One of the packs in `nodes/`.
pub(crate) struct BuiltIn {
    /// The prefix of its node types.
    pub(crate) name: &'static str,
    /// SHA-256 of the component, in hexadecimal, so that the start hashes nothing.
    pub(crate) digest: &'static str,
    /// The bytes of the component.
    pub(crate) bytes: &'static [u8],
}

/// Returns the built-in pack with this digest.
pub(crate) fn find(digest: &str) -> Option<&'static BuiltIn> {
    PACKS.iter().find(|pack| pack.digest == digest)
}

/// All built-in packs.
pub(crate) static PACKS: &[BuiltIn] = include!(concat!(env!("OUT_DIR"), "/catalog.rs"));
