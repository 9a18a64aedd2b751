//! The inbox in memory: one process has the store, and drives all of its runs.

use super::MemoryJournal;
use crate::ports::Inbox;

impl Inbox for MemoryJournal {}
