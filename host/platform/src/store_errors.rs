//! The errors of stores within other errors.

use flowcell_contract::code;
use flowcell_runtime::{
    OpenError,
    ports::{MaybeStoreError, StoreError},
};

#[cfg(unix)]
use crate::tenants::TenantError;
use crate::{
    drive::triggers::LookError,
    host::error::StartError,
    library::LibraryError,
    operate::{documents::DocumentError, quota::QuotaError},
};

/// Implements [`MaybeStoreError`] for enums with a variant for errors of the store.
macro_rules! with_store {
    ($($error:ident),*) => {
        $(impl MaybeStoreError for $error {
            fn store_error(&self) -> Option<&StoreError> {
                if let $error::Store(error) = self { Some(error) } else { None }
            }
        })*
    };
}

with_store!(DocumentError, LibraryError, QuotaError);
#[cfg(unix)]
with_store!(TenantError);

impl MaybeStoreError for LookError {
    fn store_error(&self) -> Option<&StoreError> {
        match self {
            LookError::Store(error) => Some(error),
            LookError::Flows(error) => error.store_error(),
        }
    }
}

impl StartError {
    /// Returns the reason why a part of a stored run is unknown, if its other parts can be read: the run is damaged, or the
    /// flow that it began with cannot be used.
    pub fn unknown_part(&self) -> Option<String> {
        match self {
            StartError::Open(OpenError::Pin(failure)) if failure.code != code::STORE_FAILED => {
                Some(failure.message.clone())
            }
            error => error.damage(),
        }
    }
}

impl MaybeStoreError for StartError {
    fn store_error(&self) -> Option<&StoreError> {
        match self {
            StartError::Quota(error) => error.store_error(),
            StartError::Open(OpenError::Store(error)) => Some(error),
            _ => None,
        }
    }
}
