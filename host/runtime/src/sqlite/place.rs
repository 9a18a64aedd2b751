//! The place of the large files of a store, as the store remembers it.

use rusqlite::{Connection, params};

use crate::objects::{Chosen, ObjectsError, Place, check_place};

/// Returns the place that the store remembers.
pub(super) fn remembered(connection: &Connection) -> Result<Place, rusqlite::Error> {
    let (name, known) = known(connection)?;
    Ok(Place::remembered(name, known.as_deref()))
}

/// Checks the place with which the store is opened, and remembers it.
pub(super) fn claim(connection: &Connection, chosen: &Chosen) -> Result<Place, ClaimError> {
    let (name, known) = known(connection)?;
    let given = match chosen {
        Chosen::Remembered => return Ok(Place::remembered(name, known.as_deref())),
        Chosen::Exactly(given) => given.as_ref(),
    };
    let is_known = check_place(known.as_deref(), given)?;
    let Some(objects) = given else { return Ok(Place::Beside) };
    objects.claim(&name, is_known)?;
    if !is_known {
        let location = objects.location().to_string();
        connection.execute("UPDATE object_store SET location = ?", params![location])?;
    }
    Ok(Place::Given(objects.clone()))
}

/// Makes a copy of a database a store of its own, whose large files are all in its folder.
pub(super) fn forget(connection: &Connection) -> Result<(), rusqlite::Error> {
    connection.execute("UPDATE object_store SET location = NULL, name = lower(hex(randomblob(16)))", ())?;
    connection.execute("UPDATE blobs SET object = NULL WHERE object IS NOT NULL", ()).map(drop)
}

/// Returns the name of the store, and the address of its objects.
fn known(connection: &Connection) -> Result<(String, Option<String>), rusqlite::Error> {
    connection.query_one("SELECT name, location FROM object_store", (), |row| Ok((row.get(0)?, row.get(1)?)))
}

/// The reason why a store does not open with a place for its files.
pub(super) enum ClaimError {
    Objects(ObjectsError),
    Database(rusqlite::Error),
}

impl From<ObjectsError> for ClaimError {
    fn from(error: ObjectsError) -> ClaimError {
        ClaimError::Objects(error)
    }
}

impl From<rusqlite::Error> for ClaimError {
    fn from(error: rusqlite::Error) -> ClaimError {
        ClaimError::Database(error)
    }
}
