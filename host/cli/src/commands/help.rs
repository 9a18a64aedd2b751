//! `flowcell help`: the help of a command, and the pages of the manual.

use clap::Args;
use flowcell_server::manual::{self, Group};

use super::groups;
use crate::{
    cli_error::{CliError, Exit},
    output::put,
};

/// The name under which the topics are listed.
const TOPICS_NAME: &str = "topics";
/// The maximum number of lines of a page that a search prints.
const MAX_LINES_OF_PAGE: usize = 3;

#[derive(Args)]
pub(crate) struct HelpArgs {
    /// A command, such as `runs show`; a topic of the manual; `topics`, which lists the topics; or any text, which is
    /// searched in the manual
    name: Vec<String>,
}

/// Prints the help of a command, then the page of the manual that has the same name.
pub(crate) fn execute(args: &HelpArgs) -> Result<Exit, CliError> {
    let name = args.name.join(" ");
    if name == TOPICS_NAME {
        put(&topics())?;
        return Ok(Exit::Good);
    }
    let command = command(&args.name);
    let page = manual::page(&name).map(|page| page.text.to_owned());
    let texts: Vec<String> = command.into_iter().chain(page).collect();
    if texts.is_empty() {
        let found = search(&name);
        if !found.is_empty() {
            put(&format!("`{name}` is neither a command nor a topic. These topics have it:\n{found}"))?;
            return Ok(Exit::Good);
        }
        return Err(CliError::wrong(format!("unknown command or topic `{name}`"))
            .hint("`flowcell help` lists the commands, `flowcell help topics` the topics of the manual"));
    }
    put(&texts.join("\n"))?;
    Ok(Exit::Good)
}

/// Returns the help of the command at this path of names, or `None` for an unknown command.
fn command(names: &[String]) -> Option<String> {
    let mut top = groups::command();
    top.build();
    let mut command = &mut top;
    for name in names {
        command = command.find_subcommand_mut(name)?;
    }
    Some(command.render_long_help().to_string())
}

/// Returns the lines of the manual that contain `text` as whole words, in capital or small letters. Returns at most
/// [`MAX_LINES_OF_PAGE`] lines of each page, and then the number of the page's other lines.
fn search(text: &str) -> String {
    let text = text.to_lowercase();
    let is_part = |letter: Option<char>| letter.is_some_and(|letter| letter.is_alphanumeric() || letter == '_');
    let has = |line: &str| {
        let line = line.to_lowercase();
        line.match_indices(&text)
            .any(|(at, _)| !is_part(line[..at].chars().next_back()) && !is_part(line[at + text.len()..].chars().next()))
    };
    let mut found = String::new();
    for page in manual::PAGES {
        let mut lines = page.text.lines().filter(|line| has(line));
        let shown: Vec<&str> = lines.by_ref().take(MAX_LINES_OF_PAGE).collect();
        let more = lines.count();
        for line in &shown {
            found += &format!("\n{}: {}", page.topic, line.trim());
        }
        if more > 0 {
            found += &format!("\n{}: … {more} more lines", page.topic);
        }
    }
    if found.is_empty() { found } else { found + "\n\n`flowcell help TOPIC` prints a page.\n" }
}

/// Lists the pages of the manual by group.
fn topics() -> String {
    let width = manual::PAGES.iter().map(|page| page.topic.len()).max().unwrap_or_default();
    let group = |group: Group| {
        let pages = manual::PAGES.iter().filter(|page| page.group == group);
        let lines = pages.map(|page| format!("  {:width$}  {}\n", page.topic, page.title()));
        format!("{}\n{}", group.title(), lines.collect::<String>())
    };
    let groups = Group::ALL.map(group).join("\n");
    format!("{groups}\n`flowcell help TOPIC` prints a page.\n")
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;
    use crate::commands::Arguments;

    const CLI: &str = "cli";

    #[test]
    fn a_text_is_searched_in_the_manual() {
        let found = search("Binding_Error");
        assert!(found.contains("\nerrors: | `binding_error`"), "{found}");
        assert_eq!(search("inding_error"), "");
        let many = search("run");
        assert!(
            many.lines().count() < manual::PAGES.len() * (MAX_LINES_OF_PAGE + 1) + 4 && many.contains(" more lines"),
            "{many}"
        );
        assert_eq!(search("no such text anywhere"), "");
    }

    /// Calls `visit` with the name of every command that the help shows.
    fn commands(command: &clap::Command, name: &str, visit: &mut impl FnMut(&str, &clap::Command)) {
        visit(name, command);
        for below in command.get_subcommands().filter(|below| !below.is_hide_set()) {
            commands(below, &format!("{name} {}", below.get_name()), visit);
        }
    }

    #[test]
    fn page_cli_names_every_command_and_long_option() {
        let page = manual::page(CLI).unwrap().text;
        let mut top = Arguments::command();
        top.build();
        let mut missing = Vec::new();
        commands(&top, "flowcell", &mut |name, command| {
            if !command.has_subcommands() && !page.contains(&format!("`{name}")) {
                missing.push(name.to_owned());
            }
            let options = command.get_arguments().filter(|argument| !argument.is_hide_set());
            for long in options.filter_map(clap::Arg::get_long) {
                let is_named = page.split(&format!("--{long}")).skip(1).any(|after| !after.starts_with(is_of_name));
                if !is_named {
                    missing.push(format!("{name} --{long}"));
                }
            }
        });
        assert!(missing.is_empty(), "manual/cli.md has no entry for {missing:#?}");
    }

    fn is_of_name(letter: char) -> bool {
        letter.is_ascii_alphanumeric() || letter == '-'
    }

    #[test]
    fn topics_are_listed_by_group_and_each_has_a_title() {
        let list = topics();
        for page in manual::PAGES {
            assert!(page.text.starts_with("# "), "{} has no title", page.topic);
            assert!(list.contains(&format!("  {} ", page.topic)), "{} is not listed", page.topic);
        }
    }

    #[test]
    fn a_command_with_a_page_has_its_own_help_first() {
        let run = command(&["run".to_owned()]).unwrap();
        assert!(run.contains("Usage: flowcell run"), "{run}");
        assert!(command(&["tutorial".to_owned()]).is_none());
        assert!(command(&["runs".to_owned(), "show".to_owned()]).unwrap().contains("Usage: flowcell runs show"));
    }
}
