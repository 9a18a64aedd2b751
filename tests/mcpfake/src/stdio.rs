//! Serves over standard input and output.

use std::io::{self, BufRead, Write};

use crate::{Doing, Plan, session::Session};

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
        for doing in session.take(&message) {
            let bytes = match doing {
                Doing::Send(message) => serde_json::to_vec(&message)?,
                Doing::Raw(bytes) => bytes,
                Doing::Crash => return Ok(CRASHED),
                Doing::Hang => continue,
            };
            output.write_all(&bytes)?;
            output.write_all(b"\n")?;
            output.flush()?;
        }
    }
    Ok(0)
}
