//! The browser of the user.

use std::process::Command;

use crate::terminal::Terminal;

/// Opens a link in a browser. If that fails, says so; the link is printed.
pub(crate) fn open(link: &str, terminal: Terminal) {
    let program = if cfg!(target_os = "macos") { "open" } else { "xdg-open" };
    let opened = Command::new(program).arg(link).status();
    if !opened.is_ok_and(|status| status.success()) {
        terminal.warn(&format!("cannot open a browser with `{program}`; open the link yourself"));
    }
}
