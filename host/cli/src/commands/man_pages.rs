//! `flowcell man-pages`: writes a man page for each command. Packages carry these pages.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use clap::{Args, Command, ValueHint};
use clap_mangen::{
    Man,
    roff::{Roff, bold, roman},
};

use super::groups;
use crate::cli_error::{CliError, Exit};

/// The heading that `man` prints above each page.
const MANUAL: &str = "Flowcell";
/// The section of all pages: commands of users.
const SECTION: &str = "1";

/// Arguments of `flowcell man-pages`.
#[derive(Args)]
pub(crate) struct ManPagesArgs {
    /// The folder to write the pages into; it is created if it is missing
    #[arg(value_name = "DIR", value_hint = ValueHint::DirPath)]
    folder: PathBuf,
}

pub(super) fn execute(args: &ManPagesArgs) -> Result<Exit, CliError> {
    write(&args.folder).map_err(|error| {
        CliError::wrong(format!("cannot write the man pages into {}", args.folder.display())).because(&error)
    })?;
    Ok(Exit::Good)
}

fn write(folder: &Path) -> io::Result<()> {
    fs::create_dir_all(folder)?;
    pages()?.iter().try_for_each(|page| fs::write(folder.join(&page.file), &page.text))
}

/// One man page.
struct ManPage {
    /// Its file name, such as `flowcell-runs-show.1`.
    file: String,
    /// The page in the language of `roff`.
    text: Vec<u8>,
}

/// Returns a page for each command that the help shows, and for each group of commands.
fn pages() -> io::Result<Vec<ManPage>> {
    let mut top = groups::commands();
    top.build();
    let mut pages = Vec::new();
    add_pages(&top, "", None, &mut pages)?;
    Ok(pages)
}

/// Adds the page of a command, and those of the commands below it. `path` has the names of the commands from below
/// `flowcell` to this one, each followed by a space. `parent` is the title of the page above.
fn add_pages(command: &Command, path: &str, parent: Option<&str>, pages: &mut Vec<ManPage>) -> io::Result<()> {
    let page = Man::new(command.clone()).section(SECTION).manual(MANUAL);
    let file = page.get_filename();
    let title = file.trim_end_matches(&format!(".{SECTION}")).to_owned();
    let mut text = Vec::new();
    page.render(&mut text)?;
    end_of_page(command, path, parent).to_writer(&mut text)?;
    pages.push(ManPage { file, text });
    for below in command.get_subcommands().filter(|below| !below.is_hide_set()) {
        add_pages(below, &format!("{path}{} ", below.get_name()), Some(&title), pages)?;
    }
    Ok(())
}

/// Returns the last sections of a page: an example, and references to other pages.
fn end_of_page(command: &Command, path: &str, parent: Option<&str>) -> Roff {
    let mut end = Roff::new();
    if let Some(example) = groups::example(path).filter(|_| !command.has_subcommands()) {
        end.control("SH", ["EXAMPLE"]).control("EX", []).text([roman(format!("flowcell {example}"))]).control("EE", []);
    }
    end.control("SH", ["SEE ALSO"]);
    let mut references = Vec::new();
    if let Some(parent) = parent {
        references.extend([bold(parent), roman(format!("({SECTION}). "))]);
    }
    references.extend([bold("flowcell help topics"), roman(" lists the pages of the manual.")]);
    end.text(references);
    end
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use clap::CommandFactory;

    use super::*;
    use crate::commands::Arguments;

    /// Adds the file names that a command and all commands below it should have.
    fn add_names(command: &Command, name: &str, names: &mut BTreeSet<String>) {
        names.insert(format!("{name}.1"));
        for below in command.get_subcommands().filter(|below| !below.is_hide_set()) {
            add_names(below, &format!("{name}-{}", below.get_name()), names);
        }
    }

    #[test]
    fn every_command_has_a_man_page() {
        let mut expected = BTreeSet::new();
        add_names(&Arguments::command(), "flowcell", &mut expected);
        let pages = pages().unwrap();
        let found: BTreeSet<String> = pages.iter().map(|page| page.file.clone()).collect();
        assert_eq!(found, expected);
        assert_eq!(found.len(), pages.len(), "two pages have one name");
        assert!(found.len() > 80 && found.contains("flowcell-secret-rotate-key.1"), "{found:?}");
    }

    #[test]
    fn a_man_page_has_options_an_example_and_a_reference() {
        let pages = pages().unwrap();
        let text = |file: &str| {
            let page = pages.iter().find(|page| page.file == file).unwrap();
            String::from_utf8(page.text.clone()).unwrap()
        };
        let show = text("flowcell-runs-show.1");
        for part in [".TH flowcell-runs-show 1", "\\-\\-json", ".SH EXAMPLE", "flowcell runs show order\\-7 pay"] {
            assert!(show.contains(part), "{part} is missing:\n{show}");
        }
        assert!(show.contains("\\fBflowcell\\-runs\\fR(1)"), "{show}");
        let top = text("flowcell.1");
        assert!(top.contains("Exit codes") && top.contains("flowcell\\-serve(1)"), "{top}");
        assert!(top.contains("\\-\\-prompt"), "options of agentic flows are missing:\n{top}");
        assert!(!top.contains("watch\\-programs"), "a hidden command is listed:\n{top}");
    }
}
