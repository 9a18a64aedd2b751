//! The place of the large files of a store, as the database remembers it.

use super::{
    OpenSharedStoreError,
    connection::{Connection, SqlError, args},
};
use crate::objects::{Chosen, Objects, ObjectsError, Place, check_place};

/// Checks the place with which the store is opened, and remembers it.
pub(super) async fn claim(connection: &mut Connection, chosen: &Chosen) -> Result<Place, OpenSharedStoreError> {
    let (name, known) = known(connection).await?;
    let given = match chosen {
        Chosen::Remembered => return Ok(Place::remembered(name, known.as_deref())),
        Chosen::Exactly(given) => given.as_ref(),
    };
    let is_known = check_place(known.as_deref(), given)?;
    let Some(objects) = given else { return Ok(Place::Beside) };
    claim_objects(objects.clone(), name, is_known).await?;
    if !is_known {
        let sql = "UPDATE flowcell_objects SET location = ? WHERE location IS NULL";
        connection.run(sql, args![objects.location().to_string()]).await?;
        // Another process may have remembered another place meanwhile.
        let (_, known) = self::known(connection).await?;
        check_place(known.as_deref(), given)?;
    }
    Ok(Place::Given(objects.clone()))
}

/// Claims on a thread that may wait.
async fn claim_objects(objects: Objects, name: String, is_known: bool) -> Result<(), ObjectsError> {
    let claimed = tokio::task::spawn_blocking(move || objects.claim(&name, is_known)).await;
    claimed.unwrap_or_else(|error| Err(ObjectsError::Access(error.to_string())))
}

/// Returns the name of the store.
pub(super) async fn name(connection: &mut Connection) -> Result<String, SqlError> {
    Ok(known(connection).await?.0)
}

/// Returns the name of the store, and the address of its objects.
async fn known(connection: &mut Connection) -> Result<(String, Option<String>), SqlError> {
    let row = connection.row("SELECT name, location FROM flowcell_objects", args![]).await?;
    let row = row.ok_or_else(|| SqlError::Permanent("the table `flowcell_objects` has no row".into()))?;
    Ok((row.text(0)?, row.maybe_text(1)?))
}
