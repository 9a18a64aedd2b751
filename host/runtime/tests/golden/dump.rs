//! Writes a SQLite database as SQL.

use rusqlite::{Connection, types::ValueRef};

/// Returns the statements that make the same database: its tables with their rows, and then its other objects.
pub(crate) fn dump(database: &Connection) -> String {
    let number = |name: &str| database.pragma_query_value(None, name, |row| row.get::<_, i64>(0)).unwrap();
    let mut text =
        String::from("-- A golden store, see `main.rs`. Do not change it.\nPRAGMA foreign_keys = OFF;\nBEGIN;\n");
    for name in ["application_id", "user_version"] {
        text += &format!("PRAGMA {name} = {};\n", number(name));
    }
    let sql = "SELECT name, sql, rootpage > 0 AND type = 'table', sql LIKE 'CREATE VIRTUAL%' FROM sqlite_schema
        WHERE sql IS NOT NULL AND name NOT LIKE 'sqlite_%' ORDER BY type = 'table' DESC, rowid";
    let mut select = database.prepare(sql).unwrap();
    let objects = select.query_map((), |row| {
        Ok((row.get::<_, String>(0)?, row.get::<_, String>(1)?, row.get::<_, bool>(2)?, row.get::<_, bool>(3)?))
    });
    let objects: Vec<_> = objects.unwrap().map(Result::unwrap).collect();
    let virtual_tables: Vec<_> =
        objects.iter().filter(|(.., is_virtual)| *is_virtual).map(|(name, ..)| name.clone()).collect();
    // A virtual table makes its own tables, whose rows replace the first ones.
    let is_shadow =
        |name: &str| virtual_tables.iter().any(|of| name.strip_prefix(&**of).is_some_and(|rest| rest.starts_with('_')));
    for (name, sql, is_table, _) in &objects {
        if !is_shadow(name) {
            text += &format!("{sql};\n");
        }
        if *is_table {
            if is_shadow(name) {
                text += &format!("DELETE FROM {name};\n");
            }
            rows(database, name, &mut text);
        }
    }
    text + "COMMIT;\n"
}

fn rows(database: &Connection, table: &str, text: &mut String) {
    let mut select = database.prepare(&format!("SELECT * FROM {table}")).unwrap();
    let count = select.column_count();
    let columns = select.column_names().collect::<Vec<_>>().join(", ");
    let mut rows = select.query(()).unwrap();
    while let Some(row) = rows.next().unwrap() {
        let values = (0..count).map(|column| match row.get_ref(column).unwrap() {
            ValueRef::Null => "NULL".to_owned(),
            ValueRef::Integer(number) => number.to_string(),
            ValueRef::Real(number) => format!("{number:?}"),
            ValueRef::Text(bytes) => format!("'{}'", String::from_utf8(bytes.to_vec()).unwrap().replace('\'', "''")),
            ValueRef::Blob(bytes) => {
                format!("x'{}'", bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>())
            }
        });
        *text += &format!("INSERT INTO {table} ({columns}) VALUES ({});\n", values.collect::<Vec<_>>().join(", "));
    }
}
