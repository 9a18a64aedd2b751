//! `--out`: writes the files among a run's outputs to a folder.

use std::{
    collections::BTreeSet,
    fs, io,
    path::{Path, PathBuf},
};

use cap_std::{ambient_authority, fs::Dir};
use flowcell::{Host, Json, files};

use crate::cli_error::CliError;

/// Number of bytes at the beginning of a file that show its media type.
const HEAD_BYTES: usize = 64;
/// Maximum number of characters of a file name, without its number and extension.
const MAX_NAME_CHARS: usize = 100;

/// Writes every file among the outputs to a folder. The name of a file is its place in the outputs, such as
/// `result.png` or `pages-1.pdf`. Returns the paths. Links never lead a write outside the folder.
pub(crate) fn files(host: &Host, outputs: &Json, folder: &Path) -> Result<Vec<PathBuf>, CliError> {
    let mut found = Vec::new();
    find_files(outputs, "", &mut found);
    let cannot = |error: io::Error| CliError::wrong(format!("cannot write to {}", folder.display())).because(&error);
    fs::create_dir_all(folder).map_err(cannot)?;
    let dir = Dir::open_ambient_dir(folder, ambient_authority()).map_err(cannot)?;
    let (mut taken, mut written) = (BTreeSet::new(), Vec::new());
    for (place, file) in found {
        let unreadable = |error: files::FileError| {
            CliError::by_code(error.code(), format!("cannot save the output `{place}`: {error}"))
        };
        let head = host.read_file(file, 0, HEAD_BYTES).map_err(unreadable)?;
        let mime = file.get("mime").and_then(Json::as_str).unwrap_or_default();
        let name = unique_name(&place, files::ending(&head, mime), &mut taken);
        let mut to = dir.create(&name).map_err(cannot)?;
        host.copy_file(file, &mut to).map_err(|error| match error {
            files::CopyFileError::File(error) => unreadable(error),
            files::CopyFileError::Write(error) => cannot(error),
        })?;
        written.push(folder.join(name));
    }
    Ok(written)
}

/// Finds the file values in a value, each with its place, such as `pages-1`.
fn find_files<'a>(value: &'a Json, place: &str, found: &mut Vec<(String, &'a Json)>) {
    let below = |name: &str| if place.is_empty() { name.to_owned() } else { format!("{place}-{name}") };
    match value {
        Json::Object(_) if value.get("kind").and_then(Json::as_str) == Some("file") => {
            found.push((place.to_owned(), value));
        }
        Json::Object(members) => members.iter().for_each(|(name, value)| find_files(value, &below(name), found)),
        Json::Array(items) => {
            (1..)
                .zip(items.iter())
                .for_each(|(number, value)| find_files(value, &below(&i32::to_string(&number)), found));
        }
        _ => {}
    }
}

/// Returns a file name with safe characters that is not taken yet, and marks it as taken.
fn unique_name(place: &str, ending: &str, taken: &mut BTreeSet<String>) -> String {
    let plain = |letter: char| if letter.is_ascii_alphanumeric() || "-_".contains(letter) { letter } else { '_' };
    let plain: String = place.chars().map(plain).take(MAX_NAME_CHARS).collect();
    let plain = if plain.is_empty() { "output".to_owned() } else { plain };
    let numbered = (2..).map(|number: u32| format!("{plain}-{number}.{ending}"));
    let mut names = std::iter::once(format!("{plain}.{ending}")).chain(numbered);
    // Compare in lower case, since some file systems ignore case.
    names.find(|name| taken.insert(name.to_ascii_lowercase())).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::unique_name;

    #[test]
    fn file_names_are_safe_and_unique() {
        let mut taken = BTreeSet::new();
        let names =
            ["result", "Result", "../etc/passwd", "", ".ssh", "a b"].map(|place| unique_name(place, "png", &mut taken));
        assert_eq!(names, ["result.png", "Result-2.png", "___etc_passwd.png", "output.png", "_ssh.png", "a_b.png"]);
        assert!(unique_name(&"x".repeat(500), "bin", &mut taken).len() < 110);
    }
}
