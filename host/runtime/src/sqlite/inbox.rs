//! The inbox: one process owns the file, and drives all of its runs.

use super::SqliteStore;
use crate::ports::Inbox;

impl Inbox for SqliteStore {}
