//! The resource usage of one attempt.

use flowcell_contract::{Failure, MAX_MEMORY_MIB, Tenant, code};
use wasmtime::ResourceLimiter;

use crate::{
    Limits,
    failure::Stop,
    fair_semaphore::{FairSemaphore, Permit},
    text::cut,
};

/// The memory that the attempts of all tenants share.
pub(crate) struct SharedMemory {
    /// The bytes of linear memory that the attempt has without taking from the pool.
    pub(crate) included: usize,
    /// The pool of further memory.
    pub(crate) pool: FairSemaphore,
}

/// Counts memory, tables, host calls and log text against the limits.
pub(crate) struct Meter {
    memory_left: usize,
    memory: usize,
    shared: SharedMemory,
    tenant: Tenant,
    extra_memory: Option<Permit>,
    table_elements: usize,
    calls_left: u32,
    log_left: usize,
    log_closed: bool,
    instances: usize,
    memories: usize,
    tables: usize,
}

impl Meter {
    pub(super) fn new(limits: &Limits, tenant: Tenant, shared: SharedMemory) -> Meter {
        Meter {
            memory_left: limits.memory,
            memory: limits.memory,
            shared,
            tenant,
            extra_memory: None,
            table_elements: limits.table_elements,
            calls_left: limits.calls,
            log_left: limits.log_bytes,
            log_closed: false,
            instances: limits.core_instances as usize,
            memories: limits.memories as usize,
            tables: limits.tables as usize,
        }
    }

    /// Returns the bytes of linear memory that the attempt has taken, over all memories. Memories do not shrink.
    pub(crate) fn memory_taken(&self) -> usize {
        self.memory - self.memory_left
    }

    /// Counts one host call.
    pub(super) fn count_call(&mut self) -> wasmtime::Result<()> {
        match self.calls_left.checked_sub(1) {
            Some(left) => self.calls_left = left,
            None => return Err(Stop::limit_exceeded("the node made more host calls than one attempt may make")),
        }
        Ok(())
    }

    /// Takes `by` bytes of memory from the pool until the attempt ends. Returns false if the tenant may not have
    /// them.
    fn reserve(&mut self, by: u64) -> bool {
        match &mut self.extra_memory {
            _ if by == 0 => true,
            Some(held) => held.grow(by),
            None => {
                self.extra_memory = self.shared.pool.try_take(&self.tenant, by);
                self.extra_memory.is_some()
            }
        }
    }

    /// Returns the part of a message that fits into the log, or `None` if the log is full. The line that fills the
    /// log says that further lines are dropped.
    pub(super) fn admit_log(&mut self, mut message: String) -> Option<String> {
        if self.log_closed {
            return None;
        }
        if message.len() > self.log_left {
            self.log_closed = true;
            message = cut(message, self.log_left);
            message.push_str(" … (the log of this attempt is full; further lines are dropped)");
        }
        self.log_left = self.log_left.saturating_sub(message.len());
        Some(message)
    }
}

impl ResourceLimiter for Meter {
    fn memory_growing(&mut self, current: usize, desired: usize, _: Option<usize>) -> wasmtime::Result<bool> {
        let by = desired.saturating_sub(current);
        let Some(left) = self.memory_left.checked_sub(by) else {
            let limit = self.memory >> 20;
            let message = format!(
                "the node exceeded its {limit} MiB of memory; process less at a time, or ask for up to \
                 {MAX_MEMORY_MIB} MiB in its manifest (`limits: {{ memoryMib: … }}`)"
            );
            return Err(Stop::from_code(code::OUT_OF_MEMORY, message));
        };
        let beyond = |left: usize| (self.memory - left).saturating_sub(self.shared.included);
        if !self.reserve((beyond(left) - beyond(self.memory_left)) as u64) {
            let message = "the tenant's instances use all memory that they may have at this time";
            return Err(wasmtime::Error::new(Stop(Failure::retryable(code::OUT_OF_MEMORY, message))));
        }
        self.memory_left = left;
        Ok(true)
    }

    fn table_growing(&mut self, _: usize, desired: usize, _: Option<usize>) -> wasmtime::Result<bool> {
        if desired > self.table_elements {
            let limit = self.table_elements;
            return Err(Stop::limit_exceeded(format!("the node exceeded the limit of {limit} elements in a table")));
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
    use crate::machine::MEMORY_INCLUDED;

    fn meter(limits: &Limits) -> Meter {
        Meter::new(limits, "t".into(), shared(&FairSemaphore::new(0)))
    }

    fn shared(pool: &FairSemaphore) -> SharedMemory {
        SharedMemory { included: MEMORY_INCLUDED, pool: pool.clone() }
    }

    #[test]
    fn the_line_that_fills_the_log_is_cut_between_characters_and_says_so() {
        let mut meter = meter(&Limits { log_bytes: 6, ..Limits::default() });
        assert_eq!(meter.admit_log("abc".into()).unwrap(), "abc");
        let cut = meter.admit_log("aéééé".into()).unwrap();
        assert!(cut.starts_with("aé …") && cut.contains("dropped"), "{cut}");
        assert_eq!(meter.admit_log(String::new()), None);
    }

    #[test]
    fn memories_share_one_limit() {
        let mut meter = meter(&Limits { memory: 10 << 16, ..Limits::default() });
        assert!(meter.memory_growing(0, 6 << 16, None).unwrap());
        assert!(meter.memory_growing(0, 4 << 16, None).unwrap());
        assert!(meter.memory_growing(6 << 16, 7 << 16, None).is_err());
        assert_eq!(meter.memory_taken(), 10 << 16);
    }

    #[test]
    fn memory_beyond_the_included_part_comes_from_the_pool() {
        let (semaphore, limits) = (FairSemaphore::new(10 << 20), Limits::default());
        let meters = || [(), ()].map(|()| Meter::new(&limits, "t".into(), shared(&semaphore)));
        let [mut one, mut other] = meters();
        for meter in [&mut one, &mut other] {
            assert!(meter.memory_growing(0, 1 << 20, None).unwrap());
            assert!(meter.memory_growing(1 << 20, 4 << 20, None).unwrap());
        }
        assert!(one.memory_growing(4 << 20, 8 << 20, None).unwrap());
        let full = other.memory_growing(4 << 20, 6 << 20, None).unwrap_err();
        let full = &full.downcast_ref::<Stop>().unwrap().0;
        assert_eq!((&*full.code, full.retryable), (code::OUT_OF_MEMORY, true));
        drop(one);
        assert!(other.memory_growing(4 << 20, 6 << 20, None).unwrap());
    }
}
