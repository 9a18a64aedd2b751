//! Serves over standard input and output.

use std::io::{self, BufRead, Write};

use crate::{Plan, Reaction, session::Session};

/// The exit status of a server that crashes on request.
pub const CRASHED: i32 = 3;

/// Serves until the input ends. Returns the exit status for the process.
pub fn serve(plan: Plan) -> io::Result<i32> {
    eprintln!("the fake is here, and the key is {}", std::env::var("TOKEN").unwrap_or_default());
    if plan.stillborn {
        return Ok(CRASHED);
    }
    let mut session = Session::new(plan);
    let mut output = io::stdout().lock();
    for line in io::stdin().lock().lines() {
        let message = serde_json::from_str(&line?)?;
        for reaction in session.handle(&message) {
            let bytes = match reaction {
                Reaction::Send(message) => serde_json::to_vec(&message)?,
                Reaction::Raw(bytes) => bytes,
                Reaction::Crash => return Ok(CRASHED),
                Reaction::Hang => continue,
            };
            output.write_all(&bytes)?;
            output.write_all(b"\n")?;
            output.flush()?;
        }
    }
    Ok(0)
}
