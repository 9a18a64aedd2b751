//! Contents of files, which are read in parts.

use std::{
    fs,
    io::{self, Read},
    path::{Path, PathBuf},
};

use flowcell::files::{MAX_FILE, MAX_WHOLE_FILE};

use crate::cli_error::CliError;

/// The content of a file or of standard input, which is read in parts.
pub(crate) struct Content {
    source: Box<dyn Read>,
    path: PathBuf,
    size: u64,
}

impl Content {
    /// Opens a file, or standard input (`-`).
    pub(crate) fn open(path: &Path) -> Result<Content, CliError> {
        let source: Box<dyn Read> = match path.as_os_str() == "-" {
            true => Box::new(io::stdin().lock()),
            false => Box::new(fs::File::open(path).map_err(|error| unreadable(path, &error))?),
        };
        Ok(Content { source, path: path.to_owned(), size: 0 })
    }

    /// Reads the next part of this size in bytes. The last part is smaller, and may be empty. Fails above [`MAX_FILE`]
    /// bytes in all.
    pub(crate) fn part(&mut self, size: usize) -> Result<Vec<u8>, CliError> {
        let mut bytes = Vec::new();
        let read = (&mut self.source).take(size as u64).read_to_end(&mut bytes);
        self.size += read.map_err(|error| unreadable(&self.path, &error))? as u64;
        match self.size > MAX_FILE {
            true => Err(CliError::wrong(format!("{} is larger than {} GiB", self.path.display(), MAX_FILE >> 30))),
            false => Ok(bytes),
        }
    }
}

/// Reads a whole file, or standard input (`-`). Fails above [`MAX_WHOLE_FILE`] bytes.
pub(crate) fn whole(path: &Path) -> Result<Vec<u8>, CliError> {
    let bytes = Content::open(path)?.part(MAX_WHOLE_FILE + 1)?;
    match bytes.len() > MAX_WHOLE_FILE {
        true => Err(CliError::wrong(format!("{} is larger than {} MiB", path.display(), MAX_WHOLE_FILE >> 20))),
        false => Ok(bytes),
    }
}

fn unreadable(path: &Path, error: &io::Error) -> CliError {
    CliError::wrong(format!("cannot read {}", path.display())).because(error)
}
