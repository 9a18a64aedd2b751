//! No removal of tenants: a store in memory ends with its process.

use super::MemoryJournal;
use crate::ports::Erase;

impl Erase for MemoryJournal {}
