//! `flowcell serve --check`: checks everything that the server needs at its start, and changes nothing.

use std::path::Path;

use flowcell::{
    Error, FlowLibrary, Host, OpenStoreError, Reader,
    identity::{Identify, Local},
    misplaced_flows,
    server::check_guarded,
    tenants::{Tenants, callers::Callers},
};

use super::{ServeArgs, start_error};
use crate::{
    cli_error::{CliError, Exit},
    options::StoreLocation,
    owner::unreadable,
    terminal::{Terminal, counted},
};

/// Checks the files of TLS, the keys of secrets, notifications, the sign-in, services and packs, the store, whether other machines need
/// tokens, and the flows. Reports each flow with an error.
pub(super) fn check(args: &ServeArgs, place: StoreLocation<'_>, terminal: Terminal) -> Result<Exit, CliError> {
    args.tls.check(terminal)?;
    warn_of_misplaced(&args.flows, terminal);
    args.packs.check_keys(place)?;
    // Building the host checks the files that the settings name, and connects to a shared store.
    let (builder, is_old) = match place {
        StoreLocation::Server(url) => (args.packs.builder().server(url), false),
        StoreLocation::Folder(folder) => (args.packs.builder(), check_folder(folder, terminal)?),
        _ => (args.packs.builder(), false),
    };
    let host = args.watch.with_collector(builder).build()?;
    let mut wrong = 0_usize;
    if let Err(error) = check_tokens(args, place, &host, is_old, terminal) {
        wrong += 1;
        error.print(terminal);
    }
    let exit = |wrong: usize| if wrong > 0 { Exit::Wrong } else { Exit::Good };
    args.notify.check(&host, terminal)?;
    args.sign_in.check(&host, terminal)?;
    check_rules(args, place, &host, is_old, terminal)?;
    let library = FlowLibrary::open(&args.flows).with_posted_of(&host);
    let shown = args.flows.display();
    if !args.flows.is_dir() && !library.is_shared() {
        terminal
            .warn(&format!("the folder of flows `{shown}` does not exist; the server creates it with the first flow"));
        return Ok(exit(wrong));
    }
    let names = library.names()?;
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
    Ok(exit(wrong))
}

/// Warns of files that look like flows, and that the server does not read.
pub(super) fn warn_of_misplaced(flows: &Path, terminal: Terminal) {
    for misplaced in misplaced_flows(flows) {
        let (file, library) = (misplaced.file.display(), misplaced.library.display());
        terminal.warn(&format!("the server does not read the flow `{file}`; move it to the folder `{library}`"));
    }
}

/// Checks that other machines cannot send requests without a token, as the start of the server does. `host`: one with the
/// store if it is shared. `is_old`: the store is in a folder, and only the start may upgrade it.
fn check_tokens(
    args: &ServeArgs,
    place: StoreLocation<'_>,
    host: &Host,
    is_old: bool,
    terminal: Terminal,
) -> Result<(), CliError> {
    let check = |identity: &dyn Identify| check_guarded(args.listen, &args.trusted_proxy, identity);
    if check(&Local).is_ok() {
        return Ok(());
    }
    if is_old {
        terminal.warn(
            "other machines can reach the server; it is not checked whether the store has a tenant, without which the \
             server refuses to start, because only the start upgrades the store",
        );
        return Ok(());
    }
    let reading = reading_host(args, place)?;
    let callers = Callers::of(reading.as_ref().unwrap_or(host)).map_err(|error| unreadable(&error))?;
    check(&callers).map_err(start_error)
}

/// Returns a host that reads the store in a folder. `None` for another place.
fn reading_host(args: &ServeArgs, place: StoreLocation<'_>) -> Result<Option<Host>, CliError> {
    match place {
        StoreLocation::Folder(_) => args.packs.dry_host(&args.store).map(Some),
        _ => Ok(None),
    }
}

/// Warns of rules of the sign-in whose tenants do not exist. The server starts with them, since a tenant may be made later.
fn check_rules(
    args: &ServeArgs,
    place: StoreLocation<'_>,
    host: &Host,
    is_old: bool,
    terminal: Terminal,
) -> Result<(), CliError> {
    if is_old || args.sign_in.file()?.is_none() {
        return Ok(());
    }
    let reading = reading_host(args, place)?;
    let tenants = Tenants::of(reading.as_ref().unwrap_or(host)).list().map_err(|error| unreadable(&error))?;
    let exists = |name: &str| tenants.iter().any(|row| row.name == name && !row.being_removed);
    let unknown = args.sign_in.unknown_tenants(exists)?;
    unknown.iter().for_each(|why| terminal.warn(why));
    Ok(())
}

/// Checks the store in a folder. Returns true if the server would upgrade it.
fn check_folder(folder: &Path, terminal: Terminal) -> Result<bool, CliError> {
    match Reader::versions(folder) {
        Ok((found, current)) => {
            if found < current {
                terminal.warn(&format!(
                    "the store in `{}` has version {found}; the server upgrades it to {current}, and older programs \
                     cannot open it then",
                    folder.display()
                ));
            }
            Ok(found < current)
        }
        Err(OpenStoreError::Missing(_)) => {
            terminal.warn(&format!("the folder `{}` has no store; the server creates it", folder.display()));
            Ok(false)
        }
        Err(error) => Err(Error::Store(error).into()),
    }
}
