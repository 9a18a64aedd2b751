//! Records measurements as events of the run.

use crate::wit::flowcell::host::metrics;

/// Records one measurement. `tags` are pairs of name and value. A `value` that is not finite is dropped.
pub fn measure(name: &str, value: f64, tags: &[(String, String)]) {
    metrics::measure(name, value, tags);
}
