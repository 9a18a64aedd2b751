//! The place of the large files of a store.

use std::{
    sync::{Arc, OnceLock},
    time::{Duration, Instant},
};

use flowcell_contract::{Failure, code};
use parking_lot::Mutex;

use super::{Access, Location, Objects, ObjectsError};
use crate::{limits::OBJECT_AWAY_MS, ports::StoreError};

/// The object store with which a process opens a store.
#[derive(Clone, Debug)]
pub enum Chosen {
    /// This one, or none. The store refuses any other than the one that it has used before.
    Exactly(Option<Objects>),
    /// The one that the store has used before, if any. A process connects to it when it needs a file, by the settings of
    /// its environment.
    Remembered,
}

/// The place of new large files, and of those that an object store has.
#[derive(Clone, Debug, Default)]
pub(crate) enum Place {
    /// Beside the rows: in a folder, or in the database.
    #[default]
    Beside,
    /// An object store that was named when the store was opened.
    Given(Objects),
    /// The object store that the store of a name remembers.
    Remembered { location: Location, store: String, connection: Arc<Connection> },
}

/// The connection of a process to the object store that the store remembers.
#[derive(Debug, Default)]
pub(crate) struct Connection {
    made: OnceLock<Objects>,
    /// The time until which new files lie beside the rows, because the object store could not be used.
    away_until: Mutex<Option<Instant>>,
}

impl Place {
    /// Returns the place that the store of a name remembers by its address.
    pub(crate) fn remembered(store: String, known: Option<&str>) -> Place {
        match known.and_then(|known| Location::parse(known).ok()) {
            Some(location) => Place::Remembered { location, store, connection: Arc::default() },
            None => Place::Beside,
        }
    }

    /// Returns the object store that may have files of the store, if there is one. Fails if it cannot be used.
    pub(crate) fn in_use(&self) -> Result<Option<Objects>, StoreError> {
        match self {
            Place::Beside => Ok(None),
            _ => self.objects().map(Some).map_err(|failure| StoreError::unavailable(failure.message)),
        }
    }

    /// Returns the object store for new files, if they do not lie beside the rows. They lie there for a while after the
    /// object store that the store remembers could not be used.
    pub(crate) fn for_new(&self) -> Option<Objects> {
        let Place::Remembered { connection, .. } = self else { return self.in_use().ok().flatten() };
        if connection.away_until.lock().is_some_and(|until| Instant::now() < until) {
            return None;
        }
        let objects = self.objects().inspect_err(|failure| {
            *connection.away_until.lock() = Some(Instant::now() + Duration::from_millis(OBJECT_AWAY_MS));
            tracing::warn!("new files stay beside the rows of the store for a while: {}", failure.message);
        });
        objects.ok()
    }

    /// Fails if the object store that may have files of the store cannot be used, or does not answer now.
    pub(crate) fn reach(&self) -> Result<(), StoreError> {
        self.in_use()?.map_or(Ok(()), |objects| objects.reach())
    }

    /// Returns the object store that has files of the store.
    pub(crate) fn objects(&self) -> Result<Objects, Failure> {
        match self {
            Place::Given(objects) => Ok(objects.clone()),
            Place::Remembered { location, store, connection } => {
                if let Some(objects) = connection.made.get() {
                    return Ok(objects.clone());
                }
                let access = Access::read(|name| std::env::var(name).ok()).map_err(ObjectsError::Access);
                let objects = access.and_then(|access| Objects::connect(location.clone(), &access));
                let verified = objects.and_then(|objects| objects.verify(store, true).map(|()| objects));
                let objects = verified.map_err(|error| {
                    let message = match &error {
                        ObjectsError::Access(_) | ObjectsError::NoFeature => {
                            format!("the files of the store are in {location}: {error}")
                        }
                        _ => error.to_string(),
                    };
                    match error.is_away() {
                        true => Failure::retryable(code::STORE_FAILED, message),
                        false => Failure::new(code::STORE_FAILED, message),
                    }
                })?;
                Ok(connection.made.get_or_init(|| objects).clone())
            }
            Place::Beside => {
                Err(Failure::new(code::STORE_FAILED, "the store does not remember the place of its files"))
            }
        }
    }
}

/// Checks the place that a store remembers against the one that was given. Returns whether the store has used it before.
pub(crate) fn check_place(known: Option<&str>, given: Option<&Objects>) -> Result<bool, ObjectsError> {
    let parse = |known: &str| Location::parse(known).map_err(|error| ObjectsError::Access(error.to_string()));
    match (known.map(parse).transpose()?, given.map(Objects::location)) {
        (Some(known), None) => Err(ObjectsError::Missing(known)),
        (Some(known), Some(given)) if known != *given => Err(ObjectsError::Other { known, given: given.clone() }),
        (known, _) => Ok(known.is_some()),
    }
}
