//! The walks of the audit: batch headers, records, index entries, and sound segments as a whole.
//!
//! They do what `spindle.columnar.header_walk`, `spindle.columnar.record_walk` and the checks over
//! columns (`spindle.audit`) do; the order of their checks, the codes and the columns are the same.

pub mod headers;
pub mod indexes;
#[cfg(not(test))]
#[allow(unsafe_code)] // the descriptor of an open file
pub mod python;
pub mod records;
pub mod sound_walk;
