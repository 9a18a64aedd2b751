//! The configuration of wasmtime: deterministic, bounded, and sized for this machine.

use std::{fs, num::NonZeroUsize};

use wasmtime::{Enabled, InstanceAllocationStrategy, OptLevel, PoolingAllocationConfig, RegallocAlgorithm, Strategy};

use crate::Limits;

/// A wasmtime engine, with the number of concurrent instances and the memory that it can hold.
pub(crate) struct Machine {
    pub(crate) engine: wasmtime::Engine,
    /// The number of concurrent instances. A large component counts as several.
    pub(crate) slots: u32,
    /// The bytes of linear memory of all instances, beyond the part that each slot includes.
    pub(crate) memory: u64,
}

/// The bytes of linear memory that each attempt has without taking from the shared memory. Most guests need no more.
pub(crate) const MEMORY_INCLUDED: usize = 4 << 20;

/// The number of core instances in one slot.
pub(crate) const CORE_INSTANCES_PER_SLOT: u32 = 4;
/// The number of tables in one slot.
pub(crate) const TABLES_PER_SLOT: u32 = 2;

/// The number of frames in the stacks of traps. Profiles have more.
pub(crate) const USUAL_FRAMES: u32 = 4;

/// The maximum number of slots. More instances would not run faster.
const MAX_SLOTS: u64 = 1_000;
/// The minimum number of slots, so that one large component fits.
const MIN_SLOTS: u64 = 32;
/// The number of address space mappings that one instance takes, with its guards, stack and tables.
const MAPPINGS_PER_SLOT: u64 = 12;
/// The estimated physical memory of one slot, in bytes. Most guests stay below 2 MiB.
const MEMORY_PER_SLOT: u64 = 8 << 20;

/// The assumed memory of a machine that does not report it, in bytes.
const UNKNOWN_MEMORY: u64 = 4 << 30;

/// Builds the wasmtime engine. `instances` and `memory` are the operator's settings, if any. `largest` is the number of
/// bytes that one memory may have. It changes neither the code nor the address space of a slot, which is 4 GiB, so
/// large and small attempts share the slots and the code. `frames` is the number of frames in a stack. If the address
/// space is too small for a pool, wasmtime allocates instances one by one.
pub(crate) fn build(
    limits: &Limits,
    instances: Option<u32>,
    memory: Option<u64>,
    largest: usize,
    frames: u32,
) -> anyhow::Result<Machine> {
    let slots = slots(instances);
    // Half of the machine's memory is for the slots. The memory that instances share beyond their slots is another
    // quarter.
    let memory = memory.unwrap_or_else(|| memory_bytes().unwrap_or(UNKNOWN_MEMORY) / 4);
    match wasmtime::Engine::new(with_pool(limits, slots, largest).wasm_backtrace_max_frames(frames_setting(frames))) {
        Ok(engine) => Ok(Machine { engine, slots, memory }),
        Err(error) => {
            tracing::warn!("cannot create a pool of instances: {error:#}; instances are allocated individually");
            let engine = wasmtime::Engine::new(base(limits).wasm_backtrace_max_frames(frames_setting(frames)))
                .map_err(|error| anyhow::anyhow!("{error:#}"))?;
            Ok(Machine { engine, slots, memory })
        }
    }
}

/// Builds a wasmtime engine that compiles code for the engine of [`build`], and runs nothing.
pub(crate) fn compiler(stack: usize) -> anyhow::Result<wasmtime::Engine> {
    let limits = Limits { stack, ..Limits::default() };
    wasmtime::Engine::new(&base(&limits)).map_err(|error| anyhow::anyhow!("{error:#}"))
}

/// Returns the settings that compiled code depends on. They must be the same with and without a pool.
fn base(limits: &Limits) -> wasmtime::Config {
    let mut config = wasmtime::Config::new();
    config
        .strategy(Strategy::Cranelift)
        .cranelift_opt_level(OptLevel::Speed)
        .cranelift_regalloc_algorithm(RegallocAlgorithm::Backtracking)
        .cranelift_nan_canonicalization(true)
        .relaxed_simd_deterministic(true)
        .wasm_memory64(false)
        .concurrency_support(false)
        .epoch_interruption(true)
        .max_wasm_stack(limits.stack)
        .async_stack_size(limits.stack + (512 << 10))
        .async_stack_zeroing(true)
        .wasm_backtrace_max_frames(frames_setting(USUAL_FRAMES))
        .memory_init_cow(true)
        .table_lazy_init(true);
    config
}

fn frames_setting(frames: u32) -> Option<NonZeroUsize> {
    usize::try_from(frames).ok().and_then(NonZeroUsize::new)
}

/// The bytes of a stack that stay in memory between two attempts. Calls of the host run on the stack of their attempt; what
/// they use beyond this part is given back after each attempt, which interrupts all threads of the process.
const RESIDENT_STACK: usize = 64 << 10;

fn with_pool(limits: &Limits, slots: u32, largest: usize) -> wasmtime::Config {
    let mut pool = PoolingAllocationConfig::new();
    pool.total_component_instances(slots)
        .total_core_instances(slots * CORE_INSTANCES_PER_SLOT)
        .total_memories(slots)
        .total_tables(slots * TABLES_PER_SLOT)
        .total_stacks(slots)
        .max_core_instances_per_component(limits.core_instances)
        .max_memories_per_component(limits.memories)
        .max_tables_per_component(limits.tables)
        .max_memory_size(limits.memory.max(largest))
        .table_elements(limits.table_elements)
        .max_unused_warm_slots(slots)
        .linear_memory_keep_resident(64 << 10)
        .table_keep_resident(4 << 10)
        .async_stack_keep_resident(RESIDENT_STACK)
        .pagemap_scan(Enabled::Auto);
    let mut config = base(limits);
    config.allocation_strategy(InstanceAllocationStrategy::Pooling(pool));
    config
}

/// Returns the number of slots: `wanted`, or [`MAX_SLOTS`] if it is `None`. Reduces it to the number of slots that fit
/// in half of the address space mappings and in half of the memory, but never below [`MIN_SLOTS`].
fn slots(wanted: Option<u32>) -> u32 {
    let by_mappings = read_number("/proc/sys/vm/max_map_count").map(|count| count / 2 / MAPPINGS_PER_SLOT);
    let by_memory = memory_bytes().map(|bytes| bytes / 2 / MEMORY_PER_SLOT);
    let fitting = by_mappings.into_iter().chain(by_memory).min().unwrap_or(MAX_SLOTS);
    let wanted = wanted.map_or(MAX_SLOTS, u64::from);
    u32::try_from(fitting.min(wanted).max(MIN_SLOTS)).unwrap_or(u32::MAX)
}

fn read_number(path: &str) -> Option<u64> {
    fs::read_to_string(path).ok()?.trim().parse().ok()
}

/// Returns the memory that this process may use, in bytes: the machine's, or its control group's if that is less.
fn memory_bytes() -> Option<u64> {
    let machine = fs::read_to_string("/proc/meminfo").ok().and_then(|text| {
        let line = text.lines().find(|line| line.starts_with("MemTotal:"))?;
        line.split_whitespace().nth(1)?.parse::<u64>().ok().map(|kib| kib << 10)
    });
    let group = read_number("/sys/fs/cgroup/memory.max");
    machine.into_iter().chain(group).min()
}
