//! `flowcell serve --check`: checks everything that the server needs at its start, and changes nothing.

use std::path::Path;

use flowcell::{Error, FlowLibrary, OpenStoreError, Reader};

use super::ServeArgs;
use crate::{
    cli_error::{CliError, Exit},
    options::StoreLocation,
    terminal::{Terminal, counted},
};

/// Checks the files of TLS, services and packs, the store and the flows. Reports each flow with an error.
pub(super) fn check(args: &ServeArgs, place: StoreLocation<'_>, terminal: Terminal) -> Result<Exit, CliError> {
    args.tls.check(terminal)?;
    // Building the host checks the files that the settings name, and connects to a shared store.
    let builder = match place {
        StoreLocation::Server(url) => args.packs.builder().server(url),
        StoreLocation::Folder(folder) => {
            check_folder(folder, terminal)?;
            args.packs.builder()
        }
        _ => args.packs.builder(),
    };
    let host = args.watch.with_collector(builder).build()?;
    let library = FlowLibrary::open(&args.flows).with_posted_of(&host);
    let shown = args.flows.display();
    if !args.flows.is_dir() && !library.is_shared() {
        terminal
            .warn(&format!("the folder of flows `{shown}` does not exist; the server creates it with the first flow"));
        return Ok(Exit::Good);
    }
    let (names, mut wrong) = (library.names()?, 0_usize);
    for name in &names {
        match library.load(&host, name, None) {
            Ok(_) => {}
            Err(error) => {
                wrong += 1;
                CliError::from(error).print(terminal);
            }
        }
    }
    terminal.say(&format!("checked {} in `{shown}`", counted(names.len(), "flow")));
    if wrong > 0 { Ok(Exit::Wrong) } else { Ok(Exit::Good) }
}

/// Checks the store in a folder.
fn check_folder(folder: &Path, terminal: Terminal) -> Result<(), CliError> {
    match Reader::versions(folder) {
        Ok((found, current)) => {
            if found < current {
                terminal.warn(&format!(
                    "the store in `{}` has version {found}; the server upgrades it to {current}, and older programs \
                     cannot open it then",
                    folder.display()
                ));
            }
            Ok(())
        }
        Err(OpenStoreError::Missing(_)) => {
            terminal.warn(&format!("the folder `{}` has no store; the server creates it", folder.display()));
            Ok(())
        }
        Err(error) => Err(Error::Store(error).into()),
    }
}
