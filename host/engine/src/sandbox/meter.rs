//! What an attempt has used up.

use flowcell_contract::code;
use wasmtime::ResourceLimiter;

use crate::{Limits, failure::Stop, text::cut};

/// Counts memory, tables, host calls and log text against the limits.
pub(crate) struct Meter {
    memory_left: usize,
    memory: usize,
    table_elements: usize,
    calls_left: u32,
    log_left: usize,
    log_closed: bool,
    instances: usize,
    memories: usize,
    tables: usize,
}

impl Meter {
    pub(super) fn new(limits: &Limits) -> Meter {
        Meter {
            memory_left: limits.memory,
            memory: limits.memory,
            table_elements: limits.table_elements,
            calls_left: limits.calls,
            log_left: limits.log_bytes,
            log_closed: false,
            instances: limits.core_instances as usize,
            memories: limits.memories as usize,
            tables: limits.tables as usize,
        }
    }

    /// Counts one host call.
    pub(super) fn count_call(&mut self) -> wasmtime::Result<()> {
        match self.calls_left.checked_sub(1) {
            Some(left) => self.calls_left = left,
            None => return Err(Stop::limit("the node made more host calls than one attempt may make")),
        }
        Ok(())
    }

    /// The message as far as there is room for log text; the line that fills the room says that more is dropped.
    pub(super) fn admit_log(&mut self, mut message: String) -> Option<String> {
        if self.log_closed {
            return None;
        }
        if message.len() > self.log_left {
            self.log_closed = true;
            message = cut(message, self.log_left);
            message.push_str(" … (the log of this attempt is full; what follows is dropped)");
        }
        self.log_left = self.log_left.saturating_sub(message.len());
        Some(message)
    }
}

impl ResourceLimiter for Meter {
    fn memory_growing(&mut self, current: usize, desired: usize, _: Option<usize>) -> wasmtime::Result<bool> {
        match self.memory_left.checked_sub(desired.saturating_sub(current)) {
            Some(left) => self.memory_left = left,
            None => {
                let limit = self.memory >> 20;
                return Err(Stop::with(
                    code::OUT_OF_MEMORY,
                    format!("the node wanted more than its {limit} MiB of memory"),
                ));
            }
        }
        Ok(true)
    }

    fn table_growing(&mut self, _: usize, desired: usize, _: Option<usize>) -> wasmtime::Result<bool> {
        if desired > self.table_elements {
            let limit = self.table_elements;
            return Err(Stop::limit(format!("the node wanted a table of more than {limit} elements")));
        }
        Ok(true)
    }

    fn instances(&self) -> usize {
        self.instances
    }

    fn tables(&self) -> usize {
        self.tables
    }

    fn memories(&self) -> usize {
        self.memories
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

    use super::*;

    #[test]
    fn the_line_that_fills_the_log_is_cut_between_characters_and_says_so() {
        let mut meter = Meter::new(&Limits { log_bytes: 6, ..Limits::default() });
        assert_eq!(meter.admit_log("abc".into()).unwrap(), "abc");
        let cut = meter.admit_log("aéééé".into()).unwrap();
        assert!(cut.starts_with("aé …") && cut.contains("dropped"), "{cut}");
        assert_eq!(meter.admit_log(String::new()), None);
    }

    #[test]
    fn memories_share_one_limit() {
        let mut meter = Meter::new(&Limits { memory: 10 << 16, ..Limits::default() });
        assert!(meter.memory_growing(0, 6 << 16, None).unwrap());
        assert!(meter.memory_growing(0, 4 << 16, None).unwrap());
        assert!(meter.memory_growing(6 << 16, 7 << 16, None).is_err());
    }
}
